"""The device waits for the host to launch the next kernel, again and again.

What is measured: where launches were recorded, what the ledger holds of idle times inside steps as late launches; else short
times (under a millisecond) in which the device does nothing and then starts a kernel. Those may be the device's own: in bundled
recordings with launches 0 to 74 % of them are, so that without launches the finding names the idle time alone, as the ledger does.
A finding needs both: at least 5 % of the step, of one rank or lost by several in turn, and many kernels that were waited for: one
of ten, or, where twice that share is lost, idle times as even as twenty equal ones.
Where launches were recorded, the evidence says how many of those kernels started as soon as they were launched, and the ranks
named are those whose own hosts are too slow, also while others make them wait. Steps in which launches are much later than in the
others are named, and what follows from calls that wait for the device is `frequent-sync`. What the prediction of the run's plan
waits for launches is no finding.

What to do: fewer and larger kernels (fused operators, jit, graphs), no synchronising calls inside the step, in-place operators,
bind the process to CPUs of its own; switch off deterministic and synchronous modes that are left from debugging.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from perfkit.core.texts import say
from perfkit.explain.diagnose import blocking, launching, planned, who, work
from perfkit.explain.diagnose.advice import BIND, RECORD_HOST, Action, fitting
from perfkit.explain.diagnose.blocking import SYNC_CALLS
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.collecting import KERNELS_BY
from perfkit.explain.diagnose.episodes import EPISODE_SHARE, episode_of, price_ns, together
from perfkit.explain.diagnose.launching import GAP_LEAST
from perfkit.explain.diagnose.rule import Finding, Rule, Threshold, Verdict
from perfkit.explain.diagnose.thresholds import MEDIUM_SHARE

HOST_BOUND_SHARE = Threshold(
    name="host-bound-share",
    value=0.05,
    unit="share of the step",
    origin="chosen: healthy bundled recordings idle for up to 1.8 % of the step before launches, faulty ones for 12 % and more",
)
HOST_BOUND_KERNELS = Threshold(
    name="host-bound-kernels",
    value=0.1,
    unit="share of kernels with an idle device before them",
    origin="chosen: one kernel of ten waited for is a pattern; faulty bundled recordings have 40 % and more",
)
HOST_BOUND_TIMES = Threshold(
    name="host-bound-times",
    value=20,
    unit="equal idle times a step, where they are twice the least share",
    origin="chosen: a pause, or a read that comes late, is one or two; a host that is slow for 15 % of a bundled step leaves 59",
)

ALIKE = 0.2
"""Ranks that wait this much of what the worst one waits wait for the same reason: who is late in a group varies."""
EQUALLY_SLOW = 0.7
"""The pace of launches, relative to the slowest host's, from which a host is slow itself."""
QUEUED_NS = 20_000
"""A kernel that starts this soon after its launch was not queued."""
SEEN = (
    ("waits", "wait"),
    "{who} {idle_ns} of the mean step for launches",
    "{who} for launches, up to {idle_ns} of the mean step",
    "{who} {in_these_steps_ns} for launches {when}, {usual_ns} in the others (means)",
)
UNSEEN = (
    ("idles", "idle"),
    "{who} {idle_ns} of the mean step shortly before kernels: the host or the device itself, launches were not recorded",
    "{who} shortly before kernels, up to {idle_ns} of the mean step: the host or the device itself, launches were not recorded",
    "{who} {in_these_steps_ns} shortly before kernels {when}, {usual_ns} in the others (means): launches were not recorded",
)
"""Verbs, and titles of one rank, of several, and of some steps: where launches were recorded, and where they were not."""
ACTIONS: tuple[Action, ...] = (
    {
        "mindspore": "make kernels fewer and larger: graphs (mode: 0, jit_level: O1), fused operators, larger micro batches",
        "megatron": "make kernels fewer and larger: larger --micro-batch-size, --transformer-impl transformer_engine or the fused "
        "operators of MindSpeed",
        "torch_npu": "make kernels fewer and larger: fused operators of torch_npu, larger micro batches; launch from a second "
        "thread: TASK_QUEUE_ENABLE=2",
        "torch": 'make kernels fewer and larger: fused operators, larger micro batches, torch.compile(mode="reduce-overhead"), '
        "which replays graphs of kernels",
    },
    "remove synchronising calls from the step, and print or log every n-th step only",
    {
        "mindspore": "switch off pynative_synchronize, deterministic and MS_DEV_LAUNCH_BLOCKING",
        "torch_npu": "switch off ASCEND_LAUNCH_BLOCKING and deterministic modes, and compile no operators while training: "
        "torch.npu.set_compile_mode(jit_compile=False)",
        "torch": "switch off CUDA_LAUNCH_BLOCKING and deterministic modes",
    },
    BIND,
)

