"""Operators of two runs, on two devices or one: matched by operator, shape and order, with what is missing and what is fused.

Times are those of one step and rank, means over the steps and ranks recorded. `ratio` is the time of one call in b over a.
`share_ratio` compares shares of the computing time, so it needs no scaling by the speed of the devices: above 1 an operator is
slower than its share.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from perfkit.core import robust
from perfkit.core.errors import NotMeasuredError
from perfkit.core.run import Run
from perfkit.core.units import format_entry, format_ratio
from perfkit.explain.compare._measure import FEWEST_SAMPLES
from perfkit.explain.compare._operator_names import FUSIONS, OTHER, operator_of
from perfkit.explain.compare.settings import changed

GAP_SHARE = 0.01
GAP_RATIO = 1.5
"""An operator is a gap from 1 % of the computing time on and 1.5 times its share (decision tree operator-gap)."""
UNMAPPED_SHARE = 0.10
MAX_RANKS = 4
MOST_NAMED = 3
_SHAPE_GROUP = re.compile(r"[;\]\"]+")


OPERATOR_COLUMNS = [
    "operator",
    "shape",
    "count_a",
    "count_b",
    "mean_a_ns",
    "mean_b_ns",
    "ratio",
    "a_share",
    "b_share",
    "slower_than_its_share",
]
"""What of the operators of both sides people see, a step and rank; the means are those of one call."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OperatorComparison:
    """Operators of two runs; times are ns of one step and rank, counts are calls of one step and rank.

    `operators`: `operator`, `operator_class`, `shape` ("": all that the other side has not), `count_a`, `count_b`, `total_a_ns`,
    `total_b_ns`, `mean_a_ns`, `mean_b_ns`, `ratio`, `a_share`, `b_share`, `share_ratio`, `slower_than_its_share` (and worth
    it), `beyond_noise` (null: cannot be decided), `names_a`, `names_b`; largest in b first. `classes`: the same by class. `calls`:
    the n-th call of operators that both call equally often. `missing` are operators of a that b lacks, in all or these shapes,
    `extra` those of b. `fusions`: `fused`, `fused_in`, `calls`, `fused_ns`, `parts`, `parts_ns` (of the other side, parts that it
    has more of).
    """

    operators: pd.DataFrame
    classes: pd.DataFrame
    calls: pd.DataFrame
    missing: pd.DataFrame
    extra: pd.DataFrame
    fusions: pd.DataFrame
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The document of `perfkit compare --operators`."""
        frames = ("operators", "classes", "missing", "extra", "fusions")
        return {name: _records(getattr(self, name)) for name in frames}


def compare_operators(
    a: Run, b: Run, *, ranks: tuple[Sequence[int], Sequence[int]] | None = None, noise_ratio: float = robust.NOISE_RATIO
) -> OperatorComparison:
    """Compare the computing kernels of two runs; `ranks` chooses those of a and of b (by default up to 4 of each).

    Raises NotMeasuredError if a run holds no kernels.
    """
    left, right = (_kernels(run, None if ranks is None else ranks[side]) for side, run in enumerate((a, b)))
    keyed_a, keyed_b = _keyed(left, right)
    operators = _rows(keyed_a, keyed_b, ["operator", "operator_class", "shape"], noise_ratio)
    both = operators[(operators["count_a"] > 0) & (operators["count_b"] > 0)]
    return OperatorComparison(
        operators=both.sort_values("total_b_ns", ascending=False, ignore_index=True),
        classes=_rows(keyed_a, keyed_b, ["operator_class"], noise_ratio).sort_values(
            "total_b_ns", ascending=False, ignore_index=True
        ),
        calls=_calls(keyed_a, keyed_b),
        missing=_alone(operators, "a", "b"),
        extra=_alone(operators, "b", "a"),
        fusions=_fusions(keyed_a, keyed_b),
        notes=_notes(a, b, left, right),
    )


def _kernels(run: Run, ranks: Sequence[int] | None) -> pd.DataFrame:
    """Computing kernels with `operator`, `operator_class`, `shape`, and `visit`, the number of their rank and step."""
    chosen = list(run.ranks)[:MAX_RANKS] if ranks is None else list(ranks)
    columns = ["rank", "step", "name", "type", "kind", "stream", "start_ns", "duration_ns", "input_shapes"]
    rows = run.frame("kernels", ranks=chosen, columns=columns)
    rows = rows[rows["kind"] == "computing"]
    if rows["step"].notna().any():
        rows = rows[rows["step"].notna()]
    if rows.empty:
        raise NotMeasuredError(
            f"kernels of {run.name}",
            how_to_collect="record a profile with kernel details (level 1 on Ascend, CUDA activities on GPU)",
        )
    pairs = rows[["name", "type"]].astype(object).where(rows[["name", "type"]].notna(), None)
    known = pairs.drop_duplicates()
    found = [(name, type_, *operator_of(str(name), type_)) for name, type_ in known.itertuples(index=False)]
    names = pd.DataFrame(found, columns=["name", "type", "operator", "operator_class"])
    rows = rows.assign(name=pairs["name"], type=pairs["type"]).reset_index(drop=True)
    merged = rows.merge(names, on=["name", "type"], how="left")
    if merged["input_shapes"].isna().all() and "launches" in run.tables:
        merged = _with_launches(merged, run.frame("launches", ranks=chosen))
    visit = merged.groupby(["rank", "step"], dropna=False, sort=True).ngroup()
    shape = merged["input_shapes"].astype(object).map(_plain_shape, na_action="ignore").astype(object)
    return merged.assign(visit=visit, shape=shape).sort_values(["visit", "start_ns"], kind="stable", ignore_index=True)


def _with_launches(kernels: pd.DataFrame, launches: pd.DataFrame) -> pd.DataFrame:
    """The kernels with the shapes of the operator of the host that launched them, where it is what they compute.

    What a kernel computes is told by its own name; where that says nothing, it is what the host asked for. Kernels beside it, such
    as a change of layout for a convolution, are not given its shapes.
    """
    key = ["rank", "stream", "start_ns"]
    asked = launches.dropna(subset=["operator", "start_ns"])[[*key, "operator", "input_shapes"]].astype({"stream": object})
    asked = asked.drop_duplicates(key).rename(columns={"operator": "asked", "input_shapes": "asked_shapes"})
    rows = kernels.astype({"stream": object}).merge(asked.astype({"asked": object, "asked_shapes": object}), on=key, how="left")
    known = {name: operator_of(str(name)) for name in rows["asked"].dropna().unique()}
    of_host = rows["asked"].map(lambda name: known[name].name if name in known else None).astype(object)
    group = rows["asked"].map(lambda name: known[name].operator_class if name in known else OTHER)
    told = (rows["operator_class"] == OTHER) & (group != OTHER)
    operator = rows["operator"].mask(told, of_host)
    return kernels.assign(
        operator=operator,
        operator_class=rows["operator_class"].mask(told, group),
        input_shapes=rows["asked_shapes"].where(operator == of_host),
    )


def _plain_shape(text: Any) -> str | None:
    """Shapes in one spelling, tensors split by ";": 4096,4096;4096 also for [[4096, 4096], [4096]]. Tensors without a size go."""
    tensors = [",".join(re.findall(r"\d+", tensor)) for tensor in _SHAPE_GROUP.split(str(text))]
    return ";".join(tensor for tensor in tensors if tensor) or None


def _keyed(a: pd.DataFrame, b: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Both with `shape` kept only where the other side calls the operator with that shape too."""
    found = [set(zip(frame["operator"], frame["shape"], strict=True)) for frame in (a, b)]
    both = {(operator, shape) for operator, shape in found[0] & found[1] if isinstance(shape, str)}
    first, second = (
        frame.assign(
            shape=[
                shape if (operator, shape) in both else ""
                for operator, shape in zip(frame["operator"], frame["shape"], strict=True)
            ]
        )
        for frame in (a, b)
    )
    return first, second


