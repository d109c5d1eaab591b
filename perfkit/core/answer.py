"""Answer: a frame that a run gives to a question. It knows its columns, and it can be drawn.

What draws is `perfkit.face.charts.answers`. The core knows none of the other rooms, so it is looked up when somebody asks, as the
answers are (`perfkit.core.questions`).
"""

from __future__ import annotations

import importlib
from typing import Any

import pandas as pd

from perfkit.core.questions import nearest

PICTURES = "perfkit.face.charts.answers"


class Answer(pd.DataFrame):
    """A frame that names the nearest columns when it is asked for one that it has not, and draws itself."""

    @property
    def _constructor(self) -> type[Answer]:
        return Answer

    def __getitem__(self, key: Any) -> Any:
        try:
            return super().__getitem__(key)
        except KeyError:
            wanted = [key] if isinstance(key, str) else list(key) if isinstance(key, (list, tuple)) else []
            wrong = [str(name) for name in wanted if name not in self.columns]
            if not wrong:
                raise
            raise KeyError("; ".join(nearest(name, map(str, self.columns)) for name in wrong)) from None

    def plot(self) -> Any:  # type: ignore[override]
        """The Altair chart of this answer, or of the part of it that is left: the one of the page, where a page shows it.

        Raises InputError for an answer that has no picture, such as that of `run.sql`. pandas draws with
        `pd.DataFrame(answer).plot`.
        """
        return importlib.import_module(PICTURES).picture(self)
