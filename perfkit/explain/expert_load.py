"""Expert load: how evenly a mixture of experts spreads its tokens over the ranks of an expert group.

Tokens are the rows of the inputs of grouped matrix products, each call counted, so that a rank with twice as many computes twice as
long; they are known where shapes were recorded and all experts of a rank share one input of (tokens, features) before weights of
(experts, ., .). The bytes are those that a rank put into or took out of all-to-all exchanges, whichever is more. `*_ratio` is a
rank's part over the mean of the members of its group that were read: 1 is even. The recipe ep_load_balance of msprof-analyze asks
the same of grouped matrix products. Shapes and sizes are columns of `kernels`, `launches` and `collectives`, whose rows are in the
steps of the graph's nodes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import pandas as pd

from perfkit.core import placement
from perfkit.core.errors import NotMeasuredError
from perfkit.core.run import Run

HOW_TO_COLLECT = "record a run with experts, at level 1 or 2 on Ascend or with record_shapes=True in torch.profiler, on all ranks"
COLUMNS = (
    "rank",
    "group",
    "tokens",
    "tokens_ratio",
    "matmul_ns",
    "matmul_ratio",
    "exchanged_bytes",
    "exchanged_ratio",
    "exchange_ns",
)
_GROUPED = re.compile(r"group(?:ed)?_?(?:mat_?mul|gemm|mm)\b|group(?:ed)?matmul|moe_?gemm|fused_moe", re.IGNORECASE)
_WEIGHTS = 3
_MOST_TOKENS = 2**48
"""No rank holds as many rows: what says so is damaged, and sums of it leave int64."""


def expert_load(run: Run, *, steps: list[int] | None = None) -> pd.DataFrame:
    """One row a rank with grouped products or all-to-all exchanges, with the columns of `Run.expert_load`.

    Raises NotMeasuredError if the run has neither.
    """
    products, exchanges = _products(run, steps), _exchanges(run, steps)
    ranks = sorted({*products.index, *exchanges.index})
    if not ranks:
        raise NotMeasuredError(f"the load of experts in {run.name}", how_to_collect=HOW_TO_COLLECT)
    table = products.reindex(ranks).join(exchanges.reindex(ranks))
    groups = placement.groups(run)
    table["group"] = [_members(groups, rank, table.at[rank, "group"]) for rank in ranks]
    table = table.rename_axis("rank").reset_index()
    for column, ratio in (("tokens", "tokens_ratio"), ("matmul_ns", "matmul_ratio"), ("exchanged_bytes", "exchanged_ratio")):
        amount = table[column].astype("float64")
        mean = amount.groupby(table["group"], dropna=False).transform("mean")
        table[ratio] = amount / mean.where(mean > 0)
    return table.loc[:, list(COLUMNS)]


def tokens_of(shapes: object) -> int | None:
    """The rows of a grouped product's input, from shapes as the table `kernels` has them; None if they do not tell it."""
    sizes = [[int(size) for size in re.findall(r"\d+", shape)] for shape in str(shapes).split(";")]
    told = len(sizes) > 1 and len(sizes[0]) > 1 and len(sizes[1]) == _WEIGHTS and sizes[0][0] < _MOST_TOKENS
    return sizes[0][0] if told else None


def _products(run: Run, steps: list[int] | None) -> pd.DataFrame:
    """By rank `tokens` (null where one call does not tell them) and `matmul_ns` of its grouped products."""
    columns = ["rank", "name", "type", "duration_ns", "input_shapes"]
    rows = _grouped(run.frame("kernels", steps=steps, columns=columns), ["name", "type"])
    if rows["input_shapes"].isna().all() and "launches" in run.tables:
        asked = ["rank", "name", "operator", "duration_ns", "input_shapes"]
        rows = _grouped(run.frame("launches", steps=steps, columns=asked), ["operator", "name"])
    known = {shapes: tokens_of(shapes) for shapes in rows["input_shapes"].dropna().unique()}
    tokens = pd.array([known.get(shapes) for shapes in rows["input_shapes"]], dtype="Int64")
    groups = rows.assign(tokens=tokens).groupby("rank")
    summed = groups["tokens"].sum(min_count=1).where(groups["tokens"].count() == groups.size())
    return pd.DataFrame({"tokens": summed, "matmul_ns": groups["duration_ns"].sum()}).astype("Int64")


def _grouped(rows: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    found = pd.Series(False, index=rows.index)
    for column in names:
        wanted = [name for name in rows[column].dropna().unique() if _GROUPED.search(str(name))]
        found |= rows[column].isin(wanted)
    return rows[found.to_numpy(dtype=bool)].astype({"input_shapes": "object"})


def _exchanges(run: Run, steps: list[int] | None) -> pd.DataFrame:
    """By rank the `group` of its all-to-all exchanges, `exchanged_bytes` (null where one call has no size) and `exchange_ns`."""
    rows = run.frame("collectives", steps=steps, columns=["rank", "operation", "group", "bytes", "duration_ns"])
    rows = rows[(rows["operation"] == "all_to_all").to_numpy(dtype=bool)].astype({"group": "object"})
    groups = rows.groupby("rank")
    moved = groups["bytes"].sum(min_count=1).where(groups["bytes"].count() == groups.size())
    longest = rows.groupby(["rank", "group"])["duration_ns"].sum().reset_index().sort_values("duration_ns")
    named = longest.groupby("rank")["group"].last()
    return pd.DataFrame({"group": named, "exchanged_bytes": moved.astype("Int64"), "exchange_ns": groups["duration_ns"].sum()})


def _members(groups: Sequence[placement.Group], rank: int, name: object) -> str | None:
    """The ranks that share experts with one: its expert group, else the group of its exchanges, as text."""
    known = [group for group in groups if rank in group.members]
    chosen = [group for group in known if group.dimension == "expert"] or [group for group in known if group.name == name]
    return placement.members_text(chosen[0].members) if chosen else None if pd.isna(name) else str(name)  # type: ignore[call-overload]