def _totals(frame: pd.DataFrame, keys: list[str], side: str) -> pd.DataFrame:
    visits = frame["visit"].nunique()
    groups = frame.groupby(keys, dropna=False, sort=False)
    found = groups.agg(count=("duration_ns", "size"), total=("duration_ns", "sum"), names=("name", _few)).reset_index()
    return found.assign(
        **{
            f"count_{side}": found["count"] / visits,
            f"total_{side}_ns": found["total"] / visits,
            f"mean_{side}_ns": found["total"] / found["count"],
            f"names_{side}": found["names"],
        }
    ).drop(columns=["count", "total", "names"])


def _rows(a: pd.DataFrame, b: pd.DataFrame, keys: list[str], noise_ratio: float) -> pd.DataFrame:
    merged = _totals(a, keys, "a").merge(_totals(b, keys, "b"), on=keys, how="outer")
    for side in ("a", "b"):
        for name in (f"count_{side}", f"total_{side}_ns"):
            merged[name] = merged[name].fillna(0.0)
        whole = merged[f"total_{side}_ns"].sum()
        merged[f"{side}_share"] = merged[f"total_{side}_ns"] / whole if whole else 0.0
    merged["ratio"] = merged["mean_b_ns"] / merged["mean_a_ns"]
    merged["share_ratio"] = merged["b_share"] / merged["a_share"].where(merged["a_share"] > 0)
    merged["slower_than_its_share"] = (merged["share_ratio"] >= GAP_RATIO) & (merged["b_share"] - merged["a_share"] >= GAP_SHARE)
    spread = [_by_visit(frame, keys) for frame in (a, b)]
    decided = [_beyond(spread, key, noise_ratio) for key in _key_tuples(merged, keys)]
    merged["beyond_noise"] = pd.Series(decided, index=merged.index, dtype=object)
    return merged


