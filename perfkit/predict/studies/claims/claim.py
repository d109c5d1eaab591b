"""What a claim is, and how it is judged: by the figure that it states and the one that is computed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from perfkit.core.spec.plan import Plan

Verdict = Literal["reproduced", "explained", "contradicted"]
CLOSE = 0.005


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim of a guide in own words.

    `guide` is its number and section, `requirement` or `erratum` (X...) what it is called elsewhere. `computed` gives the figure in
    `unit`; where it differs from what is `stated` by more than half a percent, `otherwise` may give the figure of another reading
    that meets it, and `why` says which. A claim without a figure is judged by `why` alone: its facts are `contradicts`.
    """

    guide: str
    number: str
    claim: str
    stated: float | None = None
    computed: Callable[[], float] | None = None
    unit: str = ""
    otherwise: Callable[[], float] | None = None
    why: str = ""
    close: float = CLOSE
    of_plan: Callable[[Plan], float] | None = None

    @property
    def verdict(self) -> Verdict:
        """How the figure that is computed stands to the one that is stated."""
        if self.computed is None or self.stated is None:
            return "contradicted"
        if self._meets(self.computed()):
            return "reproduced"
        return "explained" if self.otherwise is not None and self._meets(self.otherwise()) else "contradicted"

    def _meets(self, value: float) -> bool:
        stated = self.stated or 0.0
        return abs(value - stated) <= self.close * abs(stated) if stated else value == 0
