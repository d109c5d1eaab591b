"""Raw events of Kineto traces: what a test computes from them shares nothing with the package."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

from perfkit.core.run import Run
from perfkit.record.load import load

TRACES = Path(__file__).parents[1] / "data" / "traces"


@cache
def read(path: str | Path) -> Run:
    """A run below the samples, read once for all tests of a file; nobody changes its tables."""
    return load(TRACES / path, cache=False)


@cache
def spans(path: str) -> list[dict[str, Any]]:
    """The spans of a trace below the samples, times as decimals of us."""
    with gzip.open(TRACES / path, "rt", encoding="utf-8") as file:
        document = json.load(file, parse_float=Decimal)
    return [event for event in document["traceEvents"] if event.get("ph") == "X"]


def ns(us: Any) -> int:
    """A time of a trace in whole ns."""
    return int(Decimal(us) * 1000)
