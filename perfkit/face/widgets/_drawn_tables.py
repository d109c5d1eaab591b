"""Drawn tables: those of the newest answer and of a few before it, which the page shows until the newest has arrived.

A row is chosen by its place. What stands there may be another row already when the kernel reads the message; what the visitor meant
is the row of the table that was on the screen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfkit.face.widgets.table import Table

KEPT = 4
"""Answers; who clicks while a slider moves sees one or two that are older."""


class DrawnTables:
    """Tables by the version of the answer they belong to."""

    def __init__(self) -> None:
        self._by_version: dict[int, Mapping[str, Table]] = {}

    def draw(self, version: int, tables: Mapping[str, Table]) -> None:
        """Take the tables of an answer; the oldest that are kept go."""
        kept = {known: own for known, own in self._by_version.items() if known != version}
        self._by_version = dict([*kept.items(), (version, tables)][-KEPT:])

    def row(self, message: Mapping[str, Any]) -> dict[str, Any] | None:
        """The row of a `row` message, by column name; None where its table is no longer known. Without a version, of the newest.

        Raises IndexError for a row that the table does not have.
        """
        newest = next(reversed(self._by_version), 0)
        table = self._by_version.get(int(message.get("version", newest)), {}).get(message["table"])
        return None if table is None else table.row(int(message["row"]))
