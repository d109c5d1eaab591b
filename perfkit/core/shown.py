"""Shown: what shows itself in a notebook as a page would, in a terminal as text, and draws itself.

How it is shown is `perfkit.face.charts.objects`. The core knows none of the other rooms, so it is looked up when somebody looks.
"""

from __future__ import annotations

import importlib
from typing import Any

PICTURES = "perfkit.face.charts.objects"


class Shown:
    """An object whose cell in a notebook shows a sentence, bars and a table; `plot()` gives its chart."""

    __slots__ = ()

    def plot(self) -> Any:
        """The Altair chart of this object, the one of its page. Raises InputError or NotMeasuredError where there is none."""
        return importlib.import_module(PICTURES).chart_of(self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """What Jupyter shows: HTML that asks for nothing, and the text of a terminal."""
        shown = importlib.import_module(PICTURES)
        return {"text/html": shown.html_of(self), "text/plain": shown.text_of(self)}
