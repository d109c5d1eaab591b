"""Causes of lost time that are put into a recording: which pieces of it they stretch, and what a diagnosis has to name then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from benchmarks.diagnosis._timed_anew import Recording, Stretched
from perfkit.core.run import Run
from perfkit.explain.diagnose.rule import Finding

MS = 1_000_000
RULES = {
    "slow computing": ("slow-rank", "slow-operators"),
    "slow transfers": ("slow-link", "bandwidth-low"),
    "late data": ("data-feed",),
    "pause": ("host-pause",),
    "slow host": ("host-bound",),
    "blocking calls": ("frequent-sync",),
    "slow copies": ("host-copies",),
}
"""The rules of which one has to name a cause of each kind."""
GREW = {
    "slow computing": ("work",),
    "slow transfers": ("transfer", "unexplained"),
    "late data": ("feed", "host"),
    "pause": ("host",),
    "slow host": ("host",),
    "blocking calls": ("host",),
    "slow copies": ("copy",),
}
"""What a comparison with the baseline has to say grew: the first part of the ledger's cause, or communication without one."""


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause: its kind, how strong (`factor`, or `ms` of a pause), the ranks and steps that have it (empty: all)."""

    kind: str
    amount: float
    ranks: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    operator: str = ""

    @property
    def name(self) -> str:
        """What a person calls it."""
        who = f" rank {','.join(map(str, self.ranks))}" if self.ranks else ""
        when = f" steps {','.join(map(str, self.steps))}" if self.steps else ""
        return f"{self.kind} {self.amount:g}{f' of {self.operator}' if self.operator else ''}{who}{when}"


def about(finding: Finding, cause: Cause) -> bool:
    """Whether a finding is about a cause of this kind."""
    if finding.rule != "slower-than-before":
        return finding.rule in RULES[cause.kind]
    named = {str(one).split("/", maxsplit=1)[0] for one in finding.subject["causes"]}
    fits = "unexplained" not in GREW[cause.kind] or finding.part == "communication"
    return fits and bool(named & set(GREW[cause.kind]))


def put_in(recording: Recording, cause: Cause) -> Stretched:
    """What a cause stretches of a recording."""
    return _PUT_IN[cause.kind](recording, cause, _Where(recording, cause))


class _Where:
    """The ranks, steps and kernels that a cause concerns."""

    def __init__(self, recording: Recording, cause: Cause) -> None:
        kernels = recording.kernels
        self.ranks = cause.ranks or tuple(int(rank) for rank in kernels["rank"].unique())
        numbers = sorted(int(step) for step in kernels["step"].dropna().unique())
        self.steps = tuple(numbers[at] for at in cause.steps) if cause.steps else tuple(numbers)
        self.rows = kernels[kernels["rank"].isin(self.ranks) & kernels["step"].isin(self.steps).fillna(False).astype(bool)]

    def kinds(self, *kinds: str) -> pd.DataFrame:
        """The kernels of some kinds."""
        found: pd.DataFrame = self.rows[self.rows["kind"].isin(kinds).to_numpy(dtype=bool)]
        return found


def _kernels(kind: str) -> Callable[[Recording, Cause, _Where], Stretched]:
    def put(recording: Recording, cause: Cause, where: _Where) -> Stretched:
        rows = where.kinds(kind)
        rows = rows[~rows.index.isin(list(recording.inner))]  # what a collective copies is as slow as its links
        if cause.operator:
            rows = rows[rows["name"].astype(str).str.contains(cause.operator, regex=False).to_numpy(dtype=bool)]
        return Stretched(kernels_ns={int(at): round(length * (cause.amount - 1)) for at, length in rows["duration_ns"].items()})  # type: ignore[call-overload]  # a row number

    return put


def _transfers(recording: Recording, cause: Cause, where: _Where) -> Stretched:
    """Every member of a slow operation is slow: by what it lasts after the latest has come, where all were recorded."""
    rows = where.kinds("communication")
    starts = {
        at: int(recording.common(int(rank), np.array([start], dtype=np.int64))[0])
        for at, rank, start in rows[["rank", "start_ns"]].itertuples(name=None)
    }
    latest: dict[tuple[str, str, int], int] = {}
    for at, start in starts.items():
        instance = recording.instance[at]
        if instance is not None:
            latest[instance] = max(latest.get(instance, start), start)
    extra = {}
    for at, length in rows["duration_ns"].items():
        instance = recording.instance[int(str(at))]
        transfer = int(length) if instance is None else max(0, starts[at] + int(length) - latest[instance])  # type: ignore[index]
        extra[int(str(at))] = round(transfer * (cause.amount - 1))
    return Stretched(kernels_ns=extra)


def _late_data(recording: Recording, cause: Cause, where: _Where) -> Stretched:
    """The host waits before its first launch of a step, in the loader where the recording shows one."""
    return Stretched(pauses=[(rank, moment, round(cause.amount * MS)) for rank, moment in _moments(recording, where, first=True)])


def _pause(recording: Recording, cause: Cause, where: _Where) -> Stretched:
    return Stretched(pauses=[(rank, moment, round(cause.amount * MS)) for rank, moment in _moments(recording, where, first=False)])


def _moments(recording: Recording, where: _Where, *, first: bool) -> list[tuple[int, int]]:
    """By rank and step when its first kernel was launched, or one in the middle; where no host was recorded, when it began."""
    found = []
    for (rank, _), rows in where.rows.groupby(["rank", "step"]):
        launched = sorted(moment for at in rows.index if (moment := recording.launched[int(at)]) is not None)
        known = launched or sorted(recording.common(int(rank), rows["start_ns"].to_numpy(dtype=np.int64)).tolist())
        found.append((int(rank), known[0] - 1 if first else known[len(known) * 2 // 5] - 1))
    return found


def _slow_host(recording: Recording, cause: Cause, where: _Where) -> Stretched:
    windows = []
    for (rank, _), rows in where.rows.groupby(["rank", "step"]):
        launched = [moment for at in rows.index if (moment := recording.launched[int(at)]) is not None]
        if launched:
            windows.append((int(rank), min(launched), max(launched), cause.amount))
    return Stretched(host_factor=windows)


def _blocking(recording: Recording, cause: Cause, where: _Where) -> Stretched:
    """As many calls a step that wait for the kernel launched before them, evenly among the kernels that compute."""
    chosen: list[int] = []
    for _, rows in where.kinds("computing").groupby(["rank", "step"]):
        known = [int(at) for at in rows.index if recording.launched[int(at)] is not None]
        known.sort(key=lambda at: recording.launched[at] or 0)
        places = np.linspace(0, len(known) - 1, round(cause.amount) + 2).astype(int)[1:-1]
        chosen += [known[place] for place in places if known]
    return Stretched(waits=chosen)


_PUT_IN: dict[str, Callable[[Recording, Cause, _Where], Stretched]] = {
    "slow computing": _kernels("computing"),
    "slow copies": _kernels("copy"),
    "slow transfers": _transfers,
    "late data": _late_data,
    "pause": _pause,
    "slow host": _slow_host,
    "blocking calls": _blocking,
}


def repeated(run: Run, times: int) -> Run:
    """A recording of one step that goes on: the step so many times one after another; `noisy` makes their kernels differ.

    Ranks launch in every step as far apart as they did in the recorded one; a step is marked from the end of the one before.
    """
    steps = run.frame("steps")
    number = int(steps["step"].iloc[0])
    begin = steps["start_ns"].astype("int64")
    period = int((begin + steps["duration_ns"]).max() - begin.min())
    tables: dict[str, list[pd.DataFrame]] = {}
    moments = {"kernels": ["start_ns"], "collectives": ["start_ns"], "host": ["start_ns"], "steps": ["start_ns"]}
    moments["launches"] = ["start_ns", "launch_ns"]
    for turn in range(times):
        for name in (*moments, "step_parts"):
            rows = run.frame(name).copy()
            if "step" in rows and name != "step_parts":
                rows = rows[(rows["step"] == number).fillna(False).to_numpy(dtype=bool)]
            for column in moments.get(name, ()):
                rows[column] = rows[column] + turn * period
            if turn and name in ("host", "steps"):
                rows = _begun_earlier(rows, f"ProfilerStep#{number}", steps, (turn - 1) * period)
            if name == "host":
                rows = _renamed(rows, number, number + turn)
            if "step" in rows:
                rows["step"] = number + turn
            tables.setdefault(name, []).append(rows)
    whole = {name: pd.concat(rows, ignore_index=True) for name, rows in tables.items()}
    for name in ("kernels", "collectives", "launches", "host"):
        whole[name] = whole[name].sort_values(["rank", "start_ns"], kind="stable", ignore_index=True)
    return replace(run, tables=whole, cache_key="", notes=())


def _begun_earlier(rows: pd.DataFrame, mark: str, steps: pd.DataFrame, shift_ns: int) -> pd.DataFrame:
    """The rows whose steps, or marks of steps, begin where the step before, moved by so much, ended."""
    ends = (steps["start_ns"] + steps["duration_ns"]).set_axis(steps["rank"]) + shift_ns
    which = (rows["name"].astype(str) == mark) if "name" in rows else pd.Series(True, index=rows.index)
    begin = rows["start_ns"].where(~which, rows["rank"].map(ends))
    return rows.assign(start_ns=begin, duration_ns=rows["duration_ns"] + rows["start_ns"] - begin)


def _renamed(rows: pd.DataFrame, old: int, new: int) -> pd.DataFrame:
    names = rows["name"].astype(str).str.replace(f"ProfilerStep#{old}", f"ProfilerStep#{new}", regex=False)
    return rows.assign(name=names.astype("category"))


def noisy(recording: Recording, sigma: float, seed: int) -> Stretched:
    """Log-normal noise on every kernel that computes, from 0 upwards, as a cause of its own: no fault."""
    random = np.random.default_rng(seed)
    rows = recording.kernels[(recording.kernels["kind"] == "computing").to_numpy(dtype=bool)]
    factors = np.abs(random.normal(0.0, sigma, len(rows)))
    lengths = np.rint(rows["duration_ns"].to_numpy(dtype=np.float64) * factors).astype(np.int64)
    return Stretched(kernels_ns=dict(zip(rows.index.tolist(), lengths.tolist(), strict=True)))


def joined(causes: Sequence[Stretched]) -> Stretched:
    """Several causes at once; extra times of one kernel are summed."""
    extra: dict[int, int] = {}
    for one in causes:
        for at, length in one.kernels_ns.items():
            extra[at] = extra.get(at, 0) + length
    return Stretched(
        kernels_ns=extra,
        pauses=[pause for one in causes for pause in one.pauses],
        host_factor=[window for one in causes for window in one.host_factor],
        waits=[at for one in causes for at in one.waits],
        links=[link for one in causes for link in one.links],
    )
