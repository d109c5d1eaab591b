"""Pasted: what a piece that was pasted into the header means, as the page shows it. Nothing of it is kept or written anywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from perfkit.core.errors import PerfkitError
from perfkit.core.roots import checked
from perfkit.core.spec.plan import Plan
from perfkit.core.texts import t, told
from perfkit.face.widgets import context
from perfkit.face.widgets.page_state import page_state


def explained(text: str) -> dict[str, Any]:
    """The message that answers a paste, read in the light of the open configuration.

    `{"type": "explained", "light": name of the configuration or "", "parts": [{"title", "line", "belongs", "says", "figures":
    [{"name", "value", "source"}], "problems": [{"severity", "label", "text", "fix"}], "corrected"}], "prose": [lines],
    "notes": [texts]}`, all of it text. Raises InputError for a text that is empty or too long.
    """
    from perfkit.explain.fragments import explain_fragment  # noqa: PLC0415  readers of all kinds
    from perfkit.explain.fragments.explained import shown  # noqa: PLC0415

    light, plan, note = _plan()
    found = explain_fragment(text, plan)
    return {
        "type": "explained",
        "light": light,
        "parts": [
            {
                "title": told(part.title),
                "line": part.line,
                "belongs": part.belongs,
                "says": [told(line) for line in part.says],
                "figures": [{"name": told(one.name), "value": shown(one), "source": told(one.source)} for one in part.figures],
                "problems": [
                    {
                        "severity": one.severity,
                        "label": t(one.severity),
                        "text": (f"{t('line')} {one.line}: " if one.line else "") + told(one.message),
                        "fix": told(one.fix),
                    }
                    for one in part.problems
                ],
                "corrected": part.corrected,
            }
            for part in found.parts
        ],
        "prose": [line for line, _ in found.prose],
        "notes": [*note, *map(told, found.notes)],
    }


def _plan() -> tuple[str, Plan | None, list[str]]:
    """Name and plan of the open configuration, and why it is not used where it cannot be read; nothing without one."""
    from perfkit.predict.reading import read_config  # noqa: PLC0415

    project = context.current_project()
    chosen = page_state().get("config") or str((project and project.open_config) or "")
    if not chosen:
        return "", None, []
    try:
        return Path(chosen).name, read_config(checked(chosen)), []
    except PerfkitError as error:
        return "", None, [str(error)]
