"""Module lanes of a timeline: when every module of the network ran, on the host and on the device, inside of one another.

As with the overlap analysis they are a run of their own, so that the tiles of a timeline serve and keep them like any thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from perfkit.core.run import Run
from perfkit.explain.module_spans import module_spans
from perfkit.face.widgets.timelines._overlap import made_run

KIND = "module"
_KEY_SUFFIX = "-modules"


def module_run(run: Run) -> Run | None:
    """A run whose host threads are the modules of each thread and stream; None if no host was recorded."""
    return made_run(run, _KEY_SUFFIX, _pieces) if run.has("host") else None


def _pieces(run: Run, rank: int, columns: Sequence[str]) -> Iterator[pd.DataFrame]:
    rows = module_spans(run, rank).rename(columns={"place": "thread"}).assign(rank=rank, kind=KIND)
    yield rows.loc[:, list(columns)]