def _by_visit(frame: pd.DataFrame, keys: list[str]) -> dict[tuple[Any, ...], Any]:
    """Total of every step and rank by key; steps in which an operator does not run count 0."""
    visits = sorted(frame["visit"].unique())
    sums = frame.groupby([*keys, "visit"], dropna=False, sort=False)["duration_ns"].sum().reset_index()
    found: dict[tuple[Any, ...], Any] = {}
    for key, row in zip(_key_tuples(sums, keys), sums.to_dict("records"), strict=True):
        found.setdefault(key, dict.fromkeys(visits, 0))[row["visit"]] = row["duration_ns"]
    return {key: np.array(list(values.values()), dtype=np.float64) for key, values in found.items()}


def _key_tuples(frame: pd.DataFrame, keys: list[str]) -> list[tuple[Any, ...]]:
    return [tuple(None if pd.isna(value) else value for value in row) for row in frame[keys].itertuples(index=False)]


def _beyond(spread: list[dict[tuple[Any, ...], Any]], key: tuple[Any, ...], noise_ratio: float) -> bool | None:
    sides = [side[key] for side in spread if key in side]
    if len(sides) < 2 or any(len(side) < FEWEST_SAMPLES for side in sides):
        return None
    medians = [float(np.median(side)) for side in sides]
    mads = [robust.mad(side) for side in sides]
    low, high = sorted(medians)
    count = min(len(side) for side in sides)
    return robust.is_real_change(low, high, num_samples=count, median_abs_devs=mads, noise_ratio=noise_ratio)


def _calls(a: pd.DataFrame, b: pd.DataFrame) -> pd.DataFrame:
    """The n-th call in a step, of operators that every step of both sides calls equally often: means over steps."""
    numbered = []
    for frame in (a, b):
        order = frame.groupby(["visit", "operator"], sort=False).cumcount()
        numbered.append(frame.assign(call=order).groupby(["operator", "call"], sort=False)["duration_ns"].agg(["mean", "size"]))
    counts = [frame.groupby(["operator", "visit"]).size().groupby("operator").agg(["min", "max"]) for frame in (a, b)]
    even = counts[0].merge(counts[1], left_index=True, right_index=True, suffixes=("_a", "_b"))
    even = even[(even["min_a"] == even["max_a"]) & (even["min_b"] == even["max_b"]) & (even["min_a"] == even["min_b"])]
    joined = numbered[0].merge(numbered[1], left_index=True, right_index=True, suffixes=("_a", "_b")).reset_index()
    joined = joined[joined["operator"].isin(even.index)]
    found = joined.rename(columns={"mean_a": "mean_a_ns", "mean_b": "mean_b_ns"})[["operator", "call", "mean_a_ns", "mean_b_ns"]]
    return found.assign(ratio=found["mean_b_ns"] / found["mean_a_ns"].where(found["mean_a_ns"] > 0)).reset_index(drop=True)


def _alone(operators: pd.DataFrame, side: str, other: str) -> pd.DataFrame:
    rows = operators[(operators[f"count_{other}"] == 0) & (operators[f"count_{side}"] > 0)]
    own = {f"count_{side}": "count", f"total_{side}_ns": "total_ns", f"{side}_share": "share", f"names_{side}": "names"}
    renamed = rows[["operator", "operator_class", "shape", *own]].rename(columns=own)
    return renamed.sort_values("total_ns", ascending=False, ignore_index=True)


