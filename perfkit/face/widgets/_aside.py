"""Aside: a large recording read in another process, which keeps it as tables.

The kernel of a page then answers meanwhile and stays small, and a visitor who leaves ends the work. The page opens what was kept.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from perfkit.core.units import MIB
from perfkit.record import workers
from perfkit.record.load import bytes_to_convert, load

MIN_BYTES = 64 * MIB
"""Less is read in the time in which a process starts."""
Report = Callable[..., None]


def convert(place: Path, report: Report) -> None:
    """Read a large recording and keep it as tables, unless that is done. Raises as `load` does."""
    if bytes_to_convert(place) >= MIN_BYTES:
        workers.aside(_convert, str(place), report=report, name=place.name)


def _convert(path: str, report: Report) -> None:
    load(path, progress=report)
