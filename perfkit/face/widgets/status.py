"""Status: which of the six states a panel is in, and the words that the visitor reads there."""

from __future__ import annotations

import traceback
from typing import Any

from perfkit.core.errors import InputError, NotMeasuredError, PerfkitError
from perfkit.core.roots import told
from perfkit.core.texts import t
from perfkit.core.texts import told as in_words
from perfkit.face.widgets.worker import Cancelled


class NothingYet(PerfkitError):  # noqa: N818  it is no error: nobody did anything wrong
    """Raised by `compute` when there is nothing to compute from yet: the panel is empty, not wrong."""


class Waiting(NothingYet):
    """Raised where something above on the page has no answer yet: what is told of that one holds for this one."""


def loading(text: str = "", done: int = 0, total: int = 0, *, again: bool = False) -> dict[str, Any]:
    """Computing; with amounts once they are known. `again`: an older figure stays visible, greyed."""
    progress = {"text": in_words(text), "done": done, "total": total} if text else None
    return {
        "state": "loading",
        "text": t("Reading…") if text else t("Computing…"),
        "progress": progress,
        "cancellable": progress is not None,
        "again": again,
    }


def _message(error: Exception) -> str:
    """What an error says, as it was said."""
    return error.args[0] if error.args and isinstance(error.args[0], str) else str(error)


def failure(error: Exception, action: str = "") -> dict[str, Any]:
    """The state that `error` leads to; `action` is the label of the button of an empty panel."""
    if isinstance(error, Cancelled):
        return {"state": "empty", "title": t("Cancelled"), "text": t("Nothing was changed."), "retry": True}
    if isinstance(error, NothingYet):
        return {"state": "empty", "text": in_words(_message(error)), "action": action, "waits": isinstance(error, Waiting)}
    if isinstance(error, NotMeasuredError):
        return {
            "state": "unmeasured",
            "text": f"{t('Missing')}: {told(in_words(error.missing))}",
            "how": told(in_words(error.how_to_collect)),
        }
    if isinstance(error, InputError):
        count = len(error.problems)
        subject = told(in_words(error.subject))
        title = in_words(f"{subject}: {count} problem{'' if count == 1 else 's'}")
        return {"state": "error", "title": title, "problems": [told(in_words(problem)) for problem in error.problems]}
    if isinstance(error, PerfkitError):
        return {"state": "error", "title": t("This cannot be shown"), "problems": [told(in_words(str(error)))]}
    return {
        "state": "error",
        "title": t("perfkit failed here; this is a bug in perfkit, not in your data"),
        "problems": [told(f"{type(error).__name__}: {error}")],
        "details": told("".join(traceback.format_exception(error))),
        "retry": True,
    }
