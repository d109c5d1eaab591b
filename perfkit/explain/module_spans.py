"""Module spans: when every module of the network and every annotation ran, on the threads that were in it and on the device.

On the device a span lasts from the first to the last execution that was launched inside of it, by stream; what the autograd thread
launches belongs to the one in which its forward operator ran, and is a span of its own. What ran inside of a module lies inside of
its span, so that both draw as nested rows.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit.core.run import Run, empty
from perfkit.explain.module_tree import is_module
from perfkit.record.events.threads import HostEvents
from perfkit.record.readers.host import NONE, innermost

Ints = npt.NDArray[np.int64]
_HOST = ["name", "kind", "thread", "start_ns", "duration_ns"]
_LAUNCHES = ["stream", "start_ns", "duration_ns", "thread", "launch_ns", "forward_thread", "forward_ns"]
_WAYS = {"forward": ("thread", "launch_ns"), "backward": ("forward_thread", "forward_ns")}


def module_spans(run: Run, rank: int) -> pd.DataFrame:
    """`name`, `place` ("thread 7", "stream 3, forward", "stream 3, backward"), `start_ns`, `duration_ns` on the clock of the rank.

    A row each time that a module or an annotation ran, on its thread and on each stream on which something ran for it; none where
    no module was recorded.
    """
    host = [piece[is_module(HostEvents(piece))] for piece in run.pieces("host", rank=rank, columns=_HOST)]
    found = HostEvents(pd.concat([empty("host").loc[:, _HOST], *host], ignore_index=True))
    names = found.rows["name"].astype("object").str.removeprefix("nn.Module: ")
    place = "thread " + found.rows["thread"].astype("object").fillna("")
    parts = [_rows(names, place, found.starts, found.ends)]
    if len(found.rows):
        launches = run.frame("launches", ranks=[rank], columns=_LAUNCHES)
        parts += [_on_device(found, names, launches, way) for way in _WAYS]
    return pd.concat(parts, ignore_index=True)


def _rows(names: pd.Series, place: pd.Series, starts: Ints, ends: Ints) -> pd.DataFrame:
    return pd.DataFrame({"name": names, "place": place, "start_ns": starts, "duration_ns": ends - starts})


def _on_device(spans: HostEvents, names: pd.Series, launches: pd.DataFrame, way: str) -> pd.DataFrame:
    """The spans on the device of what began in modules, by the thread and the moment in which its call or its forward did."""
    thread, moment = _WAYS[way]
    rows = launches.dropna(subset=["start_ns", thread, moment])
    lanes = {name: lane for lane, name in enumerate(spans.threads)}
    asked = np.array([lanes.get(str(name), NONE) for name in rows[thread]], dtype=np.int64)
    around = innermost(spans.starts, spans.ends, spans.lanes, rows[moment].to_numpy(dtype=np.int64), asked)
    starts = rows["start_ns"].to_numpy(dtype=np.int64)
    stream = ("stream " + rows["stream"].astype("object")).fillna("no stream").to_numpy()
    events = pd.DataFrame({"span": around, "stream": stream, "start_ns": starts})
    events["end_ns"] = starts + rows["duration_ns"].to_numpy(dtype=np.int64)
    levels = []
    while len(events := events[(events["span"] != NONE).to_numpy(dtype=bool)]):
        levels.append(events)
        events = events.assign(span=spans.parents[events["span"].to_numpy()])
    groups = pd.concat(levels or [events]).groupby(["span", "stream"], as_index=False, sort=False)
    found = groups.agg(start_ns=("start_ns", "min"), end_ns=("end_ns", "max"))
    inside = names.take(found["span"].to_numpy(dtype=np.int64)).reset_index(drop=True)
    return _rows(inside, found["stream"] + f", {way}", found["start_ns"].to_numpy(), found["end_ns"].to_numpy())
