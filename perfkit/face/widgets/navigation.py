"""Navigation: links from one page to the pages that answer what it leaves open."""

from __future__ import annotations

import os
from itertools import pairwise
from urllib.parse import quote

from perfkit.core import settings
from perfkit.core.resources import pages
from perfkit.core.texts import t
from perfkit.face.widgets import context
from perfkit.face.widgets.view import Content


def page_link(name: str, **values: object) -> str:
    """The address of the page `name`, in the app or in JupyterLab, with `values` after # to restore a view."""
    suffix = "" if settings.in_app() else ".ipynb"
    hash_ = "&".join(f"{key}={quote(str(value), safe='/:,')}" for key, value in values.items())
    return f"{name}{suffix}" + (f"#{hash_}" if hash_ else "")


CLASSIC_WAY = ("01", "10", "11", "12", "13", "18", "15", "04", "05", "03", "06", "02", "22", "21")
"""The pages as the classic guides walk them: profile, operators, communication, memory, recomputation, then the strategy again."""


def next_pages(*names: str, page: str = "", label: str = "", **why: str) -> Content:
    """Links to the pages `names` (numbers such as "02" do), with a reason each as `p02="..."`; none given: the page that follows.

    Pages that do not exist are left out. In a project that goes the classic way its next page stands first.
    """
    known = pages(settings.pages_folder())
    project = context.current_project()
    if names and project is not None and project.cycle_order == "classic":
        names = tuple(dict.fromkeys((*_classic_next(page or _here()), *names)))
    wanted = [found for name in names for found in known if name in (found.name, found.number)]
    if not names:
        wanted = [found for found in known if found.name > (page or _here())][:1]
    reasons = {found.name: t(why.get(f"p{found.number}", "")) for found in wanted}
    links = [{"href": page_link(found.name), "title": t(found.title), "why": reasons[found.name]} for found in wanted]
    return Content(kind="links", content={"label": t(label) if label else t("Next"), "links": links})


def _here() -> str:
    return os.environ.get("SCRIPT_NAME", "").rsplit("/", 1)[-1]


def _classic_next(page: str) -> tuple[str, ...]:
    """The page that the classic guides turn to after `page`; none off their way or at its end."""
    after = dict(pairwise(CLASSIC_WAY)).get(page[:2])
    return () if after is None else (after,)
