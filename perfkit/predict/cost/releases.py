"""Releases: which release of MindFormers a plan is priced as, and how many minor releases that is before the reference.

Steps were measured under 0.7 to 1.6 (`data/reference/step_time.csv`); what a release saves is known between these alone, so one
before or after them is priced as the nearest of them. MindFormers counts 0.x and 1.x; a higher number (2.3.1, 2024.1) is that of
another program, mostly MindSpore's own, and says as little as none.
"""

from __future__ import annotations

import re

REFERENCE = 13
"""1.3 in minor releases, to which calibrations refer."""
FIRST, LAST = 7, 16
OTHER_PROGRAM = 2


def releases_before(release: str) -> float:
    """Minor releases between the one that is priced and the reference."""
    return float(REFERENCE - _priced(release))


def priced_release(release: str) -> str:
    """The release that a plan which states `release` is priced as, as "1.3"."""
    return "{}.{}".format(*divmod(_priced(release), 10))


def is_priced_as_stated(release: str) -> bool:
    """Whether what `release` saves was measured."""
    return _counted(release) == _priced(release)


def _priced(release: str) -> int:
    counted = _counted(release)
    return REFERENCE if counted is None else min(max(counted, FIRST), LAST)


def _counted(release: str) -> int | None:
    numbers = [int(number) for number in re.findall(r"\d+", release)[:2]]
    return 10 * numbers[0] + numbers[1] if len(numbers) == 2 and numbers[0] < OTHER_PROGRAM else None
