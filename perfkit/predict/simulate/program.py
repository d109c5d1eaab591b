"""Program: the operators and collectives of one pass of a micro batch through the layers of a stage, in order, as columns.

Times are float ns without noise. A collective holds up computing for `block` of its time (0 to 1); the rest runs beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from perfkit.core.units import MIB, NS_PER_S
from perfkit.predict.cost.again import SKIPPED, Again
from perfkit.predict.simulate.costs import Costs, Gradients
from perfkit.predict.simulate.faults import Fault
from perfkit.predict.simulate.operators import CODE, COLLECTIVES, find

Floats = npt.NDArray[np.float64]

ADAPTERS = ("adapters.in", "adapters.out")
"""Products of all adapters of a layer, which run behind the matrices that they are beside: here together."""
_FORWARD_SHARES = (("attention.norm", "Norm", 0.2), ("attention.rope", "Rope", 0.1), ("attention.add", "Add", 0.15))
_FFN_SHARES = (("ffn.norm", "Norm", 0.2), ("ffn.activation", "Act", 0.2), ("ffn.add", "Add", 0.15))
"""Names, operators and shares of the element-wise work of a layer."""
AI_CPU_NS = 310_000
CAST_PASSES = 3.0  # a 16-bit element read, its fp32 copy written
SMALL_MESSAGE_BYTES = MIB // 4  # a message of this size reaches half of the bandwidth
OPTIMIZER_KERNELS = 8


@dataclass
class Op:
    """One operator or collective of a program; `ns` is `slowed` times what it takes without faults."""

    name: str
    code: int
    ns: float
    group: str = ""
    block: float = 1.0
    num_bytes: int = 0
    shapes: str = ""
    gap_ns: float = 0.0
    sync: bool = False
    slowed: float = 1.0


@dataclass(frozen=True)
class Program:
    """The columns of a pass: operators, their times, and before each the waits for the host and for the slowest of many nodes."""

    ops: tuple[Op, ...]
    base_ns: Floats
    gap_ns: Floats
    straggle_ns: Floats

    @classmethod
    def of(cls, ops: Sequence[Op], straggler: float = 0.0) -> Program:
        """The columns of operators, which wait for the slowest of many nodes for `straggler` of their own and the host's time."""
        held = [op.gap_ns + op.ns / op.slowed * (op.block if op.code < 0 else 1.0) for op in ops]
        return cls(
            tuple(ops),
            np.array([op.ns for op in ops], dtype=np.float64),
            np.array([op.gap_ns for op in ops], dtype=np.float64),
            straggler * np.array(held, dtype=np.float64),
        )

    @property
    def collectives(self) -> list[int]:
        """Places of the collectives."""
        return [place for place, op in enumerate(self.ops) if op.code < 0]


def collective(name: str, operation: str, group: str, seconds: float, num_bytes: float, *, block: float = 1.0) -> Op:
    """A collective of a kind of group."""
    return Op(name, -1 - COLLECTIVES.index(operation), seconds * NS_PER_S, group, block, round(num_bytes))


