"""Shared values: the paths of a panel's state that the page's address has too, some of them with other panels of the page.

A panel tells only what became another value in it, and follows what became another value elsewhere. So an old answer does not take
a newer choice back, and panels that do not accept each other's values come to rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perfkit.face.widgets.page_state import PageState, address_text, several


class SharedValues:
    """`paths` of a panel's states, each under its own name in `page`, and its `own` ones under its `name`; `state` is the first.

    Own ones are told once they are another value than the panel began with, so that an address is no longer than it must be.
    """

    def __init__(self, page: PageState, paths: tuple[str, ...], state: Any, *, own: Sequence[str] = (), name: str = "") -> None:
        self._page = page
        self._private = frozenset(own) - frozenset(paths)
        self._untold = set(self._private)
        # In the order of the controls: a device sets limits that a later control may have set otherwise.
        self._names = {path: f"{name}.{path}" if path in self._private else path for path in dict.fromkeys((*own, *paths))}
        self._agreed: dict[str, str] = {}
        self._own = {path: address_text(state[path]) for path in self._names}

    def begin_with(self, values: Mapping[str, Any]) -> None:
        """Let the page have other values by path; own ones where it has any."""
        told = {path: name for path, name in self._names.items() if path not in self._private or name in self._page.values}
        self._page.set({told[path]: value for path, value in values.items() if path in told})

    def news(self, state: Any) -> dict[str, Any]:
        """What others have changed: values of the page that are neither the state's nor the ones last agreed on, typed as its.

        Where the page has what was agreed on, it is the visitor who changes the state here.
        """
        found = {}
        for path, name in self._names.items():
            text, own = self._page.values.get(name), state[path]
            if text is not None and text not in (address_text(own), self._agreed.get(path)):
                found[path] = _typed(text, own)
        return found

    def took(self, path: str, before: Any, after: Any) -> None:
        """The value of the page at `path` was taken over, as far as it was accepted."""
        text = self._page.get(self._names[path])
        old, own = (address_text(state[path]) for state in (before, after))
        # What was brought within limits is told once; panels with different limits would go on telling each other. The first
        # value of a panel is told if the page has one that is not accepted.
        self._own[path] = text if path not in self._agreed else old if old != own != text else own
        self._agreed[path] = text

    def tell(self, state: Any, origin: object) -> None:
        """Tell the page what has become another value here, and what it has no value for yet."""
        fresh = {}
        for path, name in self._names.items():
            text, known = address_text(state[path]), self._page.values.get(name)
            changed = text not in (self._agreed.get(path), self._own[path])
            if known is None and path in self._untold:
                self._untold.remove(path)  # what it began with, once its options were known
            elif text != known and (changed or (known is None and text and path not in self._private)):
                fresh[name] = text
            if text == known or name in fresh:
                self._agreed[path] = text
            self._own[path] = text
        if fresh:
            self._page.set(fresh, origin=origin)


def _typed(text: str, like: Any) -> Any:
    if isinstance(like, bool):
        return text == str(True)
    if isinstance(like, list | tuple):
        return several(text)
    for kind in (int, float):
        if text and isinstance(like, kind) and not isinstance(like, bool):
            try:
                return kind(text)
            except ValueError:
                return text
    return text
