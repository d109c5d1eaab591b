"""Navigation: the rail of pages at the left of the app, built from the notebooks folder alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from perfkit.core.resources import GROUP_ORDER, Page, pages

ROOT_PAGE = "00_start_here"


@dataclass(frozen=True, slots=True)
class Navigation:
    """What the template needs: the pages by group in order, the open page, and its neighbours."""

    groups: tuple[tuple[str, tuple[Page, ...]], ...]
    current: Page | None
    previous: Page | None
    following: Page | None


def navigation(folder: Path, name: str) -> Navigation:
    """The rail of the pages in `folder` with the page `name` open."""
    groups: dict[str, list[Page]] = {}
    for page in pages(folder):
        groups.setdefault(page.group, []).append(page)
    ordered = [(group, tuple(groups[group])) for group in sorted(groups, key=GROUP_ORDER.index)]
    listed = [page for _, members in ordered for page in members]  # neighbours are those that stand so in the rail
    index = next((index for index, page in enumerate(listed) if page.name == name), None)
    return Navigation(
        groups=tuple(ordered),
        current=None if index is None else listed[index],
        previous=None if not index else listed[index - 1],
        following=None if index is None or index + 1 == len(listed) else listed[index + 1],
    )
