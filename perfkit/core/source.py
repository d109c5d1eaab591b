"""Source: where a number comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["measured", "simulated", "computed", "published", "specified", "assumed"]


@dataclass(frozen=True, slots=True)
class Source:
    """The origin of a number: file and field, or formula and document."""

    kind: Kind
    where: str
    note: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.where}" + (f" ({self.note})" if self.note else "")
