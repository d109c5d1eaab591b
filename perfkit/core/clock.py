"""Clock: how far the clocks of ranks are apart, from the ends of the collectives that they ran together.

The members of an all-reduce (or all-gather, reduce-scatter, all-to-all) finish within microseconds of each other, whenever each of
them started. For two ranks the differences of their ends over a run are therefore one straight line: offset and drift. Both are
estimated by medians (a Theil-Sen line over half of the pairs), so that single late ends do not matter, and are carried from group
to group over the surest pairs. The clock that all others are compared with is the median one, not that of any rank. A clock that
was set while it was recorded is such a line with a jump in it.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit.core import placement, robust
from perfkit.core.run import Run

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

ENDS_TOGETHER = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
"""Operations that no member can finish before all have started; the root of a broadcast can."""
JUMP_LEAST_NS = 1_000_000
"""Chosen: network time steps a clock that is off by more, and slews it by less."""
_FAR = 20.0
OF_NO_STEP = -1
MIN_MATCHES = 3
MIN_MATCHES_FOR_DRIFT = 8
MAX_DRIFT = 1e-3
"""Oscillators are off by some 1e-5; a larger slope is no drift but ends that do not belong together."""
_SURE = 5.0
_ROUNDING_NS = 0.5


@dataclass(frozen=True, slots=True)
class Jump:
    """A clock that was set while it was read: from its own moment `at_ns` on it shows `jump_ns` more.

    `at_ns` is None where it was set back so far that its moments are of before and after: that cannot be taken back. `end_ns` is
    the end of the first operation after it, on the clock itself, and `steps` are those of the operations before and after it.
    """

    end_ns: int
    jump_ns: int
    at_ns: int | None
    steps: tuple[int, ...] = ()

    def taken_back(self, moments_ns: Ints) -> Ints:
        """Moments as the clock would show them had it not been set."""
        return moments_ns if self.at_ns is None else moments_ns - np.where(moments_ns >= self.at_ns, self.jump_ns, 0)


@dataclass(frozen=True, slots=True)
class Clock:
    """The clock of one rank: at the common moment `at_ns` it shows `offset_ns` more than the common one, and gains `drift` on it.

    `residual_ns` is the typical distance of its ends from those of its groups after the correction, `uncertainty_ns` the standard
    error of the offset, `num_matches` how many collectives it rests on. `jump` is how it was set while it was recorded.
    """

    rank: int
    offset_ns: int
    drift: float
    at_ns: int
    residual_ns: float
    uncertainty_ns: float
    num_matches: int
    jump: Jump | None = None

    def common_ns(self, moments_ns: Ints) -> Ints:
        """Moments of this clock on the common one; exact to the ns where the clock does not drift."""
        shifted = (moments_ns if self.jump is None else self.jump.taken_back(moments_ns)) - self.offset_ns
        if self.drift == 0.0:
            return shifted
        gained = (shifted - self.at_ns).astype(np.float64) * (self.drift / (1.0 + self.drift))
        return shifted - np.rint(gained).astype(np.int64)


@dataclass(frozen=True, slots=True)
class _Pair:
    """The clock of one rank compared with that of another: a line through the differences of their ends."""

    offset_ns: int
    drift: float
    variance: float
    num_matches: int

    def reversed(self) -> _Pair:
        return _Pair(-self.offset_ns, -self.drift, self.variance, self.num_matches)


def estimate(run: Run) -> Mapping[int, Clock]:
    """The clocks of the ranks that are connected by collectives, the largest such set if there are several; else none."""
    rows = placement.told_apart(run.frame("collectives"), run)
    ends = matched_ends(rows.assign(group=rows["members"]))
    if ends.empty:
        return {}
    clocks = _lines(ends)
    distance = _distance(clocks, ends)
    jumps = _jumps(ends, clocks) if _may_jump(distance) else {}
    if jumps.keys() & clocks.keys():
        steady = ends["end_ns"].to_numpy(dtype=np.int64).copy()
        for rank, jump in jumps.items():
            mine = (ends["rank"] == rank).to_numpy(dtype=bool)
            steady[mine] = jump.taken_back(steady[mine])
        ends = ends.assign(end_ns=steady)
        clocks = _lines(ends)
        distance = _distance(clocks, ends)
        # A clock that was set again is followed no further: what it shows between and after is not known.
        again = _jumps(ends, clocks) if _may_jump(distance) else {}
        jumps |= {rank: replace(jumps.get(rank, jump), at_ns=None) for rank, jump in again.items()}
    typical = distance["distance_ns"].abs().groupby(distance["rank"]).median()
    return {rank: replace(own, residual_ns=float(typical[rank]), jump=jumps.get(rank)) for rank, own in clocks.items()}


def _lines(ends: pd.DataFrame) -> dict[int, Clock]:
    """The straight line of each rank."""
    rough = {rank: pair.offset_ns for rank, pair in _centered(_compared(ends, None)).items()}
    ends = ends[ends["rank"].isin(list(rough))]
    shifted = ends.assign(end_ns=ends["end_ns"] - ends["rank"].map(rough).astype("int64"))
    at_ns = int(np.sort(shifted["end_ns"])[len(shifted) // 2]) if len(shifted) else 0
    fine = _centered(_compared(shifted, at_ns))
    return {rank: _clock(rank, rough[rank], pair, at_ns) for rank, pair in sorted(fine.items())}


def _clock(rank: int, rough_ns: int, pair: _Pair, at_ns: int) -> Clock:
    return Clock(rank, rough_ns + pair.offset_ns, pair.drift, at_ns, 0.0, math.sqrt(pair.variance), pair.num_matches)


def _centered(pairs: Mapping[tuple[int, int], _Pair]) -> dict[int, _Pair]:
    """The ranks of the largest part, compared with their median clock."""
    paths = _largest_part(pairs)
    if not paths:
        return {}
    middle_ns = sorted(pair.offset_ns for pair in paths.values())[len(paths) // 2]
    middle_drift = sorted(pair.drift for pair in paths.values())[len(paths) // 2]
    return {
        rank: replace(pair, offset_ns=pair.offset_ns - middle_ns, drift=pair.drift - middle_drift) for rank, pair in paths.items()
    }


def aligned(frame: pd.DataFrame, clocks: Mapping[int, Clock]) -> pd.DataFrame:
    """A copy of a table with `start_ns` on the common clock; null for a rank whose clock is not known or cannot be followed."""
    known = frame["start_ns"].notna().to_numpy()
    starts = frame["start_ns"].fillna(0).to_numpy(dtype=np.int64).copy()
    ranks = frame["rank"].to_numpy()
    for rank in np.unique(ranks):
        mine = ranks == rank
        if (clock := clocks.get(int(rank))) is None or (clock.jump is not None and clock.jump.at_ns is None):
            known = known & ~mine
        else:
            starts[mine] = clock.common_ns(starts[mine])
    return frame.assign(start_ns=pd.Series(pd.arrays.IntegerArray(starts, ~known), index=frame.index))


def offsets(clocks: Mapping[int, Clock]) -> dict[int, int]:
    """What to add to the times of each rank, in ns, as `Run.clock` holds it; the drift is left out."""
    return {rank: -clock.offset_ns for rank, clock in clocks.items()}


def _may_jump(distance: pd.DataFrame) -> bool:
    """Whether the ends of a rank are further from those of others than a straight line leaves them."""
    far = distance.loc[(distance["distance_ns"].abs() >= JUMP_LEAST_NS / 4).to_numpy(dtype=bool), "rank"]
    return bool((far.value_counts() >= MIN_MATCHES).any())


def _jumps(ends: pd.DataFrame, clocks: Mapping[int, Clock]) -> dict[int, Jump]:
    """The ranks whose clock jumps once against the middle one of a group that ends operations with it; of each the largest jump.

    What clocks are apart all the time is taken off first: else the middle of a group moves when one of it passes the others. Of a
    group of which half jumps nothing says which half it was: both sides jump by half of it then, to different sides.
    """
    ends = ends[ends["rank"].isin(list(clocks)).to_numpy(dtype=bool)]
    steady = ends["end_ns"] - ends["rank"].map({rank: own.offset_ns for rank, own in clocks.items()}).astype("int64")
    together = steady.groupby(ends["operation"])
    since = (steady - together.transform("min")).astype("int64")
    middle = since.groupby(ends["operation"]).transform("median")
    members = ends.groupby("operation")["rank"].transform
    group = pd.DataFrame({name: members(name) for name in ("min", "max", "size", "sum")}).groupby(["min", "max", "size", "sum"])
    moment = together.transform("min") + middle.astype("int64")
    ends = ends.assign(ahead=since - middle, moment=moment, group=group.ngroup()).sort_values("moment", kind="stable")
    of_rank = ends.groupby("rank")
    ends = ends.assign(before_ns=of_rank["end_ns"].shift(fill_value=0), before_step=of_rank["step"].shift(fill_value=OF_NO_STEP))
    found: dict[int, Jump] = {}
    for (rank, _), own in ends.groupby(["rank", "group"]):
        jump = _jump_of(own)
        if jump is not None and abs(jump.jump_ns) > abs(found.get(int(str(rank)), Jump(0, 0, None)).jump_ns):
            found[int(str(rank))] = jump
    sizes = [0, *(jump.jump_ns for jump in found.values())]
    return found if max(sizes) - min(sizes) >= JUMP_LEAST_NS else {}


def _jump_of(own: pd.DataFrame) -> Jump | None:
    """The jump of one rank in one group: of all ways to cut its operations in two the one after which both halves are alike."""
    count, ahead = len(own), own["ahead"].to_numpy(dtype=np.float64)
    if count < 2 * MIN_MATCHES:
        return None
    left = np.arange(MIN_MATCHES, count - MIN_MATCHES + 1)
    sums = np.cumsum(ahead)
    apart = sums[left - 1] / left - (sums[-1] - sums[left - 1]) / (count - left)
    at = int(left[np.argmax(left * (count - left) * apart**2)])
    before, after = ahead[:at], ahead[at:]
    jump_ns = round(float(np.median(after) - np.median(before)))
    if abs(jump_ns) < max(JUMP_LEAST_NS / 2, _FAR * max(robust.sigma(before), robust.sigma(after))):
        return None
    start_ns, end_ns, before_ns = (int(own[name].iloc[at]) for name in ("start_ns", "end_ns", "before_ns"))
    # Set forward inside of the operation it ends later and does not begin later; else it was set before it.
    at_ns = start_ns if jump_ns < 0 or start_ns - before_ns >= jump_ns else end_ns
    steps = sorted({int(own[name].iloc[at]) for name in ("before_step", "step")} - {OF_NO_STEP})
    return Jump(end_ns, jump_ns, at_ns if at_ns > before_ns else None, tuple(steps))


def matched_ends(collectives: pd.DataFrame) -> pd.DataFrame:
    """The ends of operations that several ranks ran together: `operation` (a number), `rank`, `step`, `start_ns`, `end_ns`.

    Rows of one name, group and step on several ranks are one operation, the k-th with the k-th where a name repeats. A name that
    more ranks use than the group has is used by several groups, and left out.
    """
    rows = collectives[collectives["operation"].isin(ENDS_TOGETHER) & collectives["start_ns"].notna()]
    key = ["step", "group", "name", "occurrence"]
    table = pd.DataFrame(
        {
            "rank": rows["rank"],
            "step": rows["step"].fillna(OF_NO_STEP).astype("int64"),
            "group": pd.factorize(rows["group"])[0],
            "name": pd.factorize(rows["name"])[0],
            "start_ns": rows["start_ns"].astype("int64"),
            "end_ns": (rows["start_ns"] + rows["duration_ns"]).astype("int64"),
            "group_size": rows["group_size"].fillna(0).astype("int64"),
        }
    ).sort_values("end_ns", kind="stable")
    table["occurrence"] = table.groupby(["rank", "step", "group", "name"]).cumcount()
    together = table.groupby(key)
    members = together["rank"].transform("size")
    whole = (members > 1) & ((table["group_size"] == 0) | (members <= table["group_size"]))
    found = table.assign(operation=together.ngroup())[whole]
    return found[["operation", "rank", "step", "start_ns", "end_ns"]].sort_values(["operation", "rank"], ignore_index=True)


def _compared(ends: pd.DataFrame, at_ns: int | None) -> dict[tuple[int, int], _Pair]:
    """Each rank compared with the lowest rank of each operation; without a moment `at_ns` to which offsets refer, no drift."""
    first = ends.drop_duplicates("operation")
    both = ends.merge(first, on="operation", suffixes=("", "_first"))
    both = both[both["rank"] != both["rank_first"]].sort_values(["rank_first", "rank", "end_ns_first"])
    columns = [both[name].to_numpy(np.int64) for name in ("rank_first", "rank", "end_ns_first", "end_ns")]
    starts = np.flatnonzero(np.any(np.diff(np.stack(columns[:2]), prepend=-1) != 0, axis=0))
    pairs: dict[tuple[int, int], _Pair] = {}
    for start, stop in itertools.pairwise([*starts.tolist(), len(both)]):
        if stop - start >= MIN_MATCHES:
            ranks = int(columns[0][start]), int(columns[1][start])
            pairs[ranks] = _line(columns[2][start:stop], columns[3][start:stop], at_ns)
    return pairs


def _line(first_ns: Ints, second_ns: Ints, at_ns: int | None) -> _Pair:
    """Offset and drift of the second clock against the first; the ends of the first are in order."""
    differences_ns = second_ns - first_ns
    base_ns = int(np.sort(differences_ns)[len(differences_ns) // 2])
    rest = (differences_ns - base_ns).astype(np.float64)
    moments = np.zeros(len(rest)) if at_ns is None else (first_ns - at_ns).astype(np.float64)
    drift = _slope(moments, rest)
    rest = rest - drift * moments
    offset = float(np.median(rest))
    sigma = max(robust.sigma(rest), _ROUNDING_NS)
    variance = sigma**2 / len(rest)
    if drift:
        variance += (_slope_error(moments, sigma) * float(np.median(moments))) ** 2
    return _Pair(base_ns + round(offset), drift, variance, len(rest))


def _slope(moments: Floats, rest: Floats) -> float:
    """The median slope between the first and the second half of the points; 0 where it is not surely different from 0."""
    half = len(moments) // 2
    if len(moments) < MIN_MATCHES_FOR_DRIFT:
        return 0.0
    spans = moments[-half:] - moments[:half]
    if not (spans > 0).all():
        return 0.0
    slope = float(np.median((rest[-half:] - rest[:half]) / spans))
    left = rest - slope * moments
    sigma = max(robust.sigma(left), _ROUNDING_NS)
    return slope if _SURE * _slope_error(moments, sigma) < abs(slope) < MAX_DRIFT else 0.0


def _slope_error(moments: Floats, sigma: float) -> float:
    return sigma / (math.sqrt(len(moments)) * max(float(moments.std()), 1.0))


def _largest_part(pairs: Mapping[tuple[int, int], _Pair]) -> dict[int, _Pair]:
    """Every rank of the largest connected set compared with its lowest one, along the pairs with the least variance."""
    neighbors: dict[int, list[tuple[int, _Pair]]] = {}
    for (a, b), pair in pairs.items():
        neighbors.setdefault(a, []).append((b, pair))
        neighbors.setdefault(b, []).append((a, pair.reversed()))
    largest: dict[int, _Pair] = {}
    seen: set[int] = set()
    for start in sorted(neighbors):
        if start not in seen:
            part = _surest_paths(start, neighbors)
            seen.update(part)
            largest = max(largest, part, key=len)
    return largest


def _surest_paths(start: int, neighbors: Mapping[int, list[tuple[int, _Pair]]]) -> dict[int, _Pair]:
    found: dict[int, _Pair] = {}
    queue = [(0.0, start, 0, 0.0, 0)]
    while queue:
        variance, rank, offset_ns, drift, num_matches = heapq.heappop(queue)
        if rank in found:
            continue
        found[rank] = _Pair(offset_ns, drift, variance, num_matches)
        for other, pair in neighbors[rank]:
            if other not in found:
                step = (variance + pair.variance, other, offset_ns + pair.offset_ns, drift + pair.drift, pair.num_matches)
                heapq.heappush(queue, step)
    matches = [pair.num_matches for _, pair in neighbors[start]]
    found[start] = _Pair(0, 0.0, 0.0, max(matches, default=0))
    return found


def _distance(clocks: Mapping[int, Clock], ends: pd.DataFrame) -> pd.DataFrame:
    """How far each end is from the middle of its operation after the correction: `rank`, `distance_ns`; of ranks with a clock."""
    common = aligned(ends.assign(start_ns=ends["end_ns"]), clocks)
    common = common[common["start_ns"].notna().to_numpy(dtype=bool)]
    moments = common["start_ns"].astype("int64")
    distance = moments - moments.groupby(common["operation"]).transform("min")
    middle = distance.groupby(common["operation"]).transform("median")
    return pd.DataFrame({"rank": common["rank"], "distance_ns": distance - middle})
