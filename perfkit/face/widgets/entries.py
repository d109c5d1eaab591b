"""Entries: the controls of a step. Each is a parameter of the step's function, named by the keyword it is given under.

    step(run=open_run, unit=Choice("ms", "%"), top=Slider(5, 100, default=20, label="Largest"))

Options and limits may be a function of what the step knows, by the names of its parameters: `Choice(lambda run: run.ranks)`. A
default that is one fills the control, anew when it is asked of something else: `Slider(default=lambda plan: …)`. `visible` says
when a control is of use: `Text(visible=lambda meaning: meaning == "ranks")`. An entry that is given to a second step is drawn in
the first one and followed by both. A `Button` does something with what stands in the controls of its step.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from perfkit.face.widgets import control as drawn
from perfkit.face.widgets.status import NothingYet
from perfkit.face.widgets.values import Value

Default = Any
"""A value, or a function of the step's parameters that gives it."""
Visible = Callable[..., bool] | None
Known = Callable[[str, Any], Any]
"""Gives the value of a parameter of the step, by its name and the state of its entries."""
_FEW = 4
_SHORT = 14


class Entry:
    """What a visitor sets; `.value` is what stands there. With `shared` it is kept in the page's address under its name."""

    def __init__(self, default: Any, *, shared: bool, visible: Visible = None, **words: Any) -> None:
        self._make_default = default if callable(default) else None
        self._asks = tuple(inspect.signature(default).parameters) if callable(default) else ()
        self.default = None if callable(default) else default
        self.shared, self._visible, self._words = shared, visible, words
        self.source: Value | None = None
        self.set: Callable[[Any], None] = self._keep

    def _keep(self, value: Any) -> None:
        """Set what stands there; on a page as a visitor would, in the step that draws it."""
        self.default = value

    @property
    def follows(self) -> bool:
        """Whether something that the step knows fills the control."""
        return self._make_default is not None

    def filled(self, known: Known, state: Any) -> tuple[dict[str, Any], Any]:
        """What the default of the control is made of now, by name, and what it is; None if it follows nothing."""
        if self._make_default is None:
            return {}, None
        asked = {name: known(name, state) for name in self._asks}
        return asked, self._make_default(**asked)

    def _drawn(self, known: Known) -> dict[str, Any]:
        """The words of the control, and when it is seen."""
        return {**self._words, "visible": None if self._visible is None else seen(self._visible, known)}

    @property
    def value(self) -> Any:
        """What stands there now; the default as long as no step has the entry."""
        return self.default if self.source is None else self.source.wait()

    def control(self, name: str, known: Known) -> drawn.Control:
        """The control of the state's part `name`."""
        raise NotImplementedError


class Choice(Entry):
    """One of `options`, or several with `multiple`: values, pairs of label and value, or one function that gives them.

    The first option is the default. Few and short ones stand side by side, any with `buttons`.
    """

    def __init__(
        self,
        *options: Any,
        default: Default = None,
        label: str = "",
        unit: str = "",
        multiple: bool = False,
        buttons: bool = False,
        shared: bool = False,
        key: str = "",
        help: str = "",
        visible: Visible = None,
    ) -> None:
        self._buttons = buttons
        self._make = options[0] if len(options) == 1 and callable(options[0]) else None
        self._options = options if self._make is None else ()
        self._multiple = multiple
        values = drawn.option_list(self._options, None)
        first = default if default is not None else () if multiple else values[0][1] if values else None
        super().__init__(first, shared=shared, visible=visible, label=label, unit=unit, key=key, help=help)

    def control(self, name: str, known: Known) -> drawn.Choice:
        """Options in a list, or side by side."""
        short = [len(str(option[0] if isinstance(option, tuple) else option)) <= _SHORT for option in self._options]
        return drawn.Choice(
            path=name,
            options=self._options if self._make is None else _following(self._make, known),
            multiple=self._multiple,
            buttons=self._buttons or (bool(short) and len(short) <= _FEW and all(short)),
            **self._drawn(known),
        )