EPISODE_ACTIONS: tuple[Action, ...] = (
    "look at the load of the host at the time of those steps: other processes, logging, evaluation, a dataset that refills",
    BIND,
)


def check(case: Case) -> Verdict:
    """Ranks whose device idles shortly before many kernels."""
    short = _without_blocking(case, launching.waits(case))
    findings, short = _in_some_steps(case, short)
    lasting = _lasting(case, short)
    return replace(lasting, findings=(*lasting.findings, *findings))


def _lasting(case: Case, short: pd.DataFrame) -> Verdict:
    """Ranks whose device idles shortly before many kernels in all steps."""
    step_ns = case.step_ns or 1
    idle = short.groupby("rank")["duration_ns"].sum() / case.num_kernel_steps
    waited = (short.groupby("rank")["left"].sum() / case.kernels.groupby("rank").size()).fillna(0.0)
    evidence = {
        "largest_idle_share": float(idle.max() / step_ns) if len(idle) else 0.0,
        "largest_kernels_waited_for_share": float(waited.max()) if len(waited) else 0.0,
    }
    lost_much = idle >= 2 * case.limit(HOST_BOUND_SHARE) * step_ns
    often = (waited >= case.limit(HOST_BOUND_KERNELS)) | (lost_much & (_equal_times(case, short) >= case.limit(HOST_BOUND_TIMES)))
    if not _passes(case, idle, often.reindex(idle.index, fill_value=False), short):
        return Verdict((), evidence)
    planned_ns = planned.predicted_ns(case, "free")
    if planned_ns is not None and idle.max() <= planned.AS_PLANNED * planned_ns:
        return Verdict((), {**evidence, "planned_idle_ns": planned_ns})
    named = _named(case, idle)
    worst = int(str(idle.idxmax()))
    at_once = _started_at_once(case, worst)
    verbs, one, many, _ = UNSEEN if at_once is None else SEEN
    lengths = case.computing.loc[case.computing["rank"].isin(named), "duration_ns"]
    removed = pd.concat([short, launching.leads_after_loading(case, named)], ignore_index=True)
    return Verdict(
        (
            Finding(
                rule=RULE.name,
                title=say(one if len(named) == 1 else many, who=who.devices(named, case)(*verbs), idle_ns=float(idle.max())),
                subject={"ranks": named},
                evidence={
                    **evidence,
                    "idle_ns": float(idle.max()),
                    "kernels_waited_for_share": float(waited[worst]),
                    "median_kernel_ns": float(lengths.median()),
                    **({} if at_once is None else {"started_at_launch_share": at_once}),
                },
                actions=fitting(case, ACTIONS if at_once is not None else (RECORD_HOST, *ACTIONS)),
                cost_ns=work.won_ns(case, removed, alone=True),
                next=("14_timeline", "frequent-sync"),
                part="free",
                loss=work.loss(removed, alone=True),
                apart_from=frozenset({"frequent-sync"} if _known_to_block(case, worst) else ()),
            ),
        ),
        evidence,
    )


def _known_to_block(case: Case, rank: int) -> bool:
    """Whether what follows from calls of a rank that wait for the device is known, and left out."""
    return case.moments is not None and not case.unmarked and blocking.calls(case, rank) is not None


def _without_blocking(case: Case, short: pd.DataFrame) -> pd.DataFrame:
    """The idle times without what follows from calls that wait for the device, where those are many: that is `frequent-sync`.

    `left` is the share of each that is not, and counts as so much of a kernel that is waited for.
    """
    if case.unmarked:
        return short.assign(left=1.0)
    left = short["duration_ns"].astype("float64")
    for rank, lost_ns in blocking.lost_by_step(case).items():
        for step in lost_ns.index[(blocking.by_step(case, rank) >= case.limit(SYNC_CALLS)).to_numpy(dtype=bool)]:
            own = ((short["rank"] == rank) & (short["step"] == step)).to_numpy(dtype=bool)
            left = left.mask(own, left * (1.0 - min(1.0, float(lost_ns[step]) / max(1.0, float(left[own].sum())))))
    return short.assign(duration_ns=left.round().astype("int64"), left=left / short["duration_ns"])


