"""Episodes: in which steps something takes longer than in the others, so that a fault of some steps is told as one.

Values of a step fall into two groups at their widest gap. The upper group is an episode if the gap is larger than what may be
chance (the scatter of both groups, and a least amount) and if enough steps are left to say what is usual.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit.core import robust
from perfkit.core.texts import say
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.rule import Threshold

EPISODE_SHARE = Threshold(
    name="episode-share",
    value=0.04,
    unit="share of the step, in each step of an episode",
    origin="chosen: steps of healthy bundled recordings differ by up to 3 % in what a rank computes, moves or idles",
)
SCATTERS = 4.0
"""Robust deviations within the groups that the gap between them must exceed."""
USUAL_SHARE = 1 / 3
"""The least share of the steps that show what is usual."""
FEWEST_USUAL = 2
"""Two steps show by how much steps differ. Of five steps three may be the episode."""
PLAIN = 2.0
"""A single step shows what is possible, not what is usual: only what is so many times as long, and so many times the least amount
more, is not how steps differ."""
WEAKER = 0.25
"""A step of an episode has at least this part of what its other steps have beyond the usual."""
FEW_TOLD = 6
MOST = 0.5
"""What is this share of how much longer steps are is what they are longer for."""


Steps = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Episode:
    """The `steps` of an episode, the mean of the others (`usual`), and every how many steps it comes, if regularly."""

    steps: tuple[int, ...]
    usual: float
    period: int | None

    def told(self, num_steps: int) -> str:
        """When it is, for a title."""
        steps = ", ".join(map(str, self.steps[:FEW_TOLD]))
        steps = say("{steps} and others", steps=steps) if len(self.steps) > FEW_TOLD else steps
        if self.period is not None:
            return say("every {period} steps ({steps})", period=self.period, steps=steps)
        form = "in {count} of {num_steps} steps ({steps})" if len(self.steps) > 1 else "in step {steps}"
        return say(form, count=len(self.steps), num_steps=num_steps, steps=steps)

    def evidence(self, values: pd.Series, num_steps: int) -> dict[str, float]:
        """The numbers of the episode, of values in ns by step."""
        return {
            "steps_in_episode": float(len(self.steps)),
            "steps_in_all": float(num_steps),
            "in_these_steps_ns": float(values.reindex(list(self.steps)).to_numpy(dtype=np.float64).mean()),
            "usual_ns": self.usual,
            **({} if self.period is None else {"period_steps": float(self.period)}),
        }


def episode_of(values: pd.Series, least: float) -> Episode | None:
    """The episode in values by step, whose gap is at least `least`; None if all steps are alike or too few show what is usual."""
    known = values.dropna().astype("float64").sort_values(kind="stable")
    amounts: npt.NDArray[np.float64] = np.asarray(known, dtype=np.float64)
    if len(amounts) < 2:
        return None
    at = _last_usual(amounts, FEWEST_USUAL)
    if at is None or not _apart(amounts[: at + 1], amounts[at + 1 :], least):
        at = _last_usual(amounts, 1)
        if at != 0 or amounts[1] < PLAIN * max(amounts[0], least):
            return None
    at = _with_weaker(amounts, at, least)
    low = amounts[: at + 1]
    steps = tuple(sorted(int(str(step)) for step in known.index[at + 1 :]))
    return Episode(steps, float(low.mean()), _period(steps, sorted(int(str(step)) for step in known.index)))


def together(episodes: Mapping[int, Episode]) -> list[tuple[Steps, tuple[int, ...]]]:
    """The episodes of ranks as steps with the ranks that have them, in the order of the steps.

    A rank that has one in some of the steps in which more ranks have theirs has no other one: in the rest it does not stand out.
    """
    counts = Counter(episode.steps for episode in episodes.values())
    found: dict[Steps, list[int]] = {}
    for rank, episode in episodes.items():
        whole = [steps for steps in counts if set(steps) > set(episode.steps) and counts[steps] > counts[episode.steps]]
        found.setdefault(max(whole, key=lambda steps: counts[steps], default=episode.steps), []).append(rank)
    return sorted((steps, tuple(ranks)) for steps, ranks in found.items())


def _last_usual(amounts: npt.NDArray[np.float64], fewest: int) -> int | None:
    """The place of the last usual amount, of ascending ones: before the widest gap that leaves enough; None if none does."""
    first = _fewest_usual(amounts, fewest) - 1
    jumps = np.diff(amounts)[first:]
    return first + int(jumps.argmax()) if len(jumps) else None


def _with_weaker(amounts: npt.NDArray[np.float64], at: int, least: float) -> int:
    """The place of the last usual amount with steps in the episode that have a part of what its other steps have.

    What holds up a host costs less in a step whose queue is full: such a step is no usual one.
    """
    beyond = float(amounts[at + 1 :].mean() - amounts[: at + 1].min())
    for lower in range(_fewest_usual(amounts, FEWEST_USUAL) - 1, at):
        low, high = amounts[: lower + 1], amounts[lower + 1 :]
        if high[0] - low.mean() >= WEAKER * beyond and _apart(low, amounts[lower + 1 : lower + 2], least):
            return lower
    return at


def _fewest_usual(amounts: npt.NDArray[np.float64], fewest: int) -> int:
    return max(fewest, int(np.ceil(USUAL_SHARE * len(amounts))))


def _apart(low: npt.NDArray[np.float64], high: npt.NDArray[np.float64], least: float) -> bool:
    """Whether the gap between two groups is wider than what may be chance."""
    scatter = max(robust.sigma(low), robust.sigma(high) if len(high) > 2 else 0.0, float(np.ptp(low)) / SCATTERS)
    return bool(high[0] - low[-1] >= max(least, SCATTERS * scatter))


def price_ns(case: Case, steps: Sequence[int], own_ns: int, *, whole: bool = False) -> int:
    """What an episode costs a step, a mean over all: what was found in it (`own_ns`), held against how much longer its steps are.

    What was found `whole` costs what a step timed anew with its hosts tells: steps also differ for other reasons. Else it cannot
    cost more than they are longer; and where it is most of that, the rest followed from it: a queue that had run empty, ranks that
    came late. A replay has followed that already, and of what was found `whole` nothing is left to follow. Of the other steps
    the median is usual, the first of a job left out, and those that are longer for a cause of their own.
    """
    if whole and case.replay is None and case.moments is not None:
        return own_ns
    lengths = case.steps.groupby("step")["duration_ns"].max().astype("float64")
    inside = lengths.index.isin(list(steps))
    others = lengths[~inside]
    longer = episode_of(others, case.limit(EPISODE_SHARE) * (case.step_ns or 0))
    others = others if longer is None else others.drop(index=list(longer.steps))
    settled = others[others.index.isin(case.settled_steps)]
    usual_ns = (settled if len(settled) else others).median()
    grown_ns = float((lengths[inside] - usual_ns).sum()) / len(lengths)
    followed = whole or case.replay is not None or own_ns < MOST * grown_ns
    return round(max(0.0, min(float(own_ns), grown_ns) if followed else grown_ns))


def _period(steps: Sequence[int], every: Sequence[int]) -> int | None:
    """The distance between the steps if it is always the same, more than one, and holds until the recording ends."""
    places = [list(every).index(step) for step in steps]
    distances = {later - earlier for earlier, later in pairwise(places)}
    if len(places) < 2 or len(distances) != 1 or (period := distances.pop()) < 2:
        return None
    return period if places[0] < period and places[-1] + period >= len(every) else None
