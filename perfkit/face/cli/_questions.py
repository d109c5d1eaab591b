"""The questions of a run as the command `ask` offers them: one option each for what their methods take."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from perfkit.core.questions import Questions


@dataclass(frozen=True, slots=True)
class Option:
    """One parameter of a question, and how its text is read."""

    name: str
    read: Callable[[str], Any]
    default: Any
    required: bool


def questions() -> Mapping[str, Callable[..., Any]]:
    """The methods of a run that answer with a table, by name."""
    found = {name: value for name, value in vars(Questions).items() if not name.startswith("_") and inspect.isfunction(value)}
    return {name: value for name, value in found.items() if inspect.signature(value).return_annotation == "pd.DataFrame"}


def options_of(question: Callable[..., Any]) -> list[Option]:
    """What a question takes besides the run."""
    parameters = list(inspect.signature(question).parameters.values())[1:]
    return [
        Option(
            each.name,
            _reader(str(each.annotation)),
            None if each.default is each.empty else each.default,
            each.default is each.empty,
        )
        for each in parameters
    ]


def _reader(annotation: str) -> Callable[[str], Any]:
    if annotation.startswith("Iterable[int]"):
        return _numbers
    return int if annotation.startswith("int") else str


def _numbers(text: str) -> list[int]:
    """Numbers with commas between: 0,1,5."""
    return [int(number) for number in text.split(",")]
