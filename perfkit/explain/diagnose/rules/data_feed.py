"""Steps wait for data: the device has nothing to do before the first operator of a step.

What is measured: the time before the first device operator of each step (the step interval), by rank; from kernels, or as a step
trace states it. Where the host was recorded, idle times inside a step that a data loader fills count too (a recording without
marks of steps is one step), and how much of all is in the loader says whether it is data that the step waits for. It is a finding
where the mean over steps is at least 2 % of the step and a millisecond, and then names the ranks whose interval is long. Ranks that
wait for those in their first collective are not named. An input that is slow in some steps counts with its mean, and those
steps are named. Where sizes of
data queues were recorded, they say which part of the input is too slow.

What to do: more workers for the dataset, a larger prefetch, faster storage, cheaper transformations; code between iterator and
network belongs into the dataset. A profiler without queues can only say that the step waits.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from perfkit.core.errors import NotMeasuredError
from perfkit.core.texts import say
from perfkit.explain.data_feed import GRAIN_NS, Feed, judge_feed
from perfkit.explain.diagnose import host, launching, work
from perfkit.explain.diagnose.advice import Action, fitting
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.collecting import KERNELS_BY, STEPS_BY
from perfkit.explain.diagnose.episodes import EPISODE_SHARE, episode_of, price_ns, together
from perfkit.explain.diagnose.host import FEED_LEAST
from perfkit.explain.diagnose.rule import Finding, Loss, Rule, Threshold, Verdict
from perfkit.explain.diagnose.source_lines import called_from
from perfkit.explain.diagnose.thresholds import MEDIUM_SHARE
from perfkit.explain.ledger import at_work_ns, causes
from perfkit.record.overlap import Intervals

FEED_SHARE = Threshold(
    name="feed-share",
    value=0.02,
    unit="share of the step",
    origin="chosen: healthy bundled recordings have intervals of up to 2.4 % that last under 3.5 ms; faulty ones 8.5 % and more",
)

MOST_RANKS = 64
CAUSES = {
    "processing": "processing the data is too slow",
    "transfer": "the transfer to the device is too slow",
    "getnext": "GetNext itself is slow",
    "host": "the data wait, so the host is late for another reason",
}
"""Causes that queues can tell, by their names in `trace.data_feed`."""
ACTIONS: tuple[Action, ...] = (
    {
        "mindspore": "raise num_parallel_workers and prefetch_size of train_dataset, and set numa_enable: True",
        "megatron": "raise the workers of the dataset: --num-workers, 2 unless given",
        "torch": "raise num_workers and prefetch_factor of the DataLoader, with persistent_workers=True and pin_memory=True",
    },
    "move code between iterator and network into the dataset, and cache what does not change",
    "check storage and the load of the host of the named ranks",
)

OWN_CODE: tuple[Action, ...] = (
    "time the code between iterator and network (page 16), and move it into the dataset or behind the launches of the step",
    "look at the host at the start of steps in the timeline",
)
FEW_CUTS = 3
"""Largest drops between the waits of ranks, after one of which the late ones end."""
LATE = (causes.LAUNCHING, causes.LATENCY, causes.BLOCKING)
APART = 2.0
"""What some ranks have beyond the other late ones is their own if it wins so many times what is worth a finding."""
MOST = 0.5
"""The fewest ranks that explain half of what all of the late ones would win are named."""
UNLOADED = 0.1
"""Idle times that a data loader fills to less than this share are no waits for data."""


def check(case: Case) -> Verdict:
    """Ranks whose device idles at the start of steps."""
    if not case.run.has("kernels") or not case.idle_known:
        return _by_step_trace(case)
    # Idle times before steps, and those inside that a data loader fills.
    leads = _apart_from_launching(case, case.gaps[case.gaps["lead"].to_numpy(dtype=bool) | host.loading(case)])
    step_ns = case.step_ns or 1
    means = _by_step(leads).mean(axis=1)
    evidence = {
        "largest_interval_ns": float(means.max()) if len(means) else 0.0,
        "largest_interval_share": float(means.max() / step_ns) if len(means) else 0.0,
    }
    if len(case.step_numbers) < 2 and evidence["largest_interval_ns"] < GRAIN_NS:
        # One step that begins with its first kernel: what the device did before it is not in the recording.
        raise NotMeasuredError("when the step began", how_to_collect=STEPS_BY)
    bar_ns = max(case.limit(FEED_SHARE) * step_ns, case.limit(FEED_LEAST))
    if means.empty or means.max() < bar_ns:
        return Verdict((), evidence)
    longer, leads = _longer_in_some_steps(case, leads, bar_ns)
    lasting = _of_all_steps(case, leads, bar_ns, evidence)
    return Verdict((*longer, *lasting), evidence)


def _of_all_steps(case: Case, leads: pd.DataFrame, bar_ns: float, evidence: dict[str, float]) -> tuple[Finding, ...]:
    """What ranks wait for in all steps, or in some that the others do not wait in."""
    means = _by_step(leads).mean(axis=1)
    if means.max() < bar_ns:
        return ()
    late = _late(means, bar_ns)
    named = _named(case, leads, means, late, bar_ns)
    rest = tuple(rank for rank in late if rank not in named)
    finding, cost_ns = _finding(case, leads, named, bar_ns, evidence, beside=rest)
    if not rest:
        return (finding,)
    both, both_ns = _finding(case, leads, tuple(late), bar_ns, evidence)
    return finding, replace(both, subject={**both.subject, "ranks": rest}, cost_ns=max(0, both_ns - cost_ns))


def _longer_in_some_steps(case: Case, leads: pd.DataFrame, bar_ns: float) -> tuple[list[Finding], pd.DataFrame]:
    """Ranks that wait in every step, and longer in few; and the intervals without what those few have beyond the others."""
    table, step_ns = _by_step(leads), case.step_ns or 1
    least_ns = max(case.limit(EPISODE_SHARE) * step_ns, case.limit(FEED_LEAST))
    found = {int(str(rank)): episode for rank in table.index if (episode := episode_of(table.loc[rank], least_ns)) is not None}
    found = {rank: one for rank, one in found.items() if 2 * len(one.steps) <= table.shape[1]}
    findings, left = [], pd.Series(1.0, index=leads.index)
    for steps, ranks in together(found):
        if max(found[rank].usual for rank in ranks) < bar_ns:
            continue  # the others do not wait in every step: what they wait for is told with its steps
        rows = leads[(leads["rank"].isin(ranks) & leads["step"].isin(steps)).to_numpy(dtype=bool)]
        inside = rows.groupby("rank")["duration_ns"].sum() / len(steps)
        usual = rows["rank"].map({rank: found[rank].usual for rank in ranks}) / rows["rank"].map(inside)
        usual = usual.astype("float64").clip(upper=1.0)
        beyond = work.loss(rows, fraction=1.0 - usual, alone=True)
        cost_ns = price_ns(case, steps, work.price(case, [beyond]))
        if cost_ns < case.limit(MEDIUM_SHARE) * step_ns:
            continue
        left[rows.index] = usual
        worst = int(str(inside.idxmax()))
        cause, actions, share = _why(case, worst, rows)
        evidence = found[worst].evidence(table.T[worst], table.shape[1])
        findings.append(
            Finding(
                rule=RULE.name,
                title=say(
                    "{who} {in_these_steps_ns} {cause}, {when}; {usual_ns} in the others (means)",
                    who=_who(ranks, len(table)),
                    cause=cause or "for data",
                    when=found[worst].told(table.shape[1]),
                    **evidence,
                ),
                subject={"ranks": ranks, "steps": steps},
                evidence={**evidence, **share},
                actions=fitting(case, actions),
                cost_ns=cost_ns,
                next=("16_data_feed",),
                part="free",
                loss=beyond,
            )
        )
    return findings, leads.assign(duration_ns=(leads["duration_ns"] * left).round().astype("int64"))


def _finding(
    case: Case,
    leads: pd.DataFrame,
    named: tuple[int, ...],
    bar_ns: float,
    evidence: dict[str, float],
    *,
    beside: tuple[int, ...] = (),
) -> tuple[Finding, int]:
    """What these ranks wait for before their first operator, and what a step wins without it.

    Their steps are told by what they wait for beyond those `beside` that wait, too.
    """
    table = _by_step(leads)
    step_ns, means = case.step_ns or 1, table.mean(axis=1)
    by_step = table.loc[list(named)].mean(axis=0)
    if beside:
        by_step = (by_step - table.loc[list(beside)].max(axis=0)).clip(lower=0.0)
    episode = episode_of(by_step, max(case.limit(EPISODE_SHARE) * step_ns, case.limit(FEED_LEAST)))
    if episode is not None and episode.usual >= bar_ns:
        episode = None  # all steps wait; what few of them have beyond that was told
    others = means.drop(index=list(named))
    usual_ns = float(others.max()) if len(others) else _usual_ns(table, bar_ns) if episode is None else episode.usual
    cost_ns = _above_ns(case, leads, named, usual_ns)
    if episode is not None:
        cost_ns = price_ns(case, episode.steps, cost_ns)
    longest = float(table.loc[list(named)].to_numpy().max())
    who, mean_ns = _who(named, len(means)), float(means.loc[list(named)].mean())
    cause, actions, share = _why(case, named[0], leads)
    found = Finding(
        rule=RULE.name,
        title=say(
            "{who} {mean_interval_ns} of the mean step {cause}{when}",
            who=who,
            mean_interval_ns=mean_ns,
            cause=cause or "for data",
            when=say(", {when}", when=episode.told(len(by_step))) if episode else "",
        ),
        subject={"ranks": named, **({"steps": episode.steps} if episode else {})},
        evidence={
            **evidence,
            **({} if episode is None else episode.evidence(by_step, len(by_step))),
            "mean_interval_ns": mean_ns,
            "usual_interval_ns": usual_ns,
            "longest_interval_ns": longest,
            "steps_with_long_interval": float((table.loc[list(named)].max() >= bar_ns).sum()),
            **share,
        },
        actions=fitting(case, actions),
        cost_ns=cost_ns,
        next=("16_data_feed",),
        part="free",
        loss=_above(leads, named, usual_ns),
    )
    return found, cost_ns


def _apart_from_launching(case: Case, leads: pd.DataFrame) -> pd.DataFrame:
    """The intervals without those of ranks whose hosts are only as late with them as with everything that they launch.

    Those that the host spends on fetching input, or at work on operators of its own, have a cause that can be told.
    """
    idle = case.ledger.idle
    before = (idle["place"] == "before").to_numpy(dtype=bool)
    late, fed = idle["cause"].isin(LATE).to_numpy(dtype=bool), (idle["cause"] == causes.FEED).to_numpy(dtype=bool)
    parts = {"inside": late & (idle["place"] == "inside").to_numpy(dtype=bool), "before": before, "fed": before & fed}
    sums = pd.DataFrame({name: idle[which].groupby("rank")["duration_ns"].sum() for name, which in parts.items()}).fillna(0.0)
    as_late = (sums["before"] <= launching.SPREAD * sums["inside"]) & (sums["fed"] < host.LOADED * sums["before"])
    rows = idle[before & idle["rank"].isin(sums.index[as_late.to_numpy()]).to_numpy(dtype=bool)]
    at_work = _at_work_ns(case, rows).reindex(sums.index).fillna(0.0)
    untold = sums.index[(as_late & (at_work < host.LOADED * sums["before"])).to_numpy()]
    alike = leads["rank"].isin(untold).to_numpy(dtype=bool)
    kept: pd.DataFrame = leads[~(alike & leads["lead"].to_numpy(dtype=bool))]
    return kept


def _at_work_ns(case: Case, before: pd.DataFrame) -> pd.Series:
    """By rank how long the launches before first kernels are late for operators that the host runs, in ns."""
    late = before["duration_ns"].where(before["cause"] == causes.LAUNCHING, 0)
    rows = before.assign(late_ns=late, end_ns=before["start_ns"] + before["duration_ns"])
    gaps = rows.groupby(["rank", "gap"]).agg({"start_ns": "min", "end_ns": "max", "late_ns": "sum"}).astype("int64")
    found = {}
    for rank, own in gaps.groupby("rank"):
        worked = at_work_ns(case.run, int(str(rank)), Intervals(own["start_ns"].to_numpy(), own["end_ns"].to_numpy()))
        found[rank] = float(np.minimum(own["late_ns"].to_numpy(), worked).sum())
    return pd.Series(found, dtype="float64")


def _by_step(leads: pd.DataFrame) -> pd.DataFrame:
    """The interval of each rank (rows) and step (columns) in ns."""
    return leads.pivot_table(index="rank", columns="step", values="duration_ns", aggfunc="sum").fillna(0.0)


def _late(means: pd.Series, bar_ns: float) -> list[int]:
    """The ranks that begin late, the latest first."""
    ordered = means.sort_values(ascending=False, kind="stable")
    return [int(str(rank)) for rank in ordered.index[(ordered >= bar_ns).to_numpy()]]


def _named(case: Case, leads: pd.DataFrame, means: pd.Series, late: list[int], bar_ns: float) -> tuple[int, ...]:
    """The ranks that the step waits for: the fewest without whose lead over the others it wins most of what it can win.

    A rank that is later than all others makes them wait; that those begin late too costs nothing until it does not.
    """
    ordered = means.sort_values(ascending=False, kind="stable")
    if len(late) < 2:
        return tuple(late)
    levels = [*ordered.to_numpy()[1:], 0.0]
    jumps = np.array(ordered.to_numpy() - np.array(levels))[: len(late)]
    cuts = sorted({*(np.argsort(-jumps, kind="stable")[:FEW_CUTS] + 1).tolist(), len(late)})
    wins = {cut: _above_ns(case, leads, tuple(late[:cut]), float(levels[cut - 1])) for cut in cuts}
    # What few of them have beyond the others is a finding by itself where it is worth one.
    least = min(MOST * max(wins.values()), APART * bar_ns)
    return tuple(sorted(late[: next(cut for cut in cuts if wins[cut] >= least)]))


def _above(leads: pd.DataFrame, ranks: tuple[int, ...], usual_ns: float) -> Loss:
    """What of the intervals of these ranks is longer than the usual."""
    late = leads[leads["rank"].isin(ranks).to_numpy(dtype=bool) & (leads["duration_ns"] > usual_ns).to_numpy(dtype=bool)]
    return work.loss(late, fraction=1.0 - usual_ns / late["duration_ns"].astype("float64"), alone=True)


def _above_ns(case: Case, leads: pd.DataFrame, ranks: tuple[int, ...], usual_ns: float) -> int:
    """What a step wins if no interval of these ranks were longer than the usual."""
    loss = _above(leads, ranks, usual_ns)
    return work.price(case, [loss]) if len(loss.removed) else 0


def _by_step_trace(case: Case) -> Verdict:
    """Ranks whose step trace states a long step interval, with the cause as far as queues tell it."""
    feeds = {}
    # Idle times at the start of a step that a sample of its events leaves are no intervals.
    ranks = [rank for rank in case.run.ranks if rank not in case.ledger.sampled][:MOST_RANKS]
    reason = NotMeasuredError("all events of a step" if case.run.ranks else "steps", how_to_collect=KERNELS_BY)
    for rank in ranks:
        try:
            feeds[rank] = judge_feed(case.run, rank)
        except NotMeasuredError as missing:
            reason = missing
    if not feeds:
        raise reason
    means = {rank: float(_judged(case, feed)["interval_ns"].mean()) for rank, feed in feeds.items() if len(_judged(case, feed))}
    step_ns = case.step_ns or 1
    longest = max(means.values(), default=0.0)
    evidence = {"largest_interval_ns": longest, "largest_interval_share": longest / step_ns}
    if longest < max(case.limit(FEED_SHARE) * step_ns, case.limit(FEED_LEAST)):
        return Verdict((), evidence)
    named = tuple(rank for rank in means if means[rank] >= 0.5 * longest)
    worst = max(named, key=lambda rank: means[rank])
    cause, actions = _cause(feeds[worst])
    finding = Finding(
        rule=RULE.name,
        title=say(
            "{who} up to {largest_interval_ns} of the mean step {cause}",
            who=_who(named, len(means)),
            cause=cause or "for data",
            **evidence,
        ),
        subject={"ranks": named},
        evidence={**evidence, **{f"{name}_queue_empty_ratio": empty for name, empty in feeds[worst].queues.items()}},
        actions=fitting(case, actions),
        cost_ns=work.less_busy_ns(case, means) if len(means) < len(case.run.ranks) else round(longest),
        next=("16_data_feed",),
    )
    return Verdict((finding,), evidence)


def _judged(case: Case, feed: Feed) -> pd.DataFrame:
    """The intervals of the steps after warm-up."""
    return feed.intervals[feed.intervals["step"].isin(case.step_numbers)]


def _cause(feed: Feed) -> tuple[str, tuple[Action, ...]]:
    """What the queues say, for the title, and what to do about it."""
    cause = CAUSES.get(feed.cause, "")
    suspect = say(", first {operation}", operation=feed.suspect) if feed.suspect else ""
    return (say("for data: {cause}{suspect}", cause=cause, suspect=suspect), feed.actions or ACTIONS) if cause else ("", ACTIONS)


def _why(case: Case, rank: int, leads: pd.DataFrame) -> tuple[str, tuple[Action, ...], dict[str, float]]:
    """What queues, else the host, say of the waiting of a rank: words for the title, what to do, and the share in a data loader."""
    loaders = host.share_in(case, rank, leads, host.LOADERS)
    share = {} if loaders is None else {"share_in_data_loader": loaders}
    if case.run.has("queues"):
        return *_cause(judge_feed(case.run, rank)), share
    return *_by_host(case, rank, leads, loaders), share


def _by_host(case: Case, rank: int, waits: pd.DataFrame, loaders: float | None) -> tuple[str, tuple[Action, ...]]:
    """What the host did meanwhile, for the title, and what to do about it; no words where it is data or not known."""
    if loaders is None or loaders >= host.LOADED:
        return "", ACTIONS
    call = host.longest_in(case, rank, waits)
    own = waits[waits["rank"] == rank]
    lines = called_from(case, rank, (own["start_ns"] + own["duration_ns"] // 2).to_numpy(dtype=np.int64))
    if loaders >= UNLOADED:
        told = say("before its first operator, {share_in_data_loader} of it for data", share_in_data_loader=loaders)
        return told, (*lines, *OWN_CODE, *ACTIONS)
    meanwhile = say(": the host is in {call}", call=call) if call else ""
    return say("before its first operator, but not for a data loader{meanwhile}", meanwhile=meanwhile), (*lines, *OWN_CODE)


def _who(named: tuple[int, ...], num_ranks: int) -> str:
    if len(named) == num_ranks:
        return say("All ranks wait") if num_ranks > 1 else say("Rank {rank} waits", rank=str(named[0]))
    several = len(named) > 1
    return say("Ranks {ranks} wait" if several else "Rank {ranks} waits", ranks=", ".join(map(str, named)))


def _usual_ns(table: pd.DataFrame, bar_ns: float) -> float:
    """The interval of steps without delay, where some are: then the delay comes only every few steps."""
    fewest = table.max(axis=0).min()
    return float(fewest) if fewest < bar_ns else 0.0


RULE = Rule(
    name="data-feed",
    title="Steps wait for data",
    needs=frozenset({"steps"}),
    how_to_collect=f"{KERNELS_BY}; or a MindSpore step trace",
    thresholds=(FEED_SHARE, FEED_LEAST, EPISODE_SHARE),
    check=check,
    explains=frozenset({"jitter"}),
)
