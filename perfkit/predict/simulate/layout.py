"""Layout: where every rank of a plan stands, which groups it is in, and which of the ranks are simulated.

Ranks are placed as predictions assume: tensor parallel innermost, then context, data and pipeline, so that
rank = t + tp (c + cp (d + dp p)). Every stage is simulated; of the data-parallel replicas only `replicas`, because replicas that
nothing tells apart do the same at the same time. Arrays over the ranks of a stage are ordered (replica, context, tensor).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from perfkit.core.run import Position
from perfkit.core.spec.plan import Plan

Ints = npt.NDArray[np.int64]
MESH_SIZE = 8
"""Groups up to this size exchange with every member; larger ones pass data around a ring."""


@dataclass(frozen=True)
class Layout:
    """Sizes of the groups of a plan, and the data-parallel replicas that are simulated."""

    tensor: int
    context: int
    data: int
    pipeline: int
    expert: int
    devices_per_node: int
    replicas: Sequence[int]

    @classmethod
    def of(cls, plan: Plan, replicas: Sequence[int] | None = None) -> Layout:
        """The layout of a plan with all its replicas, or some of them."""
        sizes = plan.parallel
        return cls(
            tensor=sizes.tensor_parallel_size,
            context=sizes.context_parallel_size,
            data=sizes.data_parallel_size,
            pipeline=sizes.pipeline_parallel_size,
            expert=sizes.expert_parallel_size if plan.model.num_experts else 1,
            devices_per_node=plan.hardware.devices_per_node if plan.hardware else MESH_SIZE,
            replicas=range(sizes.data_parallel_size) if replicas is None else replicas,
        )

    @property
    def stage_size(self) -> int:
        """Ranks of one stage, simulated or not."""
        return self.tensor * self.context * self.data

    @property
    def world(self) -> int:
        """Ranks of the whole job."""
        return self.stage_size * self.pipeline

    @property
    def width(self) -> int:
        """Simulated ranks of one stage."""
        return len(self.replicas) * self.context * self.tensor

    @cached_property
    def inner(self) -> Ints:
        """Rank within its stage of every simulated rank of a stage."""
        per_replica = self.tensor * self.context
        found: Ints = (np.array(self.replicas, dtype=np.int64)[:, None] * per_replica + np.arange(per_replica)).reshape(-1)
        return found

    def ranks(self, stage: int) -> Ints:
        """The simulated ranks of a stage, ascending."""
        return self.inner + stage * self.stage_size

    def position(self, rank: int) -> Position:
        """Where a rank stands."""
        stage, inner = divmod(rank, self.stage_size)
        rest, t = divmod(inner, self.tensor)
        d, c = divmod(rest, self.context)
        return Position(
            data=d,
            tensor=t,
            pipeline=stage,
            context=c if self.context > 1 else None,
            expert=(c + self.context * d) % self.expert if self.expert > 1 else None,
            node=rank // self.devices_per_node,
        )

    def size(self, kind: str) -> int:
        """Ranks of a group of this kind."""
        return {
            "tp": self.tensor,
            "cp": self.context,
            "dp": self.data * self.context,
            "ep": self.expert,
            "pp": self.pipeline,
            "world": self.world,
        }[kind]

    def group_of(self, kind: str, stage: int) -> Ints:
        """Number of the group of a kind that every simulated rank of a stage is in; equal numbers are one group."""
        t: Ints = self.inner % self.tensor
        rest: Ints = self.inner // self.tensor
        c: Ints = rest % self.context
        d: Ints = rest // self.context
        offset = stage * self.stage_size
        if kind == "tp":
            return offset + self.inner - t
        if kind == "cp":
            return offset + self.inner - c * self.tensor
        if kind == "dp":
            return offset + t
        if kind == "ep":
            place: Ints = c + self.context * d
            first: Ints = place - place % self.expert
            return offset + t + first * self.tensor
        found: Ints = self.inner if kind == "pp" else np.zeros(self.width, dtype=np.int64)
        return found

    def members(self, kind: str, group: int) -> Ints:
        """The ranks of a group, by its number (its lowest rank), in their order in the group."""
        strides = {"tp": 1, "cp": self.tensor, "dp": self.tensor, "ep": self.tensor, "pp": self.stage_size, "world": 1}
        found: Ints = group + strides[kind] * np.arange(self.size(kind), dtype=np.int64)
        return found

    def kinds(self) -> tuple[str, ...]:
        """Kinds of groups with more than one rank."""
        return tuple(kind for kind in ("tp", "cp", "ep", "dp", "pp", "world") if self.size(kind) > 1)

    def over_members(self, values: npt.NDArray[Any], kind: str, reduce: Any = np.maximum) -> npt.NDArray[Any]:
        """`reduce` over the simulated members of every group, spread to each of them; the last axis is the ranks of a stage."""
        shape = values.shape
        found = {"tp": (-1,), "cp": (-2,), "dp": (-3, -2), "ep": (-2,), "world": (-3, -2, -1), "pp": ()}[kind]
        if kind == "ep":
            places = len(self.replicas) * self.context
            inside = self.expert if places % self.expert == 0 else places
            cut = values.reshape(*shape[:-1], places // inside, inside, self.tensor)
        else:
            cut = values.reshape(*shape[:-1], len(self.replicas), self.context, self.tensor)
        if not found:
            return values
        whole = reduce.reduce(cut, axis=found, keepdims=True)
        return np.asarray(np.broadcast_to(whole, cut.shape).reshape(shape))