class LayerPrograms:
    """The operators of a layer of one kind of a plan, forward and backward, and of what comes before and after the layers."""

    def __init__(self, costs: Costs, faults: Sequence[Fault]) -> None:
        self._costs = costs
        self._tp, self._cp, self._ep = (
            round(float(getattr(costs.columns.kinds[costs.kind], name)[0])) for name in ("tensor", "context", "expert_parallel")
        )
        self._products = costs.products()
        self._casts = sum(fault.count for fault in faults if fault.kind == "unneeded_casts")
        self._ai_cpu = sum(fault.count for fault in faults if fault.kind == "aicpu_ops")
        self._slow = {code: fault.factor for fault in faults if fault.kind == "slow_op" for code in find(fault.operator or "")}

    def forward(self, gathered: Op | None = None) -> list[Op]:
        """One layer forward; with sharded parameters they are `gathered` before."""
        ops = [gathered] if gathered else []
        ops += self._half_forward(self._costs.kinds("forward"), 1.0)
        ahead, _ = self._costs.launch_waits_s()
        return self._slowed(_with_host(ops, ahead))

    def backward(self, again: Again, gathered: Op | None = None, reduced: Sequence[Op] = ()) -> list[Op]:
        """One layer backward, after what it computes `again`; its gradients are `reduced` at the end. A skipped one has none."""
        if again.way == SKIPPED:
            return []
        costs, layer = self._costs, self._costs.layer
        ops = [gathered] if gathered else []
        if not again.nothing:
            ops += [_renamed(op, f"recompute/{op.name}") for op in self._again(again)]
        ops += self._backward_ops()
        if float(layer.accumulate[0]) > 0:
            ops.append(Op("gradients.accumulate", CODE["Accumulate"], float(layer.accumulate[0]) * NS_PER_S))
        ahead, behind = costs.launch_waits_s()
        return self._slowed(_with_host([*ops, *reduced], behind + again.full * ahead))

    def _again(self, again: Again) -> list[Op]:
        """What a layer computes again: its forward pass with all collectives, or operators and gathers of it."""
        ops = self._half_forward(self._costs.again(again), again.full, extras=again.full > 0)
        return ops + (self._gathers() if again.gathers else [])

    def _gathers(self) -> list[Op]:
        """The gathers of sequence parallelism alone."""
        work, columns, hidden = self._costs.work, self._costs.columns, self._costs.hidden_share()
        once = float(self._costs.layer.gathers[0]) / 2 / max(1 - hidden, 1e-9)
        num_bytes = float((work.tokens * columns.hidden * columns.element_bytes)[0])
        return [collective("tp.gather", "all_gather", "tp", once, num_bytes, block=1 - hidden) for _ in range(2)] if once else []

    def first(self, *, back: bool) -> list[Op]:
        """The embedding, whose backward pass is left out where it is frozen."""
        work = self._costs.work
        seconds = float(work.embedding[0]) * _share(work.embedding_share, back=back)
        return self._slowed([Op("embedding", CODE["Embed"], seconds * NS_PER_S)] if seconds else [])

    def last(self, *, back: bool) -> list[Op]:
        """The head and the loss."""
        head, part = self._costs.kinds("head"), _share(self._costs.work.head_share, back=back)
        ops = [
            Op("head", CODE["MatMulBig"], head.matmul * part * NS_PER_S),
            Op("loss", CODE["Loss"], head.elementwise * part * NS_PER_S),
        ]
        return self._slowed(ops[::-1] if back else ops)

    def optimizer(self, layers: Sequence[Again], stage: int) -> list[Op]:
        """The optimizer's kernels."""
        ns = self._costs.optimizer_s(layers, stage) / OPTIMIZER_KERNELS * NS_PER_S
        return self._slowed([Op(f"optimizer.{part}", CODE["Optim"], ns) for part in range(OPTIMIZER_KERNELS)])

    def _slowed(self, ops: list[Op]) -> list[Op]:
        for op in ops:
            op.slowed = self._slow.get(op.code, 1.0)
            op.ns *= op.slowed
        return ops

    def _half_forward(self, seconds: object, share: float, *, extras: bool = True) -> list[Op]:
        """The forward operators of a layer in the seconds given; collectives take `share` of their time."""
        matmul, attention, elementwise = (float(getattr(seconds, name)) for name in ("matmul", "attention", "elementwise"))
        weights = self._costs.kinds("forward").matmul or 1.0
        products = {item.name: item for item in self._products}

        def product(name: str) -> list[Op]:
            if name not in products or not matmul:
                return []
            item = products[name]
            return [Op(name, _code_of(name), item.forward_s * matmul / weights * NS_PER_S, shapes=item.shapes)]

        def light(parts: Sequence[tuple[str, str, float]]) -> list[Op]:
            return [Op(name, CODE[code], elementwise * part * NS_PER_S) for name, code, part in parts if elementwise]

        extra = self._extras() if extras else []
        core = [Op("attention.core", CODE["Attn"], attention * NS_PER_S)] if attention else []
        ffn = [op for name in products if name.endswith(".up") and name != "attention.qkv" for op in product(name)]
        down = [op for name in products if name.endswith(".down") for op in product(name)]
        adapters = [op for name in ADAPTERS for op in product(name)]
        return [
            *light(_FORWARD_SHARES[:1]),
            *self._tensor("gather", share),
            *product("attention.qkv"),
            *light(_FORWARD_SHARES[1:2]),
            *self._context(share),
            *core,
            *product("attention.output"),
            *self._tensor("reduce", share),
            *light(_FORWARD_SHARES[2:]),
            *extra,
            *light(_FFN_SHARES[:1]),
            *self._tensor("gather", share),
            *self._experts("dispatch", share),
            *ffn,
            *light(_FFN_SHARES[1:2]),
            *down,
            *adapters,
            *self._experts("combine", share),
            *self._tensor("reduce", share),
            *light(_FFN_SHARES[2:]),
        ]

    def _backward_ops(self) -> list[Op]:
        seconds = self._costs.kinds("backward")
        light = {
            name: Op(name, CODE[code], seconds.elementwise * part * NS_PER_S)
            for name, code, part in (*_FORWARD_SHARES, *_FFN_SHARES)
        }

        def product(names: Sequence[str]) -> list[Op]:
            found = []
            for item in self._products:
                if item.name in names:
                    for part in item.gradients:
                        ns = item.backward_s / len(item.gradients) * NS_PER_S
                        found.append(Op(f"{item.name}.{part}", _code_of(item.name), ns, shapes=item.shapes))
            return found

        up = [item.name for item in self._products if item.name.endswith(".up")]
        down = [item.name for item in self._products if item.name.endswith(".down")]
        return [
            light["ffn.add"],
            *self._tensor("gather", 1.0),
            *self._experts("combine", 1.0),
            *product(ADAPTERS),
            *product(down),
            light["ffn.activation"],
            *product(up),
            *self._experts("dispatch", 1.0),
            *self._tensor("reduce", 1.0),
            light["ffn.norm"],
            *[Op(f"cast.{index}", CODE["Cast"], self._cast_ns()) for index in range(self._casts)],
            light["attention.add"],
            *self._tensor("gather", 1.0),
            *product(["attention.output"]),
            *self._context(1.0, back=True),
            Op("attention.core", CODE["AttnGrad"], seconds.attention * NS_PER_S),
            *self._context(1.0, back=True),
            light["attention.rope"],
            *product(["attention.qkv"]),
            *self._tensor("reduce", 1.0),
            light["attention.norm"],
        ]

    def _extras(self) -> list[Op]:
        casts = [Op(f"cast.{index}", CODE["Cast"], self._cast_ns()) for index in range(self._casts)]
        return casts + [Op(f"index.{index}", CODE["AiCpu"], AI_CPU_NS) for index in range(self._ai_cpu)]

    def _cast_ns(self) -> float:
        columns, work = self._costs.columns, self._costs.work
        moved = work.tokens * columns.hidden * columns.element_bytes * CAST_PASSES / work.device.bytes_per_s
        return float(moved[0]) * NS_PER_S

    def _tensor(self, moment: str, share: float) -> list[Op]:
        """An all-reduce where partial sums meet; with sequence parallel it is split into a gather before and a scatter after."""
        layer, columns = self._costs.layer, self._costs.columns
        if self._tp == 1 or not share:
            return []
        hidden = self._costs.hidden_share()
        once = float(layer.tensor.forward[0]) / 2 / max(1 - hidden, 1e-9) * share
        num_bytes = float((self._costs.work.tokens * columns.hidden * columns.element_bytes)[0])
        if bool(columns.sequence_parallel[0]):
            operation = "all_gather" if moment == "gather" else "reduce_scatter"
            return [collective(f"tp.{moment}", operation, "tp", once / 2, num_bytes, block=1 - hidden)]
        return [collective("tp.reduce", "all_reduce", "tp", once, num_bytes, block=1 - hidden)] if moment == "reduce" else []

    def _context(self, share: float, *, back: bool = False) -> list[Op]:
        """The exchange of a forward pass, or one of the two of a backward pass."""
        if self._cp == 1 or not share:
            return []
        exchange = self._costs.layer.context
        columns, algorithm = self._costs.columns, self._costs.plan.parallel.context_parallel_algorithm
        once = float(exchange.backward[0]) / 2 if back else float(exchange.forward[0]) * share
        num_bytes = float(
            (2 * self._costs.work.tokens * columns.kv_heads * columns.head_size / columns.tensor * columns.element_bytes)[0]
        )
        return [collective("attention.exchange", "send_receive" if algorithm == "ring" else "all_to_all", "cp", once, num_bytes)]

    def _experts(self, moment: str, share: float) -> list[Op]:
        if self._ep == 1 or not share:
            return []
        columns = self._costs.columns
        once = float(self._costs.layer.expert.forward[0]) / 2 * share
        num_bytes = float((columns.experts_per_token * self._costs.work.tokens * columns.hidden * columns.element_bytes)[0])
        return [collective(f"experts.{moment}", "all_to_all", "ep", once, num_bytes)]


