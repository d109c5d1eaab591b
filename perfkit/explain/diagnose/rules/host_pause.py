"""The host stops for a moment now and then, and the device of that rank with it: garbage collection, saving, another process.

What is measured: where the host was recorded, what the ledger holds as pauses: idle times of a device in which no event begins or
ends on the threads that launch, or garbage is collected. Else single times in the middle of a step in which a device does nothing
at all on any stream. Both are long against the step, and far longer than what the rank does habitually: at most two a step are
pauses. Ranks that wait for the stopped one run a collective meanwhile, and are not named; times that a data loader fills are
`data-feed`. A garbage collection in those times is stated, or the call that fills most of them. A host that stands still for most
of the step and in no call has no price: more likely a part of what ran was recorded.

What to do: collect garbage at fixed steps on all ranks at once (gc.disable, gc.freeze, gc.collect every few hundred steps), save
checkpoints asynchronously, keep other work off the host.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit.core.texts import say
from perfkit.explain.diagnose import host, launching, work
from perfkit.explain.diagnose import who as _who
from perfkit.explain.diagnose.advice import ASYNC_SAVE, Action, fitting
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.collecting import KERNELS_BY
from perfkit.explain.diagnose.episodes import EPISODE_SHARE, Episode, episode_of, price_ns
from perfkit.explain.diagnose.rule import Finding, Rule, Threshold, Verdict
from perfkit.explain.diagnose.source_lines import called_from
from perfkit.explain.ledger import FAR_LONGER
from perfkit.explain.ledger.causes import ALLOCATOR, COPIES, DEVICE, LATENCY, LAUNCHING, PAUSE

PAUSE_SHARE = Threshold(
    "pause-share", 0.015, "share of the step", "chosen: three times what is worth a finding, because a single time is no habit"
)
PAUSE_LEAST = Threshold(
    "pause-least", 2e6, "ns", "chosen: a launch takes some 10 us; a slice of a scheduler or a garbage collection some ms"
)
PAUSES_A_STEP = Threshold("pauses-a-step", 2.0, "idle times a step", "chosen: more are no pause but a habit")

HELD = (ALLOCATOR, LATENCY, DEVICE)
"""What lasts a moment; when it lasts long, somebody stood still."""
MOST = 0.5
"""The share of the step from which on a stop is no moment."""
FEW = 3
"""Of so few steps none is odd for its pauses if all have some."""
WHOLE = "record again with all kernels and the host: with most of the time empty, what is here may be a part of what ran"
PINNED: tuple[Action, ...] = (
    "copy from pinned memory without waiting: DataLoader(pin_memory=True) and tensor.to(device, non_blocking=True); a copy of "
    "pageable memory holds its thread until it is done",
    "look at what the device waits for at the end of those times in the timeline",
)
COLUMNS = ["rank", "step", "start_ns", "duration_ns"]
ACTIONS: tuple[Action, ...] = (
    {
        "mindspore": "collect garbage at fixed steps on all ranks at once: gc.freeze() after start, gc.disable(), and "
        "gc.collect() every few hundred steps",
        "megatron": "collect garbage at fixed steps on all ranks at once: --manual-gc --manual-gc-interval 100",
        "torch": "collect garbage at fixed steps on all ranks at once: gc.freeze() after start, gc.disable(), and "
        "gc.collect() every few hundred steps",
    },
    ASYNC_SAVE,
    "look for other processes on the host of the named ranks",
)


def check(case: Case) -> Verdict:
    """Ranks whose device stands still for long single times inside steps."""
    step_ns = case.step_ns or 1
    still = _still(case)
    least_ns = min(case.limit(PAUSE_LEAST), case.limit(EPISODE_SHARE) * step_ns)  # of a short step less stands out
    bar_ns = max(case.limit(PAUSE_SHARE) * step_ns, least_ns)
    long = still[(still["duration_ns"] >= bar_ns).to_numpy(dtype=bool)]
    evidence = {"longest_idle_ns": float(still["duration_ns"].max()) if len(still) else 0.0, "limit_ns": bar_ns}
    num_steps = case.num_kernel_steps
    a_step = long.groupby("rank").size() / num_steps
    named = tuple(int(str(rank)) for rank in a_step.index)
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
        else say("while the host is in {call}", call=call)
        if call
        else "and no call of the host fills it"
    )
    # A host that stands still most of the time and in no call is more likely one of which a part was recorded.
    part = call is None and _a_step_ns(mine, num_steps) > MOST * step_ns
    who = _who.devices(named, case)
    first = episodes.get(named[0])
    every = say(" (every {period} steps)", period=first.period) if first is not None and first.period is not None else ""
    evidence["longest_pause_ns"] = float(mine["duration_ns"].max())
    return Verdict(
        (
            Finding(
                rule=RULE.name,
                title=say(
                    "{who} still {times} in {steps}{every}, up to {longest_pause_ns}, {what}{part}",
                    who=who("stands", "stand"),
                    times=_who.count(len(mine), "time"),
                    steps=_who.count(num_steps, "step"),
                    every=every,
                    what=what,
                    part=": the recording may hold a part of what ran" if part else "",
                    **evidence,
                ),
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
                actions=(
                    *called_from(case, named[0], _middles(mine[mine["rank"] == named[0]])),
                    *fitting(case, PINNED if call and COPIES.search(call) else (WHOLE, *ACTIONS) if part else ACTIONS),
                ),
                cost_ns=None if part else _cost_ns(case, mine, list(episodes.values())),
                severity="low" if part else None,
                next=("14_timeline",),
                part="free",
                loss=None if part else work.loss(mine, stops=True),
            ),
        ),
        evidence,
    )


def _a_step_ns(pauses: pd.DataFrame, num_steps: int) -> float:
    """The pauses of a mean step, of the rank that has most of them."""
    return float(pauses.groupby("rank")["duration_ns"].sum().max()) / num_steps


def _still(case: Case) -> pd.DataFrame:
    """Times (COLUMNS) in which the host of a rank stood still, or a device whose host is not known."""
    idle = case.ledger.idle
    inside = idle[(idle["place"] == "inside").to_numpy(dtype=bool)]
    sums = inside.pivot_table(index="rank", columns="cause", values="duration_ns", aggfunc="sum", fill_value=0)
    sums = sums.reindex(columns=[PAUSE, LAUNCHING], fill_value=0)
    stopped = sums.index[(sums[PAUSE] > launching.SPREAD * sums[LAUNCHING]).to_numpy()]
    paused = inside[(inside["cause"] == PAUSE).to_numpy(dtype=bool) & inside["rank"].isin(stopped).to_numpy(dtype=bool)]
    gaps = case.gaps[~case.gaps["lead"].to_numpy(dtype=bool) & ~host.loading(case)]
    unknown = gaps[~gaps["rank"].isin(list(case.ledger.hosts)).to_numpy(dtype=bool)]
    held = inside[inside["cause"].isin(HELD).to_numpy(dtype=bool)]
    frames = [paused[COLUMNS], *(_beyond_habits(case, own) for rows in (held, unknown) for _, own in rows.groupby("rank"))]
    return pd.concat([frame for frame in frames if len(frame)] or frames[:1], ignore_index=True)


def _beyond_habits(case: Case, own: pd.DataFrame) -> pd.DataFrame:
    """The times of one rank that are far longer than what it has more often than pauses may come."""
    longest = own["duration_ns"].sort_values(ascending=False).to_numpy()
    habits = round(case.limit(PAUSES_A_STEP)) * case.num_kernel_steps
    habit_ns = FAR_LONGER * longest[habits] if len(longest) > habits else 0.0
    kept: pd.DataFrame = own.loc[(own["duration_ns"] >= habit_ns).to_numpy(dtype=bool), COLUMNS]
    return kept


def _cost_ns(case: Case, pauses: pd.DataFrame, episodes: list[Episode]) -> int:
    cost_ns = work.price(case, [work.loss(pauses, stops=True)])
    steps = {episode.steps for episode in episodes}
    # The device stood still as long as it stood still: what launches later than usual afterwards is no pause.
    return price_ns(case, steps.pop(), cost_ns, whole=True) if len(steps) == 1 else cost_ns


def _episode(case: Case, pauses: pd.DataFrame, bar_ns: float) -> Episode | None:
    """The steps of a rank with pauses that its other steps do not have."""
    by_step = pauses.groupby("step")["duration_ns"].sum().reindex(list(case.kernel_steps), fill_value=0)
    if len(by_step) <= FEW and (by_step > 0).all():
        return None
    return episode_of(by_step, bar_ns) if (by_step > 0).sum() < len(by_step) or by_step.min() < by_step.max() / 2 else None


def _middles(idle: pd.DataFrame) -> npt.NDArray[np.int64]:
    found: npt.NDArray[np.int64] = (idle["start_ns"] + idle["duration_ns"] // 2).to_numpy(dtype=np.int64)
    return found


RULE = Rule(
    name="host-pause",
    title="The host stops now and then",
    needs=frozenset({"steps", "kernels"}),
    how_to_collect=KERNELS_BY,
    thresholds=(PAUSE_SHARE, PAUSE_LEAST, PAUSES_A_STEP, EPISODE_SHARE),
    check=check,
    explains=frozenset({"jitter", "core-idle", "pipeline-bubble"}),
)
