"""Operators that take longer than in an earlier run, or single executions far beyond those of their own kind.

What is measured with a baseline run: the mean time of each operator with equal input shapes, the median over ranks, against that
of the baseline; and what the step would win if it were as before. Without a baseline: executions that take more than five times
the median of their own operator and shapes, summed. An operator that is slow everywhere and always has nothing to be compared
with in one run.

What to do: compare versions of driver, framework and operator library; look at shapes, types and formats of the named operators,
and at their hardware counters.
"""

from __future__ import annotations

import pandas as pd

from perfkit.core.texts import say
from perfkit.explain.diagnose import host, kernels, modules
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.collecting import KERNELS_BY
from perfkit.explain.diagnose.rule import Finding, Rule, Threshold, Verdict

SLOWER_RATIO = Threshold(
    "slower-ratio", 1.05, "ratio to the baseline", "chosen: mean times of equal operators differ by 2 to 4 % between repeats"
)
OUTLIER_RATIO = Threshold(
    name="outlier-ratio",
    value=5.0,
    unit="ratio to the median of its own kind",
    origin="chosen: equal kernels differ by a few percent, and by twice when a cache is cold",
)
OUTLIER_SHARE = Threshold("outlier-share", 0.01, "share of the step", "chosen: healthy bundled recordings have up to 0.9 %")

KEY = ["op", "shapes"]
MOST_RANKS = 4
"""Ranks whose host side is read for the shapes of kernels."""
ACTIONS = (
    "compare versions of driver, framework and operator library with the earlier run",
    "look at shapes, types and formats of the named operators, and at their hardware counters",
)


def check(case: Case) -> Verdict:
    """Operators slower than in the baseline, or outliers among their own kind."""
    return _outliers(case) if case.baseline is None else _against(case, Case(case.baseline, None, case.limits))


def _against(case: Case, before: Case) -> Verdict:
    now, then = _typical(case), _typical(before)
    ratio = (now / then).dropna().sort_values(ascending=False)
    evidence = {"largest_ratio_to_baseline": float(ratio.max()) if len(ratio) else 1.0, "num_operators": float(len(ratio))}
    slower = ratio[ratio >= case.limit(SLOWER_RATIO)]
    rows = _with_shapes(case.computing)
    gone = 1.0 - 1.0 / slower
    keys = pd.MultiIndex.from_frame(rows[KEY])
    rows = rows.assign(gone=gone.reindex(keys).fillna(0.0).to_numpy())
    rows = rows[rows["gone"] > 0]
    if rows.empty:
        return Verdict((), evidence)
    lost = (rows["duration_ns"] * rows["gone"]).groupby(rows["op"], observed=True).sum().sort_values(ascending=False)
    names = tuple(str(name) for name in lost.index[lost >= 0.05 * lost.sum()])
    evidence = {**evidence, "slower_ratio": float(slower.max()) - 1.0}
    finding = Finding(
        rule=RULE.name,
        title=say("{names} up to {slower_ratio} slower than in the baseline, on all ranks", names=kernels.told(names), **evidence),
        subject={"operators": names},
        evidence={**evidence, "num_slower": float(len(slower))},
        actions=ACTIONS,
        cost_ns=kernels.won_ns(case, rows, rows["gone"]),
        next=("12_operators", "21_compare"),
        part="computing",
    )
    beyond = rows["duration_ns"] - then.reindex(pd.MultiIndex.from_frame(rows[KEY])).to_numpy(dtype=float)
    return Verdict((modules.told(finding, case, rows, beyond.clip(lower=0)),), evidence)


def _typical(case: Case) -> pd.Series:
    """The mean time of an execution by operator and shapes, the median over ranks."""
    rows = _with_shapes(case.computing)
    means = rows.groupby(["rank", *KEY], observed=True)["duration_ns"].mean()
    typical: pd.Series = means.groupby(level=KEY, observed=True).median()
    return typical


def _with_shapes(rows: pd.DataFrame) -> pd.DataFrame:
    shapes = rows["input_shapes"].astype("object")
    return rows.assign(op=rows["op"].astype("object"), shapes=shapes.where(shapes.notna(), ""))


def _outliers(case: Case) -> Verdict:
    verdict = _among_equals(case, case.computing)
    if not verdict.findings or case.computing["input_shapes"].notna().any():
        return verdict
    # Executions under one name may have differed in shapes, which only the host side tells; it is read when it matters.
    ranks = verdict.findings[0].subject["ranks"][:MOST_RANKS]
    shaped = host.with_shapes(case, case.computing, ranks)
    return verdict if shaped["input_shapes"].isna().all() else _among_equals(case, shaped)


def _among_equals(case: Case, rows: pd.DataFrame) -> Verdict:
    rows = _with_shapes(rows)
    # Where shapes were not recorded, what has one name is of one kind: MindSpore's names say which layer it is.
    named = rows["name"].astype("object").astype(str).str.replace(r"#\d+$", "", regex=True)
    rows = rows.assign(shapes=rows["shapes"].where(rows["shapes"] != "", named))
    typical = rows.groupby(["rank", *KEY], observed=True)["duration_ns"].transform("median")
    ratio = rows["duration_ns"] / typical.clip(lower=1.0)
    out = rows[(ratio >= case.limit(OUTLIER_RATIO)) & (rows["duration_ns"] >= 10_000)]
    # Kinds of which many differ are several kinds under one name, such as loops over shapes that were not recorded.
    sizes = rows.groupby(KEY, observed=True)["duration_ns"].transform("size").reindex(out.index)
    rare = out.groupby(KEY, observed=True)["duration_ns"].transform("size") <= 0.02 * sizes
    out = out[rare.to_numpy(dtype=bool)]
    share = kernels.share_of_step(case, out)
    evidence = {"outliers_share": share, "largest_ratio_to_own_kind": float(ratio.max())}
    if share < case.limit(OUTLIER_SHARE):
        return Verdict((), evidence)
    names = kernels.largest(out)
    finding = Finding(
        rule=RULE.name,
        title=say(
            "{count} executions of {names} take over {times} times what equal ones take in the median",
            count=len(out),
            names=kernels.told(names),
            times=case.limit(OUTLIER_RATIO),
        ),
        subject={"operators": names, "ranks": tuple(sorted(int(rank) for rank in out["rank"].unique()))},
        evidence={**evidence, "num_outliers": float(len(out))},
        actions=ACTIONS,
        cost_ns=kernels.won_ns(case, out, 1.0 - 1.0 / ratio.loc[out.index]),
        next=("12_operators", "14_timeline"),
        part="computing",
    )
    beyond = out["duration_ns"] * (1.0 - 1.0 / ratio.loc[out.index])
    return Verdict((modules.told(finding, case, out, beyond),), evidence)


RULE = Rule(
    name="slow-operators",
    title="Operators that became slow",
    needs=frozenset({"steps", "kernels"}),
    how_to_collect=KERNELS_BY,
    thresholds=(SLOWER_RATIO, OUTLIER_RATIO, OUTLIER_SHARE),
    check=check,
    explains=frozenset({"jitter"}),
)