def gradient_messages(gradients: Gradients, seconds: float, num_bytes: float, buckets: int, split: int) -> tuple[int, float, int]:
    """Number, seconds and bytes of messages of gradients: `buckets` of the plan, each in `split` pieces with their own latency."""
    if split == 1:
        return buckets, seconds / buckets, round(num_bytes / buckets)
    messages = buckets * split
    body, size = max(seconds - gradients.latency, 0.0) / messages, num_bytes / messages
    return messages, gradients.latency + body * (1 + SMALL_MESSAGE_BYTES / max(size, 1.0)), round(size)


def _share(forward: Floats, *, back: bool) -> float:
    """The share of either pass, of which that of the forward pass is given."""
    return 1 - float(forward[0]) if back else float(forward[0])


def _code_of(name: str) -> int:
    if name.startswith("experts"):
        return CODE["GroupedMatMul"]
    return CODE["MatMul" if name.startswith(("attention", "adapters")) else "MatMulBig"]


def _renamed(op: Op, name: str) -> Op:
    op.name = name
    return op


def _with_host(ops: list[Op], wait_s: float) -> list[Op]:
    """The wait for the host spread evenly over the operators."""
    if wait_s and ops:
        for op in ops:
            op.gap_ns = wait_s * NS_PER_S / len(ops)
    return ops
