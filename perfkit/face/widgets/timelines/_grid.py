"""Grid of a timeline's tiles, and what a page may ask for at once: the same for slices and for counters.

Tiles of width w hold 512 buckets of 2^w us, the first one from the base of the timeline on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

BUCKETS = 512
MIN_WIDTH, MAX_WIDTH = -9, 30
MAX_TILES = 64
MAX_UNITS = 512


def width_ns(width: int) -> int:
    """How long a tile is: 1 us at least, so that it can hold slices of 1 ns one by one."""
    wide = BUCKETS * 1000
    return wide << width if width >= 0 else wide >> -width


def place_of(request: Mapping[str, Any]) -> tuple[int, int, int]:
    """Width, first and last tile of a request; raises ValueError for one that no page of ours makes."""
    width, first, last = (int(request[name]) for name in ("width", "first", "last"))
    if not MIN_WIDTH <= width <= MAX_WIDTH or not 0 <= last - first < MAX_TILES or len(request["units"]) > MAX_UNITS:
        raise ValueError(f"no tiles {first} to {last} of width {width} of {len(request['units'])} units")
    return width, first, last
