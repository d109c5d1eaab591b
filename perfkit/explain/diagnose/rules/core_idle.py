"""The device stands still between two computing kernels although the next one was launched before.

What is measured: times of at least 20 us inside steps, on up to two ranks, between two kernels that compute, with nothing on any
stream, whose next kernel had been launched before they began. The host is not to blame then, nor a peer: neither a launch nor a
message was waited for. Times that the host is to blame for are `host-bound`, `host-pause` and `data-feed`.

What to do: look for waits between streams (events) and for operators on the AI CPU that were not recorded; compare versions of
driver and framework; report it with the recording.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from perfkit.core.errors import NotMeasuredError
from perfkit.core.texts import say
from perfkit.explain.diagnose import host, work
from perfkit.explain.diagnose import who as _who
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.collecting import HOST_BY
from perfkit.explain.diagnose.rule import Finding, Rule, Threshold, Verdict

CORE_IDLE_SHARE = Threshold("core-idle-share", 0.02, "share of the step", "chosen: 2 % of the step")
CORE_IDLE_LEAST = Threshold("core-idle-least", 2e4, "ns", "chosen: 20 us; longer than a switch between streams")

ACTIONS = (
    "look for waits between streams (events) before the named kernels in the timeline",
    "record with a higher level: operators on the AI CPU or in other streams may be missing",
    "report it with the recording if nothing explains it (export the finding on page 20)",
)


def check(case: Case) -> Verdict:
    """Times in which nothing runs though work was queued."""
    found = {rank: gaps for rank in host.busiest(case) if (gaps := _unexplained(case, rank)) is not None}
    if not found:
        raise NotMeasuredError("when kernels were launched", how_to_collect=HOST_BY)
    steps = case.num_kernel_steps
    idle = {rank: float(gaps["duration_ns"].sum()) / steps for rank, gaps in found.items()}
    rank = max(idle, key=lambda known: idle[known])
    share = idle[rank] / (case.step_ns or 1)
    evidence = {"idle_with_work_queued_ns": idle[rank], "idle_with_work_queued_share": share, "num_gaps": float(len(found[rank]))}
    if share < case.limit(CORE_IDLE_SHARE):
        return Verdict((), evidence)
    gaps = found[rank]
    who = _who.devices((rank,), case)
    finding = Finding(
        rule=RULE.name,
        title=say("{who} {idle_with_work_queued_ns} of the mean step with work in its queue", who=who("idles", "idle"), **evidence),
        subject={"ranks": (rank,), "operators": tuple(str(name) for name in gaps["next"].astype(str).value_counts().index[:3])},
        evidence={**evidence, "median_gap_ns": float(gaps["duration_ns"].median())},
        actions=ACTIONS,
        cost_ns=work.won_ns(case, gaps),
        next=("14_timeline",),
        part="free",
    )
    return Verdict((finding,), evidence)


def _unexplained(case: Case, rank: int) -> pd.DataFrame | None:
    """Gaps between computing kernels whose next kernel was launched before they began, with its name (`next`)."""
    rows = host.launches(case, rank)
    if rows is None or rows["launch_duration_ns"].isna().all():
        return None
    rows = rows.drop_duplicates("start_ns")
    launched = rows["launch_ns"] + rows["launch_duration_ns"].fillna(0)
    gaps = case.gaps[(case.gaps["rank"] == rank).to_numpy() & ~case.gaps["lead"].to_numpy(dtype=bool)]
    gaps = gaps[(gaps["duration_ns"] >= case.limit(CORE_IDLE_LEAST)).to_numpy(dtype=bool)]
    gaps = gaps[((gaps["after"] == "computing") & (gaps["before"] == "computing")).to_numpy(dtype=bool)]
    ends = gaps["start_ns"].astype("int64") + gaps["duration_ns"].astype("int64")
    at = pd.Index(rows["start_ns"].to_numpy(dtype=np.int64)).get_indexer(ends.to_numpy())
    known = at >= 0
    early = np.zeros(len(gaps), dtype=bool)
    early[known] = launched.to_numpy(dtype=np.int64)[at[known]] <= gaps["start_ns"].to_numpy(dtype=np.int64)[known]
    names = rows["name"].astype("object").to_numpy()[at[early]]
    found: pd.DataFrame = gaps[early].assign(next=names)
    return found


RULE = Rule(
    "core-idle", "Idle though work is queued", frozenset({"steps", "kernels"}), HOST_BY, (CORE_IDLE_SHARE, CORE_IDLE_LEAST), check
)
