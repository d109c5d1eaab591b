"""The host stops for a moment now and then, and the device of that rank with it: garbage collection, saving, another process.

What is measured: single times in the middle of a step in which a device does nothing at all on any stream, long against the step
and longer than any launch, at most two a step on average. Ranks that wait for the stopped one run a collective meanwhile, and are
not named; times that a data loader fills are `data-feed`. Where the host side was recorded, a garbage collection in those times is
stated, or the call that fills most of them.

What to do: collect garbage at fixed steps on all ranks at once (gc.disable, gc.freeze, gc.collect every few hundred steps), save
checkpoints asynchronously, keep other work off the host.
"""

from __future__ import annotations

import pandas as pd

from perfkit.explain.diagnose import host, work
from perfkit.explain.diagnose import who as _who
from perfkit.explain.diagnose.case import KERNELS_BY, Case
from perfkit.explain.diagnose.episodes import Episode, episode_of, price_ns
from perfkit.explain.diagnose.rule import Finding, Rule, Threshold, Verdict

PAUSE_SHARE = Threshold(
    name="pause-share",
    value=0.015,
    unit="share of the step",
    origin="chosen: three times what is worth a finding, because a single time is no habit",
)
PAUSE_LEAST = Threshold(
    name="pause-least",
    value=2e6,
    unit="ns",
    origin="chosen: a launch takes some 10 us; a slice of a scheduler or a garbage collection some ms",
)
PAUSES_A_STEP = Threshold(name="pauses-a-step", value=2.0, unit="idle times a step", origin="chosen: more are no pause but a habit")

FAR_LONGER = 4.0
"""Idle times that take so many times what others of the run take are of another cause."""
ACTIONS = (
    "collect garbage at fixed steps on all ranks at once: gc.freeze() after start, gc.collect() every few hundred steps",
    "save checkpoints asynchronously, and evaluate rarely",
    "look for other processes on the host of the named ranks",
)


def check(case: Case) -> Verdict:
    """Ranks whose device stands still for long single times inside steps."""
    step_ns = case.step_ns or 1
    gaps = case.gaps[~case.gaps["lead"].to_numpy(dtype=bool) & ~host.loading(case)]
    bar_ns = max(case.limit(PAUSE_SHARE) * step_ns, case.limit(PAUSE_LEAST))
    long = gaps[gaps["duration_ns"] >= bar_ns]
    evidence = {"longest_idle_ns": float(gaps["duration_ns"].max()) if len(gaps) else 0.0, "limit_ns": bar_ns}
    num_steps = case.num_kernel_steps
    a_step = long.groupby("rank").size() / num_steps
    if len(a_step) and a_step.min() > case.limit(PAUSES_A_STEP):
        # Among habits of some ms a pause of many is one still.
        long = long[long["duration_ns"] >= FAR_LONGER * long["duration_ns"].median()]
        a_step = long.groupby("rank").size() / num_steps
    named = tuple(int(rank) for rank in a_step.index[(a_step <= case.limit(PAUSES_A_STEP)).to_numpy()])
    if not named:
        return Verdict((), evidence)
    mine = long[long["rank"].isin(named)]
    episodes = {rank: found for rank in named if (found := _episode(case, mine[mine["rank"] == rank], bar_ns)) is not None}
    if episodes:
        # What a rank has in every step it has beside the pauses that only some steps have.
        named = tuple(episodes)
        mine = mine[
            [
                step in episodes[rank].steps if rank in episodes else False
                for rank, step in zip(mine["rank"], mine["step"], strict=True)
            ]
        ]
    collected = host.share_in(case, named[0], mine, host.COLLECTORS)
    call = None if collected is None else host.longest_in(case, named[0], mine)
    # Without the host side only the device is known to stand still.
    what = (
        "and the host was not recorded"
        if collected is None
        else "for garbage collection"
        if collected > 0.5
        else f"while the host is in {call}"
        if call
        else "and no call of the host fills it"
    )
    who = _who.devices(named, case)
    first = episodes.get(named[0])
    times = f"{_who.count(len(mine), 'time')} in {_who.count(num_steps, 'step')}" + (
        f" (every {first.period} steps)" if first is not None and first.period is not None else ""
    )
    return Verdict(
        (
            Finding(
                rule=RULE.name,
                title=f"{who('stands', 'stand')} still {times}, up to {mine['duration_ns'].max() / 1e6:.0f} ms, {what}",
                subject={
                    "ranks": named,
                    "steps": tuple(sorted(int(step) for step in mine["step"].unique())),
                    **({"operators": (call,)} if call else {}),
                },
                evidence={
                    **evidence,
                    "num_pauses": len(mine),
                    "mean_pause_ns": float(mine["duration_ns"].mean()),
                    "pauses_a_step": float(a_step.loc[list(named)].max()),
                    **({} if collected is None else {"share_in_garbage_collection": collected}),
                },
                actions=ACTIONS,
                cost_ns=_cost_ns(case, mine, list(episodes.values())),
                next=("14_timeline",),
                part="free",
                loss=work.loss(mine),
            ),
        ),
        evidence,
    )


def _cost_ns(case: Case, pauses: pd.DataFrame, episodes: list[Episode]) -> int:
    cost_ns = work.won_ns(case, pauses)
    steps = {episode.steps for episode in episodes}
    return price_ns(case, steps.pop(), cost_ns) if len(steps) == 1 else cost_ns


def _episode(case: Case, pauses: pd.DataFrame, bar_ns: float) -> Episode | None:
    """The steps of a rank with pauses that its other steps do not have."""
    by_step = pauses.groupby("step")["duration_ns"].sum().reindex(list(case.kernel_steps), fill_value=0)
    return episode_of(by_step, bar_ns) if (by_step > 0).sum() < len(by_step) or by_step.min() < by_step.max() / 2 else None


RULE = Rule(
    name="host-pause",
    title="The host stops now and then",
    needs=frozenset({"steps", "kernels"}),
    how_to_collect=KERNELS_BY,
    thresholds=(PAUSE_SHARE, PAUSE_LEAST, PAUSES_A_STEP),
    check=check,
    explains=frozenset({"jitter", "core-idle", "pipeline-bubble"}),
)
