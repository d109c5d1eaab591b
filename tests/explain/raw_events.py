"""Raw events of Kineto traces: what a test computes from them shares nothing with the package."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

TRACES = Path(__file__).parents[1] / "data" / "traces"


def spans(path: str) -> list[dict[str, Any]]:
    """The spans of a trace below the samples, times as decimals of us."""
    with gzip.open(TRACES / path, "rt", encoding="utf-8") as file:
        document = json.load(file, parse_float=Decimal)
    return [event for event in document["traceEvents"] if event.get("ph") == "X"]


def ns(us: Any) -> int:
    """A time of a trace in whole ns."""
    return int(Decimal(us) * 1000)
