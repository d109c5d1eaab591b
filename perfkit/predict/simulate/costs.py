"""Costs: what the parts of a step of one plan take, from the formulas of its prediction, under the faults that hold everywhere.

Seconds of one layer, one micro batch and one device, as `perfkit.predict.cost.step_time` sums them. Dense layers that lead in a
model with experts have costs of their own, as in the prediction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from perfkit.core.spec.plan import Plan
from perfkit.core.spec.recompute import RecomputePlan
from perfkit.predict.cost.again import SKIPPED, Again, layers_again
from perfkit.predict.cost.collectives import gather_s, latency_s, send_s
from perfkit.predict.cost.cost_columns import CostColumns, costs_of
from perfkit.predict.cost.efficiency import Efficiency
from perfkit.predict.cost.exchange_columns import exposed_s, gradient_rates, sends_hidden
from perfkit.predict.cost.layer_columns import Pass, grouped_product_s, layer_products
from perfkit.predict.cost.step_columns import step_parts, straggler_share
from perfkit.predict.cost.work_columns import Layer, Work, launch_waits_s, micro_batch_work
from perfkit.predict.simulate.faults import Fault


@dataclass(frozen=True, slots=True)
class Product:
    """A product with a weight: seconds forward and backward, whose `gradients` ("input", "weight") the latter makes, its shape."""

    name: str
    forward_s: float
    backward_s: float
    gradients: tuple[str, ...]
    shapes: str


@dataclass(frozen=True, slots=True)
class Kinds:
    """Seconds of a pass by kind of work."""

    matmul: float
    attention: float
    elementwise: float

    @property
    def total(self) -> float:
        """Seconds of the pass."""
        return self.matmul + self.attention + self.elementwise


@dataclass(frozen=True, slots=True)
class Gradients:
    """Data-parallel collectives of a stage in seconds: `hidden` of `reduced` and `gathered` can run beside the backward pass.

    `gathered_behind` is what the backward pass gathers, which is less where some layers have none. `hidden_ahead` can run beside
    the forward pass; `always` says that they happen in every micro batch (sharded parameters), `sharded`
    that parameters are gathered, `contention` what share of a hidden collective is lost to computing, `latency` what one message
    costs without its bytes.
    """

    reduced: float
    gathered: float
    gathered_behind: float
    hidden: float
    hidden_ahead: float
    always: bool
    sharded: bool
    contention: float
    latency: float
    reduced_bytes: float
    gathered_bytes: float


@dataclass(frozen=True)
class Costs:
    """The plan in columns, and its work in seconds; `kind` is that of its layers, in the order of `CostColumns.kinds`."""

    plan: Plan
    columns: CostColumns
    eff: Efficiency
    work: Work
    kind: int = 0

    @classmethod
    def of_plan(cls, plan: Plan, eff: Efficiency, faults: Sequence[Fault] = ()) -> Costs:
        """The costs of a plan; a fault of full recomputation changes the plan, one of overlap what is hidden."""
        if any(fault.kind == "full_recompute" for fault in faults):
            plan = replace(plan, recompute=RecomputePlan(all_layers=True))
        if any(fault.kind == "no_overlap" for fault in faults):
            eff = replace(eff, gradients_hidden=0.0, tensor_hidden=0.0, interleave_hidden=0.0)
        columns = costs_of([plan])
        return cls(plan, columns, eff, micro_batch_work(columns, eff))

    @property
    def layer(self) -> Layer:
        """What a layer takes."""
        return self.work.layers[self.kind]

    def of(self, again: Again) -> Costs:
        """The costs of layers of the kind of this one."""
        return replace(self, kind=again.kind)

    def kinds(self, which: str) -> Kinds:
        """Seconds of the layer's `forward` or `backward`, or of the `head` (forward and backward together)."""
        work: Pass = self.work.head if which == "head" else getattr(self.layer, which)
        return Kinds(_one(work.matmul), _one(work.attention), _one(work.elementwise))

    def again(self, again: Again) -> Kinds:
        """Seconds of what a layer computes again."""
        layer, forward = self.layer, self.kinds("forward")
        light = again.light_split * _one(layer.split_s) + again.light_whole * _one(layer.whole_s)
        return Kinds(
            forward.matmul * (again.full + again.products) - again.full * _one(layer.spared),
            forward.attention * (again.full + again.core),
            forward.elementwise * again.full + light,
        )

    def products(self) -> list[Product]:
        """The products of a layer."""
        found = []
        for item in layer_products(self.columns.kinds[self.kind], self.work.tokens):
            share = _one(item.share)
            if share == 0:
                continue
            forward, backward = grouped_product_s(item, self.work.device, self.eff.group_rows)
            copies = _one(item.copies)
            sizes = [round(_one(size)) for size in (item.rows * copies, item.depth, item.depth, item.columns)]
            shapes = f"{sizes[0]},{sizes[1]};" + (f"{round(copies)}," if copies > 1 else "") + f"{sizes[2]},{sizes[3]}"
            of = ("input", "weight") if _one(item.trained) else ("input",)
            found.append(Product(item.name, share * _one(forward), share * _one(backward), of, shapes))
        return found

    def launch_waits_s(self, factor: float = 1.0) -> tuple[float, float]:
        """Seconds a layer that the device waits for the host, forward and backward; the host `factor` times as slow."""
        layer, eff = self.layer, replace(self.eff, host=self.eff.host * factor)
        ahead, behind = launch_waits_s(self.columns.kinds[self.kind], eff, layer.forward_s - layer.ahead, layer.device_backward_s)
        return _one(ahead), _one(behind) if _one(self.columns.kinds[self.kind].backward) else 0.0

    def send_s(self) -> float:
        """Seconds to send activations to the next stage."""
        columns = self.columns
        stride = columns.devices / columns.pipeline
        sent = send_s(np.array([self.boundary_bytes()]), stride, self.work.network) + self.eff.send_host_s * self.eff.host
        return _one(sent * (1.0 - sends_hidden(columns, self.eff)))

    def boundary_bytes(self) -> float:
        """Bytes that one rank sends to the next stage for one micro batch."""
        return _one(self.work.tokens * self.columns.hidden * self.columns.element_bytes / self.columns.tensor)

    def hidden_share(self) -> float:
        """Share of tensor-parallel collectives that computing hides."""
        return float(np.max(np.where(self.columns.interleave > 1, self.eff.interleave_hidden, self.eff.tensor_hidden)))

    def optimizer_s(self, layers: Sequence[Again], stage: int) -> float:
        """Seconds of the optimizer on a stage of these layers."""
        _, trained = self._parameters(layers, stage)
        amount = trained * self.eff.optimizer_bytes * self.columns.optimizer_ratio
        return _one(amount / self.columns.optimizer_shards / self.work.device.bytes_per_s)

    def _parameters(self, layers: Sequence[Again], stage: int) -> tuple[float, float]:
        """Parameters on one device of a stage of these layers, and those of them that are trained."""
        own = np.arange(_one(self.columns.pipeline)) == stage
        counts = [own * float(sum(again.kind == kind for again in layers)) for kind in range(len(self.work.layers))]
        rates = gradient_rates(self.columns, self.eff, self.work.network)
        return _one(rates.parameters(counts)[..., stage]), _one(rates.trained(counts)[..., stage])

    def gradients(self, chunks: Sequence[Sequence[Again]], stage: int) -> Gradients:
        """Data-parallel collectives of a stage of these layers by chunk."""
        columns, layers = self.columns, [again for chunk in chunks for again in chunk]
        group, stride = columns.data * columns.context, columns.tensor
        parameters, trained = self._parameters(layers, stage)
        zero, backward = _one(columns.zero), [again for again in layers if again.way != SKIPPED]
        behind_bytes = (self._parameters(backward, stage)[0] if zero >= 3 else trained) * columns.element_bytes
        gathered_bytes = (parameters if zero >= 3 else trained) * columns.element_bytes
        reduced_bytes = trained * columns.gradient_bytes
        gathered = gather_s(gathered_bytes, group, stride, self.work.network)
        gathered_behind = gather_s(behind_bytes, group, stride, self.work.network)
        reduced = gather_s(reduced_bytes, group, stride, self.work.network)
        # Sharded parameters are gathered once for a micro batch, of which every piece is a pass.
        pieces = 1 / _one(columns.pieces) if zero >= 3 else 1.0
        # Copies to and from the host run beside some of the computing, the gradients of the last layer beside none.
        used = [(self._way_s(chunk), self._computing_s(chunk)) for chunk in chunks]
        ahead, behind = (sum(max(passes[index] - way, 0.0) for way, passes in used) for index in (0, 1))
        share = _one(self.eff.gradients_hidden)
        once = 1.0 if zero >= 3 else 1.0 - 1.0 / max(len(backward), 1)
        sent = pieces * (_one(reduced) if zero > 0 else 2 * _one(reduced)), pieces * _one(gathered) if zero > 0 else 0.0
        hidden = behind * share * once
        if len(chunks) > 1 and zero < 3:
            # Beside a group of micro batches of the later chunks, all but those of the last one, as in `stage_columns`.
            all_but_one = 1.0 - 1.0 / len(chunks)
            group = min(_one(columns.micro_batches * columns.interleave * columns.pieces), _one(columns.pipeline))
            hidden = share * all_but_one * min(behind * group, sum(sent))
        return Gradients(
            reduced=sent[0],
            gathered=sent[1],
            gathered_behind=pieces * _one(gathered_behind) if zero > 0 else 0.0,
            hidden=hidden,
            hidden_ahead=ahead * share,
            always=zero >= 3,
            sharded=zero > 0,
            contention=_one(self.eff.contention),
            latency=_one(latency_s(group, stride, self.work.network)) if _one(group) > 1 else 0.0,
            reduced_bytes=_one(reduced_bytes),
            gathered_bytes=_one(gathered_bytes),
        )

    def step_host_s(self) -> float:
        """Seconds of the host before the first operator of a step."""
        return _one(self.eff.step_host_s) * _one(self.eff.host)

    def swaps_s(self, layers: Sequence[Again]) -> tuple[float, float]:
        """Exposed seconds of the activations of some layers on their way to the host and back, in either pass."""
        way, (ahead, behind) = self._way_s(layers), self._computing_s(layers)
        contention = _one(self.eff.contention)
        out, back = (_one(exposed_s(np.array([way]), np.array([window]), contention)) for window in (ahead, behind))
        return out, back

    def _way_s(self, layers: Sequence[Again]) -> float:
        """Seconds of the activations of some layers on their way to the host, or back."""
        way = sum(again.swapped for again in layers) * _one(self.work.tokens)
        return way / (_one(self.columns.host_bytes_per_s) * _one(self.eff.host_link_share))

    def _computing_s(self, layers: Sequence[Again]) -> tuple[float, float]:
        """Seconds that some layers compute or wait for the host in either pass of a micro batch."""
        ahead = behind = 0.0
        for again in layers:
            costs = self.of(again)
            waits, once_more = [_one(wait) for wait in (costs.layer.ahead, costs.layer.behind)], costs.again(again).total
            ahead += costs.kinds("forward").total + waits[0]
            behind += costs.kinds("backward").total + waits[1] + once_more + again.full * waits[0]
        return ahead, behind

    def launch_s(self) -> float:
        """Seconds of the host to launch the forward pass of a layer."""
        return _one(self.eff.layer_host_s) * _one(self.eff.host)

    def straggler(self) -> float:
        """Share by which passes take longer on many nodes, so that the step takes as much longer as predicted."""
        share = _one(straggler_share(self.columns, self.eff))
        parts = {path: _one(amount) for path, amount in step_parts(self.columns, self.eff).items()}
        whole = sum(parts.values()) / (1 + share)
        # Sharded parameters are gathered within the passes.
        exchanged = parts["communication/exposed/dp"] if _one(self.columns.zero) < 3 else 0.0
        once = parts["computing/optimizer"] + exchanged + self.step_host_s()
        # Of the transfers a pass goes through those of its own stage and, where the pipeline fills and drains, of those between.
        passes = whole - once - parts["communication/exposed/pp"] - 2 * max(_one(self.columns.pipeline) - 2, 0.0) * self.send_s()
        return share * whole / passes if passes > 0 else share

    @property
    def passes(self) -> int:
        """Micro batches that go through the pipeline in a step; copies of one and pieces of its sequence count apart."""
        return round(_one(self.columns.micro_batches * self.columns.interleave * self.columns.pieces))


def stage_layers(plan: Plan, faults: Sequence[Fault] = ()) -> list[list[list[Again]]]:
    """By chunk and stage what every layer computes again; an unbalanced stage has more of the kind of its last ones."""
    rows = [[[again for count, again in runs for _ in range(count)] for runs in row] for row in layers_again(plan)]
    for fault in faults:
        if fault.kind == "imbalanced_pp_stage" and fault.stage is not None:
            for row in rows:
                layers = row[fault.stage]
                wanted = max(1, round(len(layers) * fault.factor)) if layers else 0
                row[fault.stage] = (layers + layers[-1:] * wanted)[:wanted]
    return rows


def _one(value: object) -> float:
    return float(np.ravel(np.asarray(value, dtype=np.float64))[0])
