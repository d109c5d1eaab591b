"""Navigation: links from one page to the pages that answer what it leaves open."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote

import IPython

from perfkit.core import settings
from perfkit.core.resources import notebooks_folder, pages
from perfkit.core.texts import say, t, told
from perfkit.face.widgets import context
from perfkit.face.widgets.view import Content


def page_link(name: str, **values: object) -> str:
    """The address of the page `name`, in the app or in JupyterLab, with `values` after # to restore a view."""
    suffix = "" if settings.in_app() else ".ipynb"
    hash_ = "&".join(f"{key}={quote(str(value), safe='/:,')}" for key, value in values.items())
    return f"{name}{suffix}" + (f"#{hash_}" if hash_ else "")


CLASSIC_WAY = ("01", "10", "11", "12", "13", "18", "15", "04", "05", "03", "06", "02", "22", "21")
"""The pages as the classic guides walk them: profile, operators, communication, memory, recomputation, then the strategy again."""


class Links(Content):
    """Links to pages, and a button that makes a notebook of this one with what was chosen on it."""

    def __init__(self, content: dict[str, object], page: Path | None) -> None:
        self._page = page
        super().__init__(kind="links", content={**content, "notebook": page is not None})

    def on_message(self, message: dict[str, Any]) -> None:
        """The button was pressed: the notebook lies in the project, or is sent where nothing can be written."""
        from perfkit.face.widgets.new_notebook import keep_notebook, with_choices  # noqa: PLC0415  it knows steps and pickers

        shell = IPython.get_ipython()
        if message.get("type") != "notebook" or self._page is None or shell is None:
            return
        text = with_choices(self._page, shell.user_ns)
        kept = keep_notebook(self._page.stem, text)
        if kept is None:
            self.send({"type": "notebook", "name": self._page.name, "text": text})
        else:
            said = say("Written to the project: {file}. It opens with: perfkit serve --lab", file=f"{kept.parent.name}/{kept.name}")
            self.send({"type": "notebook", "told": told(said)})


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
    links = [
        {
            "href": page_link(found.name),
            "title": f"{found.number} {t(found.short)}",
            "why": t(why.get(f"p{found.number}", found.title)),
        }
        for found in wanted
    ]
    return Links({"label": t(label) if label else t("Next"), "links": links}, _file_of(page or _here()))


def _file_of(page: str) -> Path | None:
    """The file of this page: in JupyterLab the one that is open there, in the app that of the page; None where there is none."""
    session = Path(os.environ.get("JPY_SESSION_NAME", ""))
    if session.suffix == ".ipynb" and session.is_file():
        return session
    path = (settings.pages_folder() or notebooks_folder()) / f"{page}.ipynb"
    return path if page and path.is_file() else None


def _here() -> str:
    """The name of this page: the app says it, and JupyterLab names the notebook's file."""
    return Path(os.environ.get("SCRIPT_NAME") or os.environ.get("JPY_SESSION_NAME", "")).name.removesuffix(".ipynb")


def _classic_next(page: str) -> tuple[str, ...]:
    """The page that the classic guides turn to after `page`; none off their way or at its end."""
    after = dict(pairwise(CLASSIC_WAY)).get(page[:2])
    return () if after is None else (after,)