def _in_some_steps(case: Case, short: pd.DataFrame) -> tuple[list[Finding], pd.DataFrame]:
    """Ranks whose launches are late in some steps; and the idle times without what those have beyond the other steps."""
    least_ns = case.limit(EPISODE_SHARE) * (case.step_ns or 1)
    table = short.pivot_table(index="rank", columns="step", values="duration_ns", aggfunc="sum", fill_value=0.0)
    table = table.reindex(columns=list(case.kernel_steps), fill_value=0.0).astype("float64")
    for rank, step in launching.stopped_steps(case).intersection(pd.MultiIndex.from_product([table.index, table.columns])):
        table.loc[rank, step] = np.nan
    found = {int(rank): episode for rank in table.index if (episode := episode_of(table.loc[rank], least_ns)) is not None}
    findings = []
    gone = pd.Series(0.0, index=short.index)
    for steps, ranks in together(found):
        inside = {rank: float(table.loc[rank].reindex(list(steps)).to_numpy(dtype=float).mean()) for rank in ranks}
        rows = short[short["rank"].isin(ranks) & short["step"].isin(steps)]
        beyond = rows["rank"].map({rank: 1.0 - found[rank].usual / inside[rank] for rank in ranks}).astype("float64")
        worst = max(inside, key=inside.__getitem__)
        cost_ns = price_ns(case, steps, work.won_ns(case, rows, fraction=beyond, alone=True))
        if cost_ns < case.limit(MEDIUM_SHARE) * (case.step_ns or 1):
            continue
        gone.loc[rows.index] = beyond
        evidence = found[worst].evidence(table.T[worst], table.shape[1])
        verbs, _, _, title = UNSEEN if _started_at_once(case, worst) is None else SEEN
        findings.append(
            Finding(
                rule=RULE.name,
                title=say(
                    title,
                    who=who.devices(ranks, case)(*verbs),
                    when=found[worst].told(table.shape[1]),
                    **evidence,
                ),
                subject={"ranks": ranks, "steps": steps},
                evidence=evidence,
                actions=fitting(case, EPISODE_ACTIONS),
                cost_ns=cost_ns,
                next=("14_timeline",),
                part="free",
            )
        )
    rest = (short["duration_ns"] * (1.0 - gone)).round().astype("int64")
    return findings, short.assign(duration_ns=rest)


def _equal_times(case: Case, short: pd.DataFrame) -> pd.Series:
    """By rank how many equal idle times a step would be as even as its own: the square of the sum over the sum of squares."""
    lengths = short["duration_ns"].astype("float64")
    sums, squares = (part.groupby(short["rank"]).sum() for part in (lengths, lengths**2))
    return (sums**2 / squares.where(squares > 0)).fillna(0.0) / case.num_kernel_steps


def _passes(case: Case, idle: pd.Series, often: pd.Series, short: pd.DataFrame) -> bool:
    """Whether one of the ranks that wait `often` idles enough, or several in turn, so that the step loses as much."""
    least_ns = case.limit(HOST_BOUND_SHARE) * (case.step_ns or 1)
    if not often.any() or idle.max() < ALIKE * least_ns:
        return False
    return bool((often & (idle >= least_ns)).any()) or work.won_ns(case, short, alone=True) >= least_ns


def _named(case: Case, idle: pd.Series) -> tuple[int, ...]:
    """The ranks whose own hosts launch too slowly; where launches were not recorded, those whose devices idle."""
    own = {rank: launching.own_idle_ns(case, rank) for rank in case.detail_ranks}
    most = max((amount for amount in own.values() if amount is not None), default=0.0)
    idles = set(idle.index[(idle >= ALIKE * idle.max()).to_numpy()])
    # A host with a full queue launches when its device goes on: what is late then is late for the rank that all wait for.
    pace = {rank: launching.pace_ns(case, rank) for rank, amount in own.items() if amount is not None and amount >= ALIKE * most}
    slowest_ns = max(pace.values(), default=0.0)
    own = {rank: 0.0 if pace.get(rank, slowest_ns) < EQUALLY_SLOW * slowest_ns else amount for rank, amount in own.items()}
    slow = (rank for rank, amount in own.items() if (rank in idles if amount is None or not most else amount >= ALIKE * most))
    return tuple(sorted(slow))


def _started_at_once(case: Case, rank: int) -> float | None:
    """The share of a rank's kernels that started as soon as they were launched; None if launches were not recorded."""
    if "launches" not in case.run.tables:
        return None
    rows: pd.DataFrame = case.run.frame("launches", ranks=[rank], columns=("start_ns", "launch_ns", "launch_duration_ns"))
    rows = rows.dropna()
    if rows.empty:
        return None
    columns = {str(name): rows[name].to_numpy(dtype=np.int64) for name in rows.columns}
    after = columns["start_ns"] - columns["launch_ns"] - columns["launch_duration_ns"]
    return float((after < QUEUED_NS).mean())


RULE = Rule(
    name="host-bound",
    title="The device waits for launches",
    needs=frozenset({"steps", "kernels"}),
    how_to_collect=KERNELS_BY,
    thresholds=(HOST_BOUND_SHARE, HOST_BOUND_KERNELS, HOST_BOUND_TIMES, GAP_LEAST, SYNC_CALLS, EPISODE_SHARE),
    check=check,
    explains=frozenset({"frequent-sync", "jitter", "core-idle", "gradient-allreduce-tail"}),
)
