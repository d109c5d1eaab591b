"""Ranks of a timeline: what stands at the name of each, its clock and what of its recording was lost.

Lost events have no time, so they are a band over the whole rank; where a file ends early, the time behind its last event is one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from perfkit.core.clock import MIN_MATCHES_FOR_DRIFT, Clock
from perfkit.core.run import Run
from perfkit.core.texts import say, t, told
from perfkit.core.units import format_count, format_ns, significant

_EVENTS = ("timeline", "kernels")
"""Parts of a recording whose early end leaves time without events."""
_PARTS_A_MILLION = 1e6


def described(
    run: Run, clocks: Mapping[int, Clock], ends_ns: Mapping[int, int], *, opened: Collection[int], base_ns: int, span_ns: int
) -> list[dict[str, Any]]:
    """What the page shows of every rank; `ends_ns` has where the events of the `opened` ones end, `span_ns` how long all take."""
    lost, cut = _losses(run)
    return [
        {
            "rank": rank,
            "open": rank in opened,
            **_clock(run, rank, clocks.get(rank), span_ns),
            "drift": drift(run, rank, clocks.get(rank), base_ns),
            "lost": {"count": num_events(lost[rank]), "text": listed(lost[rank])} if rank in lost else None,
            "cut": float(ends_ns[rank] - base_ns) if rank in cut and rank in ends_ns else None,
        }
        for rank in run.ranks
    ]


def drift(run: Run, rank: int, known: Clock | None, base_ns: int) -> dict[str, float] | None:
    """How a moment of the lanes of a rank becomes a common one, `t - (t - at) x rate / (1 + rate)`; None if its clock keeps pace.

    Lanes are aligned by one offset a rank. Where that is the offset of the estimated clock, its drift is what is left.
    """
    if known is None or not known.drift or run.clock.get(rank) != -known.offset_ns:
        return None
    return {"at": float(known.at_ns - base_ns), "rate": known.drift}


def recorded_ns(run: Run, rank: int, known: Clock | None, moment_ns: int) -> int:
    """The moment on the lanes of a rank that is a common one."""
    found = drift(run, rank, known, 0)
    return moment_ns if found is None or known is None else moment_ns + round((moment_ns - known.at_ns) * known.drift)


def _clock(run: Run, rank: int, known: Clock | None, span_ns: int) -> dict[str, str]:
    """The offset that aligns a clock, how sure it is, and how far it drifts over the run."""
    shift = run.clock.get(rank)
    if shift is None:
        if len(run.ranks) < 2:
            return {"clock": "", "clock_title": ""}
        return {"clock": t("clock not aligned"), "clock_title": t(_NOT_ALIGNED)}
    clock = say("clock {shift}", shift=f"{'+' if shift >= 0 else '-'}{format_ns(abs(shift))}" if shift else "+0")
    title = say(
        "{shift} ns are added to the times of rank {rank}", shift=f"{'+' if shift >= 0 else ''}{format_count(shift)}", rank=rank
    )
    if known is None:
        return {"clock": told(clock), "clock_title": told(say("{title}; how sure that is was not recorded", title=title))}
    matches = format_count(known.num_matches)
    if known.uncertainty_ns:
        spread = format_ns(known.uncertainty_ns)
        title = say("{title}; {matches} collectives tell it to \u00b1{spread}", title=title, matches=matches, spread=spread)
        clock = say("{clock} \u00b1{spread}", clock=clock, spread=spread)
    else:
        title = say("{title}; the others are compared with this clock by {matches} collectives", title=title, matches=matches)
        clock = clock if known.drift else say("{clock}, reference", clock=clock)
    if known.drift:
        gained, drift = format_ns(abs(known.drift) * span_ns), str(significant(abs(known.drift) * _PARTS_A_MILLION))
        pace = "It gains {drift} us a second on the others" if known.drift > 0 else "It loses {drift} us a second on the others"
        title = say(
            "{title}. {pace}, {gained} over the recording; what is shown is corrected for it",
            title=title,
            pace=say(pace, drift=drift),
            gained=gained,
        )
        return {"clock": told(say("{clock}, drift {gained}", clock=clock, gained=gained)), "clock_title": told(title)}
    few = known.num_matches < MIN_MATCHES_FOR_DRIFT
    title = say("{title}; they are too few to tell a drift" if few else "{title}, and show no drift", title=title)
    return {"clock": told(clock), "clock_title": told(title)}


_NOT_ALIGNED = "no collectives that this rank ran together with others were recorded with times"


def _losses(run: Run) -> tuple[dict[int, dict[str, int]], set[int]]:
    """What was lost of the files of each rank, counted by what it was, and the ranks whose events end early."""
    coverage = run.frame("coverage")
    files = coverage.dropna(subset=["file"])
    owners: dict[str, set[int]] = {}
    for file, rank in zip(files["file"].astype("object"), files["rank"].tolist(), strict=True):
        owners.setdefault(str(file), set()).add(int(rank))
    lost: dict[int, dict[str, int]] = {}
    for dropped in run.dropped:
        ranks = owners.get(dropped.file, set())
        if len(ranks) == 1:
            mine = lost.setdefault(next(iter(ranks)), {})
            mine[dropped.what] = mine.get(dropped.what, 0) + dropped.count
    early = coverage[coverage["part"].isin(_EVENTS).to_numpy(dtype=bool) & (coverage["state"] == "partial").to_numpy(dtype=bool)]
    return lost, {int(rank) for rank in early["rank"]} & set(lost)


def num_events(lost: Mapping[str, int]) -> int:
    """How many events were lost; bytes behind the last complete one are none that anybody could count."""
    return sum(count for what, count in lost.items() if not what.startswith("bytes"))


def listed(lost: Mapping[str, int]) -> str:
    """What was lost, in words."""
    return "; ".join(f"{format_count(count)} {told(what)}" for what, count in lost.items())
