"""Environment variables: exports of a shell, `NAME=value` lines, `os.environ` in Python."""

from __future__ import annotations

import re
from collections.abc import Iterator

from perfkit.config.lint import Problem, lint_text
from perfkit.config.lint.subjects import Environment, environment_of
from perfkit.core.figure import Figure, figure
from perfkit.core.texts import say
from perfkit.core.units import MIB
from perfkit.explain.fragments.kind import FragmentKind, Part, Piece
from perfkit.explain.fragments.variables import starts_program, variable_lines

_LINE = re.compile(r"^\s*(?:export\s+\w+=|(?:set(?:env)?|ENV)\s+[A-Z]\w*[= ]|(?:[A-Z][A-Z0-9_]{2,}|GLOG_v)=(?!\s*\())")
_SEVERAL = re.compile(r"\s*(?:export\s+)?[A-Z][A-Z0-9_]*=[^\s=;]+(?:[\s;]+(?:export\s+)?[A-Z][A-Z0-9_]*=[^\s=;]+)+[\s;]*")
"""Several on one line: names of two letters are variables there too."""
_OS = re.compile(r"^(\s*)os\.environ\[\s*['\"](\w+)['\"]\s*\]\s*=\s*['\"]?([^'\"#]*)['\"]?", re.MULTILINE)
_SETENV = re.compile(r"^(\s*)setenv\s+(\w+)\s+", re.MULTILINE)
_DRY = ("MS_SIMULATION_LEVEL", "MS_KERNEL_LAUNCH_SKIP")


def _read(piece: Piece) -> Part:
    text = _SETENV.sub(r"\1export \2=", _OS.sub(r"\1export \2='\3'", piece.text))
    environment = environment_of(piece.name, text)
    return Part(
        kind=FRAGMENT.name,
        title=say("environment: {number} variables", number=len(environment.variables))
        if len(environment.variables) != 1
        else "environment: one variable",
        belongs="the script that starts training, before the command",
        says=tuple(variable_lines(environment)),
        figures=tuple(_figures(environment)),
        problems=tuple(_problems(piece, text, environment)),
    )


def _problems(piece: Piece, text: str, environment: Environment) -> Iterator[Problem]:
    dry = any(environment.last(name) is not None for name in _DRY)
    for one in lint_text("fragment.sh", text, ["environment"]).problems:
        # A piece that switches a dry run on says what it is for; that it was left on only a whole launch script can show.
        severity = "information" if dry and one.rule == "dryrun-left-on" else one.severity
        yield piece.problem(one.rule, severity, one.message, line=one.line, key=one.key, fix=one.fix)
    size, plan = environment.last("RANK_SIZE") or environment.last("WORLD_SIZE"), piece.plan
    if size is not None and plan is not None and size.value.isdigit() and int(size.value) != plan.num_devices:
        message = say(
            "{key} is {value}, the plan is for {number} devices", key=size.name, value=size.value, number=plan.num_devices
        )
        yield piece.problem(
            "rank-size", "error", message, line=size.line, key=size.name, fix=f"export {size.name}={plan.num_devices}"
        )


def _figures(environment: Environment) -> Iterator[Figure]:
    buffers = environment.last("HCCL_BUFFSIZE")
    if buffers is not None and buffers.value.isdigit():
        yield figure(
            "buffers of a communicator", 2 * int(buffers.value) * MIB, "bytes", "computed", "2 x HCCL_BUFFSIZE, outside of the pool"
        )
    size = environment.last("RANK_SIZE")
    if size is not None and size.value.isdigit():
        yield figure("devices", int(size.value), "", "reported", "RANK_SIZE")


FRAGMENT = FragmentKind(
    name="environment",
    title="environment variables",
    looks_for="lines such as `export NAME=value`, `ENV NAME=value` or `os.environ[...] = ...`",
    order=20,
    claims=lambda line: (
        ((_LINE.match(line) or _SEVERAL.fullmatch(line)) is not None and not starts_program(line)) or _OS.match(line) is not None
    ),
    read=_read,
)