def _fusions(a: pd.DataFrame, b: pd.DataFrame) -> pd.DataFrame:
    """Fused operators that one side has more of, while the other has more of the operators that do the same one by one."""
    sides = {"a": _plain_totals(a), "b": _plain_totals(b)}
    rows = []
    for fused, parts in FUSIONS:
        counts = {side: totals.get(fused, (0.0, 0.0))[0] for side, totals in sides.items()}
        if counts["a"] == counts["b"]:
            continue
        here, there = ("a", "b") if counts["a"] > counts["b"] else ("b", "a")
        more = {}
        for part in parts:
            count, total = sides[there].get(part, (0.0, 0.0))
            excess = count - sides[here].get(part, (0.0, 0.0))[0]
            if excess > 0:
                more[part] = (excess, total * excess / count)
        # One excess operator may have any reason; half of the parts, and as many calls as of the fused one, are a pattern.
        enough = len(more) >= (len(parts) + 1) // 2 and sum(calls for calls, _ in more.values()) >= counts[here] - counts[there]
        if enough:
            calls, total = sides[here][fused]
            rows.append(
                {
                    "fused": fused,
                    "fused_in": here,
                    "calls": calls - counts[there],
                    "fused_ns": total * (calls - counts[there]) / calls,
                    "parts": ", ".join(f"{format_entry(count)} x {part}" for part, (count, _) in more.items()),
                    "parts_ns": sum(time for _, time in more.values()),
                }
            )
    return pd.DataFrame(rows, columns=["fused", "fused_in", "calls", "fused_ns", "parts", "parts_ns"])


def _plain_totals(frame: pd.DataFrame) -> dict[str, tuple[float, float]]:
    """Calls and ns of a step by operator, forward and backward together."""
    visits = frame["visit"].nunique()
    plain = frame["operator"].str.removesuffix(" backward")
    found = frame["duration_ns"].groupby(plain).agg(["size", "sum"])
    return {str(row["operator"]): (row["size"] / visits, row["sum"] / visits) for row in found.reset_index().to_dict("records")}


def _notes(a: Run, b: Run, left: pd.DataFrame, right: pd.DataFrame) -> tuple[str, ...]:
    notes = []
    for run, frame in ((a, left), (b, right)):
        unknown = frame.loc[frame["operator_class"] == OTHER, "duration_ns"].sum() / max(int(frame["duration_ns"].sum()), 1)
        if unknown > UNMAPPED_SHARE:
            notes.append(
                f"{format_ratio(unknown)} of the computing time of {run.name} has names of no known operator: low confidence"
            )
        if frame["shape"].isna().all():
            notes.append(f"{run.name} records no shapes: operators are matched by name and order")
    differing = [row for row in changed(a, b) if row["group"] in ("architecture", "data and batch")]
    if differing:
        listed = ", ".join(f"{row['key']} {row['old']} and {row['new']}" for row in differing[:5])
        notes.append(f"the runs do not do the same work: {listed}")
    notes.append("hardware counters of single operators are not part of these recordings: not measured")
    return tuple(notes)


def _few(names: pd.Series[Any]) -> str:
    found = list(dict.fromkeys(str(name) for name in names.unique()))
    return "; ".join(found[:3]) + (f"; and {len(found) - 3} more" if len(found) > 3 else "")


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [
        {str(key): None if value is None or value is pd.NA or value != value else value for key, value in row.items()}  # noqa: PLR0124
        for row in frame.to_dict("records")
    ]


def by_operator(found: OperatorComparison) -> pd.DataFrame:
    """One row an operator, all shapes together, largest difference first.

    `operator`, `count_a`, `count_b`, `a_share`, `b_share` of the computing time, `times` (share in a over share in b, null where
    b has none) and `slower` (than its share in b).
    """
    columns = ["count_a", "count_b", "a_share", "b_share"]
    rows = found.operators.groupby("operator", sort=False)[columns].sum().astype("float64").reset_index()
    both = (rows["count_a"] > 0) & (rows["count_b"] > 0)
    rows = rows.assign(times=(rows["a_share"] / rows["b_share"]).where(both & (rows["b_share"] > 0)))
    slower = both & (rows["times"] >= GAP_RATIO) & (rows["a_share"] - rows["b_share"] >= GAP_SHARE)
    rows = rows.assign(slower=slower, apart=(rows["a_share"] - rows["b_share"]).abs())
    return rows.sort_values("apart", ascending=False, kind="stable", ignore_index=True).drop(columns="apart")


def slower_told(found: OperatorComparison, other: str) -> str:
    """What is slower here than its share in the run named `other`, and what is fused there and in parts here."""
    slower = by_operator(found).query("slower").sort_values("a_share", ascending=False)
    named = [
        f"{row['operator']} ({format_ratio(row['a_share'])} of the computing time here, {format_ratio(row['b_share'])} there)"
        for row in slower.head(MOST_NAMED).to_dict("records")
    ]
    more = f" and {len(slower) - MOST_NAMED} more" if len(slower) > MOST_NAMED else ""
    told = (
        f"Beside {other}, slower here than their share: {', '.join(named)}{more}."
        if named
        else f"Beside {other}, no operator takes {format_entry(GAP_RATIO)} times its share."
    )
    fused = [str(row["fused"]) for row in found.fusions.to_dict("records") if row["fused_in"] == "b"]
    return told + (f" Fused there and in parts here: {', '.join(fused)}." if fused else "")
