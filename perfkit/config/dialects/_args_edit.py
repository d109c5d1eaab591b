r"""Changing options in the text of a launch script, a flat list or JSON; everything else stays as it is.

In a script the use of an option is changed that counts, by the line that its reader gives, else the last. A value that is only a
variable (`$TP`) is changed where the file sets it, if it does so once, plainly or as a default (`TP=${TP:-2}`). New options stand
next to the last size option; a line of its own gets the indentation and the trailing backslash of its neighbour.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

COMMENT = re.compile(r"(?<!\S)#[^\n]*")
QUOTED = re.compile(r"'[^'\n]*'|\"(?:[^\"\\\n]|\\.)*\"")
VALUE = re.compile(r"(?:[ \t]|\\?\r?\n)*(?:=[ \t]*)?((?:\"[^\"\n]*\"|'[^'\n]*'|[^\s\\;|&()\"'#])+)")
VARIABLE = re.compile(r"\"?\$(?:(\w+)|\{(\w+)\})\"?")
OPTION = re.compile(r"--[A-Za-z][\w-]*")
PLAIN_WORD = re.compile(r"[\w.,:/+=@%-]+")
BACKSLASH = " \\"
NEIGHBOURS = (
    *("pipeline_model_parallel_size", "tensor_model_parallel_size", "micro_batch_size", "hidden_size", "num_layers"),
    "per_device_train_batch_size",
)
SHELL_JSON = tuple(
    {"indent": indent, "separators": separators}
    for indent in (2, 4, None, 1, "\t")
    for separators in ((", ", ": "), (",", ": "), (",", ":"))
)


@dataclass(frozen=True, slots=True)
class Use:
    """Where an option stands in a script: its own span and that of its values (equal ends: none)."""

    start: int
    end: int
    value_start: int
    value_end: int


def edit_json(text: str, changes: Mapping[str, Any], lists: Iterable[str]) -> tuple[str, list[str]]:
    """JSON with options changed, laid out as it was found if that is one of the usual ways."""
    value = json.loads(text)
    layout = next((kind for kind in SHELL_JSON if json.dumps(value, ensure_ascii=False, **kind) == text.strip()), None)  # type: ignore[arg-type]
    changed = _changed_list(value, changes) if isinstance(value, list) else _changed_object(value, changes)
    body = json.dumps(changed, ensure_ascii=False, **(layout or {"indent": 2}))  # type: ignore[arg-type]
    tail = text[len(text.rstrip()) :]
    return body + tail, [] if layout else ["the JSON is laid out anew"]


def edit_script(
    text: str, changes: Mapping[str, Any], flags: Iterable[str], lists: Iterable[str], lines: Callable[[str], Mapping[str, int]]
) -> tuple[str, list[str]]:
    """A script or flat list with options changed, added, or removed where the new value is None.

    `lines` gives the lines of a text on which the options stand that count.
    """
    notes: list[str] = []
    for name, value in changes.items():
        use = find(text, name, name in set(flags), name in set(lists), lines)
        if use is None and value is not None:
            text = _added(text, option_text(name, value))
        elif use is not None and value is None:
            text = _removed(text, use)
        elif use is not None and use.value_end > use.value_start:
            text = _replaced(text, use, value, notes)
    return text, notes


def set_variable(text: str, name: str, value: object) -> str | None:
    """The script with a variable's plain value changed; None if the file does not set it once and plainly."""
    found = list(
        re.finditer(
            rf"^([ \t]*(?:export[ \t]+)?{re.escape(name)}=(?:\$\{{{re.escape(name)}:?-)?)([\w.]+)(?=\}}?(?:\s|;|$))",
            text,
            re.MULTILINE,
        )
    )
    all_of_them = re.findall(rf"(?<![\w$]){re.escape(name)}\+?=", text)
    if len(found) != 1 or len(all_of_them) != 1:
        return None
    return text[: found[0].start(2)] + str(value) + text[found[0].end(2) :]


def find(text: str, name: str, is_flag: bool, is_list: bool, lines: Callable[[str], Mapping[str, int]] | None = None) -> Use | None:
    """The use of an option that counts, outside of comments, spelled with - or _; the last if `lines` do not say."""
    hidden = [found.span() for found in COMMENT.finditer(QUOTED.sub(lambda found: "x" * len(found[0]), text))]
    pattern = re.compile(rf"(?<![\w-])--{'[-_]'.join(map(re.escape, name.split('_')))}(?![\w-])")
    uses = [found for found in pattern.finditer(text) if not any(start <= found.start() < end for start, end in hidden)]
    if not uses:
        return None
    counts = lines(text).get(name) if lines and len(uses) > 1 else None
    at_line = [found for found in uses if text.count("\n", 0, found.start()) + 1 == counts]
    start, end = (at_line or uses)[-1].span()
    first = VALUE.match(text, end)
    if is_flag or not first or first[1].startswith("--"):
        return Use(start, end, end, end)
    last = first
    while (
        is_list
        and (following := VALUE.match(text, last.end()))
        and not OPTION.match(following[1])
        and following.start(1) > last.end()
    ):
        last = following
    return Use(start, last.end(1), first.start(1), last.end(1))