class Slider(Entry):
    """A number between `low` and `high`, moved or typed; `scale="log"` spaces them by ratio, `values` lists the allowed ones."""

    def __init__(
        self,
        low: float = 0,
        high: float = 100,
        *,
        default: Default = None,
        label: str = "",
        unit: str = "",
        step: float = 1,
        scale: Any = "linear",
        values: Sequence[float] | Callable[..., Sequence[float]] | None = None,
        shared: bool = False,
        key: str = "",
        help: str = "",
        visible: Visible = None,
    ) -> None:
        self._limits, self._make = {"low": low, "high": high, "step": step, "scale": scale}, values
        super().__init__(
            low if default is None else default, shared=shared, visible=visible, label=label, unit=unit, key=key, help=help
        )

    def control(self, name: str, known: Known) -> drawn.Slider:
        """A slider."""
        values = _following(self._make, known) if callable(self._make) else self._make
        return drawn.Slider(path=name, values=values, **self._limits, **self._drawn(known))


class Number(Entry):
    """A typed number, kept within `low` and `high`. A field with `empty` may be left empty and then holds that value."""

    def __init__(
        self,
        default: Default = 0,
        *,
        low: float = -math.inf,
        high: float = math.inf,
        label: str = "",
        unit: str = "",
        step: float | None = None,
        empty: float | None = None,
        placeholder: str = "",
        shared: bool = False,
        key: str = "",
        help: str = "",
        visible: Visible = None,
    ) -> None:
        self._limits = {"low": low, "high": high, "step": step, "empty": empty, "placeholder": placeholder}
        super().__init__(default, shared=shared, visible=visible, label=label, unit=unit, key=key, help=help)

    def control(self, name: str, known: Known) -> drawn.Number:
        """A field."""
        return drawn.Number(path=name, **self._limits, **self._drawn(known))  # type: ignore[arg-type]


class Text(Entry):
    """A line of text, taken when the visitor presses Enter or leaves the field."""

    def __init__(
        self,
        default: Default = "",
        *,
        label: str = "",
        unit: str = "",
        placeholder: str = "",
        max_length: int = 4_000,
        shared: bool = False,
        key: str = "",
        help: str = "",
        visible: Visible = None,
    ) -> None:
        self._max_length = max_length
        super().__init__(
            default, shared=shared, visible=visible, label=label, unit=unit, placeholder=placeholder, key=key, help=help
        )

    def control(self, name: str, known: Known) -> drawn.Text:
        """A field."""
        return drawn.Text(path=name, max_length=self._max_length, **self._drawn(known))


class Toggle(Entry):
    """On or off."""

    def __init__(
        self,
        default: Default = False,
        *,
        label: str = "",
        shared: bool = False,
        key: str = "",
        help: str = "",
        visible: Visible = None,
    ) -> None:
        super().__init__(default, shared=shared, visible=visible, label=label, key=key, help=help)

    def control(self, name: str, known: Known) -> drawn.Toggle:
        """A switch."""
        return drawn.Toggle(path=name, **self._drawn(known))


class Folder(Entry):
    """A file or folder to read; of pickers."""

    def __init__(self, default: Default, options: drawn.Options, **words: Any) -> None:
        self._options = options
        super().__init__(default, shared=True, **words)

    def control(self, name: str, known: Known) -> drawn.PathPicker:
        """A picker."""
        return drawn.PathPicker(path=name, options=self._options, **self._drawn(known))


@dataclass(frozen=True, kw_only=True, slots=True)
class Button:
    """A button of a step: `run` takes parameters of the step by their names, does something and gives the sentence that says what.

    A PerfkitError that it raises is shown beside the button. The step runs anew after it.
    """

    label: str
    run: Callable[..., str]
    help: str = ""
    visible: Visible = None

    @property
    def name(self) -> str:
        """What it is called: its label in one word."""
        return self.label.lower().replace(" ", "-")


def seen(visible: Callable[..., bool], known: Known) -> Callable[[Any], bool]:
    """`visible` as a function of the step's state; what it asks for and is not there yet hides the control."""
    ask = _following(visible, known)

    def is_seen(state: Any) -> bool:
        try:
            return bool(ask(state))
        except NothingYet:
            return False

    return is_seen


def _following(make: Callable[..., Any], known: Known) -> Callable[[Any], Any]:
    """`make`, whose parameters are those of a step, as a function of the step's state."""
    names = tuple(inspect.signature(make).parameters)
    return lambda state: make(**{name: known(name, state) for name in names})
