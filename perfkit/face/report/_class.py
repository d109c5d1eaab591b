"""Class: what a class has done as one HTML page: the picture, the most frequent mistakes, exercises, students and teams."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from perfkit.core import quantity
from perfkit.face.charts.classroom import progress_map
from perfkit.face.report._page import html_page
from perfkit.face.report._parts import Drawing, Part, table_part
from perfkit.project.experiments.export import Section
from perfkit.teach import report


def class_results(rows: Sequence[Mapping[str, Any]], teams: Mapping[str, str], *, anonymous: bool = False) -> str:
    """The page of rows of `attempt`; `anonymous` has s01, s02, ... in place of names."""
    shown = report.without_names(rows) if anonymous else [dict(row) for row in rows]
    return html_page(tuple(_parts(shown, rows, teams)))


def _parts(shown: list[dict[str, Any]], rows: Sequence[Mapping[str, Any]], teams: Mapping[str, str]) -> Iterator[Part]:
    students = report.by_student(shown)
    sentence = f"{len(students)} students gave {sum(bool(row['answer']) for row in shown)} answers to exercises and rounds."
    yield Part(Section(title="Results of a class", level=1, text=(sentence,)))
    if students:
        alt = "One cell a student and exercise: untouched, trying, right with a hint, right, or shown; numbers are wrong tries."
        picture = Drawing(
            progress_map(report.cells(shown)), title="Who is where", alt=alt, sources=("class.sqlite, table attempt",)
        )
        yield Part(Section(title="Progress"), drawings=(picture,))
    tables = {
        "Most frequent wrong answers": report.mistakes(shown),
        "By exercise": report.by_exercise(shown),
        "By team": report.by_team(rows, teams),
        "By student": students,
    }
    for title, table in tables.items():
        if table:
            header = [quantity.label(name) for name in table[0]]
            yield table_part(
                title, header, [[quantity.text(name, value, absent="-") for name, value in row.items()] for row in table], level=2
            )