def option_text(name: str, value: Any) -> str:
    """An option as it stands in a script."""
    option = f"--{name.replace('_', '-')}"
    return option if value is True else f"{option} {value_text(value)}"


def value_text(value: Any) -> str:
    """A value as a shell word, quoted where the shell would read it otherwise."""
    if isinstance(value, list | tuple):
        return " ".join(value_text(item) for item in value)
    text = str(value)
    return text if PLAIN_WORD.fullmatch(text) else "'" + text.replace("'", "'\\''") + "'"


def _replaced(text: str, use: Use, value: Any, notes: list[str]) -> str:
    old = text[use.value_start : use.value_end]
    if (found := VARIABLE.fullmatch(old)) and not isinstance(value, list | tuple):
        name = found[1] or found[2]
        changed = set_variable(text, name, value_text(value))
        if changed is not None:
            uses = len(re.findall(rf"\$\{{?{name}\b", text))
            notes.append(f"{name} is now {value}" + (f"; the file uses it in {uses} places" if uses > 1 else ""))
            return changed
    return text[: use.value_start] + value_text(value) + text[use.value_end :]


def _added(text: str, option: str) -> str:
    use = next((found for name in NEIGHBOURS if (found := find(text, name, False, False))), None)
    if use is None:
        return text.rstrip("\n") + f" {option}\n"
    start, end = text.rfind("\n", 0, use.start) + 1, text.find("\n", use.end)
    line = text[start : end if end >= 0 else len(text)]
    indent = line[: len(line) - len(line.lstrip())]
    rest = text[use.end : start + len(line)].partition("#")[0].strip()
    if line.lstrip().startswith("--") and rest in ("", "\\"):
        continued = rest == "\\" or text[:start].rstrip("\r\n").endswith("\\")
        newline = "\r\n" if line.endswith("\r") else "\n"
        return f"{text[:start]}{indent}{option}{BACKSLASH if continued else ''}{newline}{text[start:]}"
    return f"{text[: use.end]} {option}{text[use.end :]}"


def _removed(text: str, use: Use) -> str:
    start, end = text.rfind("\n", 0, use.start) + 1, text.find("\n", use.end)
    end = len(text) if end < 0 else end + 1
    alone = not text[start : use.start].strip() and text[use.end : end].strip() in ("", "\\")
    if not alone:
        after = use.end + len(text[use.end :]) - len(text[use.end :].lstrip(" \t"))
        lead = use.start if after > use.end else len(text[: use.start].rstrip(" \t"))
        return text[:lead] + text[after if after > use.end else use.end :]
    before = text[:start]
    if not text[use.end : end].strip() and before.rstrip("\r\n").endswith("\\"):
        # The line was the last of a continued command: its neighbour becomes the last.
        before = before.rstrip("\r\n").rstrip("\\").rstrip(" \t") + "\n"
    return before + text[end:]


def _changed_object(values: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    spelled = {key.lstrip("-").replace("-", "_"): key for key in values}
    dashes = any("-" in key.lstrip("-") for key in values)
    found = dict(values)
    for name, value in changes.items():
        key = spelled.get(name, name.replace("_", "-") if dashes else name)
        if value is None:
            found.pop(key, None)
        else:
            found[key] = value
    return found


def _changed_list(values: list[Any], changes: Mapping[str, Any]) -> list[Any]:
    found = list(values)
    for name, value in changes.items():
        names = [str(item).partition("=")[0].lstrip("-").replace("-", "_") if str(item).startswith("--") else "" for item in found]
        new = [] if value is None else [f"--{name.replace('_', '-')}", *_words(value)]
        if name in names:
            start = len(names) - 1 - names[::-1].index(name)
            end = next((index for index in range(start + 1, len(found)) if names[index]), len(found))
            found[start:end] = new
        else:
            found += new
    return found


def _words(value: Any) -> list[Any]:
    if value is True:
        return []
    return [str(item) for item in value] if isinstance(value, list | tuple) else [str(value)]
