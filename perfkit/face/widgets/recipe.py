"""Recipe: what a step is made of, before a page draws it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from perfkit.face.widgets.answer import Whole
from perfkit.face.widgets.entries import Button, Entry
from perfkit.face.widgets.panel import Empty
from perfkit.face.widgets.values import Value

if TYPE_CHECKING:
    from perfkit.face.widgets.step_view import StepView


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """What a step is made of: its function, what it follows by parameter, what its visitor sets, and how it is shown.

    `show(view, result)` makes the answer where it is not made of what the function returns. With `ahead` the function is one of
    its parameters alone, and may run for a value that nobody asked for yet.
    """

    name: str
    title: str
    function: Callable[..., Any]
    sources: Mapping[str, Value] = field(default_factory=dict)
    entries: Mapping[str, Entry] = field(default_factory=dict)
    constants: Mapping[str, Any] = field(default_factory=dict)
    choose: str = ""
    sets: Entry | None = None
    several: int = 0
    settled: bool = False
    ahead: bool = False
    button: str = ""
    buttons: tuple[Button, ...] = ()
    help: str = ""
    unless: Callable[..., str] | None = None
    refresh_s: float = 0.0
    empty: Empty | None = None
    follows_log: bool = False
    folded: bool = False
    show: Callable[[StepView, Any], Whole] | None = None
