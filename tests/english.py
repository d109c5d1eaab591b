"""What of a page is a sentence, a head or a title in English: where it is shown in Chinese, nothing of perfkit's own may be."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from perfkit.core.errors import PerfkitError
from perfkit.core.quantity import NAMES
from perfkit.face.widgets._chart_words import NAMED
from perfkit.face.widgets.step_view import StepView

WORD = re.compile(r"(?<![\w/.:=-])[a-z]{2,}(?![\w/:(=-]|\.\w)")
"""A word of a language, and not a part of a path, a key, an option or a call."""
TERMS = frozenset({"cp", "cube", "dp", "ep", "ms", "ns", "pp", "qkv", "rank", "token", "tp", "us", "vector", "vpp"})
"""Short forms and terms that Chinese texts of the field keep."""
CLAUSE = re.compile(r"(?<![\w/.:=-])[a-z]{2,}(?: [a-z]{2,}){3,}(?![\w/.:(=-])")
"""Four words in a row, which is more than names have in a sentence that is told."""
QUOTED = re.compile(
    r"^(?:operator:)?(?:void )?(?:\(anonymous namespace\)|[^ (]*)(?:::|<)"
    r"|^\['|^<?\w*>?[\w/]*\.py[:(]|\.py:\d|[\ufffd{]|^mindspore synthetic$"
)
"""How a C++ kernel and a line of somebody's file begin, which are shown as they are, and what a recording calls itself."""


def is_english(text: object) -> bool:
    """Whether a text is a sentence or clause in English, or has one; a single word may be a name."""
    if not isinstance(text, str) or QUOTED.search(text):
        return False
    return bool(CLAUSE.search(text)) or (not re.search("[\u4e00-\u9fff]", text) and len(WORD.findall(text)) > 1)


def is_english_head(text: object) -> bool:
    """Whether a head, a unit or a title, all of which are written by perfkit and name nothing of somebody else, is in English."""
    if not isinstance(text, str) or re.search("[\u4e00-\u9fff]", text):
        return False
    return bool(set(re.findall(r"(?<![\w/.])[a-z]{2,}(?![\w/.])", text)) - TERMS)


def heads(view: StepView) -> Iterator[Any]:
    """Heads of columns, labels and units of controls, titles of code, and in charts of axes, legends and lines of tooltips."""
    for table in view.details.get("tables", ()):
        yield from (column["label"] for column in table["columns"])
    yield from (control.get(name) for control in view.controls for name in ("label", "unit"))
    yield from (part["title"] for part in view.details.get("code", ()))
    for chart in view.frame.get("charts", ()):
        yield from _titles(chart["spec"])


def _titles(node: Any) -> Iterator[Any]:
    if isinstance(node, list):
        for part in node:
            yield from _titles(part)
    elif isinstance(node, dict):
        yield node.get("title")
        for channel in ("color", "fill", "shape"):
            yield from _legend(node.get(channel))
        lines = node.get("tooltip")
        yield from (line.get("title", line["field"]) for line in (lines if isinstance(lines, list) else ()))
        for part in node.values():
            yield from _titles(part)


def _legend(channel: Any) -> Iterator[Any]:
    """What a legend says of its colours, in words that the chart writes for them if not as they are in the rows."""
    if isinstance(channel, dict) and isinstance(channel.get("scale"), dict) and channel.get("legend", True) is not None:
        written = json.dumps(channel.get("legend"), ensure_ascii=False)
        for word in channel["scale"].get("domain") or ():
            yield None if f'\\"{word}\\":' in written else word


def texts(view: StepView) -> Iterator[Any]:
    """All that a panel shows in words."""
    yield from (view.title, view.data.get("sentence"), *view.status.values(), *view.details.get("notes", ()))
    for chart in view.frame.get("charts", ()):
        yield chart["title"]
    for table in view.details.get("tables", ()):
        yield table["title"]
        for column in table["columns"]:
            yield from (column["label"], *column["text"])
    for control in view.controls:
        yield from (control.get(part) for part in ("label", "help", "placeholder", "prompt", "note"))
        for option in control.get("options") or ():
            yield option["label"] if isinstance(option, dict) else option
    for action in view.actions:
        yield from (action["label"], action["help"])


def rows_of_charts(view: StepView) -> Iterator[Any]:
    """The rows of charts, what their legends name and their heads, as they are said; names are somebody else's."""
    for chart in view.frame.get("charts", ()):
        legend = view.data["params"].get(chart["name"], {}).get("present", ())
        yield from (chart["words"].get(value, value) for value in legend)
        yield from chart["heads"].values()
        for columns in view.data["datasets"].get(chart["name"], {}).values():
            for name in columns.keys() - NAMES - ({"label", *NAMED} if NAMED & columns.keys() else set()):
                yield from (chart["words"].get(value, value) for value in columns[name] if isinstance(value, str))


def said_in_english(sent: Mapping[str, str]) -> dict[str, str]:
    """Of texts that were sent, with their places, those in English."""
    return {text: place for text, place in list(sent.items()) if is_english(text)}


def in_english(shown: Mapping[str, StepView]) -> set[str]:
    """What the panels of a page say in English once all have answered."""
    for view in shown.values():
        with suppress(PerfkitError):
            view.wait()
    found = {text for view in shown.values() for text in texts(view) if is_english(text)}
    return found | {text for view in shown.values() for text in heads(view) if is_english_head(text)}
