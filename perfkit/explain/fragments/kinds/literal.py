"""A Python or JSON literal, or YAML in braces: settings as a dict, a table of ranks by device, or a bare list of counts."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import yaml

from perfkit.core.figure import figure
from perfkit.core.syntax import tree_of
from perfkit.core.texts import say
from perfkit.explain.fragments.keys_part import explain_keys
from perfkit.explain.fragments.kind import FragmentKind, Part, Piece

_LOGGED = r"(?!\s*\[(?:\d{4}[-/]\d\d[-/]\d\d|[A-Za-z_]\w*\]))"
"""The time, level or rank in brackets with which a line of a log begins."""
_OPENS = re.compile(_LOGGED + r"^\s*(?:[A-Za-z_]\w*\s*=\s*)?(?:(?:dict\()?[\[{]|dict\(\s*(?:[A-Za-z_]\w*\s*=|$))")
_NAME = re.compile(r"^\s*([A-Za-z_]\w*)\s*=\s*")
MAX_DEPTH_TEXT = 200_000


def _open(text: str) -> int:
    """Brackets that are still open; what stands in quotes does not count."""
    plain = re.sub(r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'", "", text)
    return sum(plain.count(one) for one in "[{(") - sum(plain.count(one) for one in "]})")


def _read(piece: Piece) -> Part:
    name = _NAME.match(piece.text)
    text = piece.text[name.end() :] if name else piece.text
    value = _parsed(text)
    if isinstance(value, Mapping) and _is_rank_table(value):
        return _rank_table(value, piece)
    if isinstance(value, Mapping) and value:
        written = yaml.safe_dump({name[1]: dict(value)} if name and name[1].endswith("config") else dict(value), sort_keys=False)
        part = explain_keys(replace(piece, text=written), FRAGMENT.name)
        problems = tuple(replace(one, line=None) for one in part.problems)
        return replace(part, problems=problems, corrected=part.corrected or written)
    if isinstance(value, list) and name:
        return explain_keys(replace(piece, text=f"{name[1]}: {json.dumps(value)}\n"), FRAGMENT.name)
    if isinstance(value, list) and value:
        counts = all(isinstance(item, int) for item in value)
        form = (
            "{number} counts, one a pipeline stage; it does not say of which key"
            if counts
            else "{number} values; it does not say of which key"
        )
        return Part(kind=FRAGMENT.name, title="a list", says=(say(form, number=len(value)),))
    problem = piece.problem(
        "literal-broken", "error", "brackets or quotes are not closed, or a comma is missing", line=1, fix="paste all of it"
    )
    return Part(kind=FRAGMENT.name, title="a broken literal", problems=(problem,))


def _parsed(text: str) -> Any:
    if len(text) > MAX_DEPTH_TEXT:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        (only,) = tree_of(text.strip()).body
        return _value(only.value) if isinstance(only, ast.Expr) else _flow(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        return _flow(text)


def _flow(text: str) -> dict[Any, Any] | None:
    """A mapping of YAML in braces, whose words need no quotes; None for any other text, also for a set of words."""
    try:
        found = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and None not in found.values() else None


def _value(node: ast.expr) -> Any:
    """The value of a literal, in which dict() may stand for braces. Raises ValueError for anything else."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict" and len(node.args) < 2:
        found = _value(node.args[0]) if node.args else {}
        return {**found, **{word.arg: _value(word.value) for word in node.keywords if word.arg}}
    if isinstance(node, ast.Dict) and all(node.keys):
        return {ast.literal_eval(key): _value(value) for key, value in zip(node.keys, node.values, strict=True) if key}
    return ast.literal_eval(node)


def _is_rank_table(value: Mapping[str, Any]) -> bool:
    return isinstance(value.get("server_list") or value.get("group_list"), list)


def _rank_table(table: Mapping[str, Any], piece: Piece) -> Part:
    """Devices by server (`hccl` JSON of versions 0.1 to 1.2)."""
    servers = table.get("server_list") or [
        server
        for group in table["group_list"]
        if isinstance(group, Mapping)
        for server in group.get("server_list", group.get("instance_list", []))
    ]
    devices = [one for server in servers if isinstance(server, Mapping) for one in server.get("device", server.get("devices", []))]
    ranks = [str(one.get("rank_id", "")) for one in devices if isinstance(one, Mapping)]
    problems = []
    twice = sorted({rank for rank in ranks if ranks.count(rank) > 1})
    if twice:
        problems.append(
            piece.problem(
                "rank-twice", "error", say("ranks stand twice: {ranks}", ranks=", ".join(twice[:8])), fix="give each device its own"
            )
        )
    if ranks and not twice and sorted(ranks) != sorted(map(str, range(len(ranks)))):
        problems.append(
            piece.problem(
                "ranks-with-gaps",
                "error",
                say("{number} devices do not have the ranks 0 to {last}", number=len(ranks), last=str(len(ranks) - 1)),
            )
        )
    stated = str(table.get("server_count", "")).strip()
    if stated.isdigit() and int(stated) != len(servers):
        problems.append(
            piece.problem(
                "server-count",
                "error",
                say("server_count is {stated}, but {number} servers are listed", stated=stated, number=len(servers)),
            )
        )
    plan = piece.plan
    if plan is not None and plan.num_devices != len(devices):
        message = say("the plan is for {number} devices, the table has {listed}", number=plan.num_devices, listed=len(devices))
        problems.append(
            piece.problem("device-count", "error", message, fix="give as many devices as data x tensor x context x pipeline")
        )
    return Part(
        kind=FRAGMENT.name,
        title="a rank table: which device of which server has which rank",
        belongs="the file that RANK_TABLE_FILE names",
        figures=(
            figure("devices", len(devices), "", "reported", "entries of `device`"),
            figure("servers", len(servers), "", "reported", "entries of `server_list`"),
        ),
        problems=tuple(problems),
    )


FRAGMENT = FragmentKind(
    name="literal",
    title="a Python or JSON literal",
    looks_for="a line that begins with a brace or bracket, or a name with `=` and one",
    order=45,
    claims=lambda line: _OPENS.match(line) is not None and not line.lstrip().startswith("[["),
    read=_read,
    holds=lambda text, line: _OPENS.match(text.lstrip("\n")) is not None and _open(text) > 0,
)
