"""Lines that start a training: msrun, torchrun, mpirun, deepspeed, accelerate, or python with a script."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from perfkit.config.dialects.args import parse
from perfkit.config.dialects.launchers import in_one_word, inside
from perfkit.config.dialects.megatron import OPTION
from perfkit.config.dialects.megatron_options import FLAGS, LISTS
from perfkit.config.lint import lint_text
from perfkit.config.lint.subjects import environment_of
from perfkit.core.errors import InputError
from perfkit.core.figure import figure
from perfkit.core.texts import say
from perfkit.explain.fragments.effects import option_lines
from perfkit.explain.fragments.kind import FragmentKind, Part, Piece
from perfkit.explain.fragments.variables import starts_program, variable_lines

WORKERS = ("worker_num", "num_processes", "nproc")
TASKS = ("ntasks", "np", "n")
"""What a queue starts: processes, or launchers of them."""
EACH = ("local_worker_num", "nproc_per_node", "num_gpus", "ntasks_per_node")
NODES = ("nnodes", "num_nodes", "num_machines", "nodes", "N")
_SHORT = re.compile(r"(?<!\S)-(np|n|N)\s+(\d+)")
MAX_LINES = 200
_IN_QUOTES = re.compile(r"\\.|'[^']*'|\"(?:\\.|[^\"\\])*\"", re.DOTALL)


def _read(piece: Piece) -> Part:
    command = in_one_word(inside(piece.text))
    try:
        found = parse(command, piece.name, FLAGS, LISTS).values
    except InputError as error:
        broken = tuple(piece.problem("launch-broken", "error", problem) for problem in error.problems)
        return Part(kind=FRAGMENT.name, title="a launch line that cannot be split into words", problems=broken)
    values: dict[str, Any] = {**found, **{name: int(number) for name, number in _SHORT.findall(command)}}
    devices, nodes, each = _devices(values, command)
    environment = lint_text("launch.sh", piece.text, ["environment"]).problems
    checked = (*lint_text("launch.sh", command, ["config"]).problems, *environment)
    problems = [
        piece.problem(one.rule, one.severity, one.message, line=one.line, key=one.key, fix=one.fix)
        for one in checked
        if one.severity == "error"
    ]
    plan = piece.plan
    if devices is not None and plan is not None and devices != plan.num_devices:
        message = say("{started} processes are started, the plan is for {number} devices", started=devices, number=plan.num_devices)
        fix = say("start {number} processes, or change the parallel sizes", number=plan.num_devices)
        problems.append(piece.problem("device-count", "error", message, fix=fix))
    stated = [
        figure(name, value, "", "reported", "launch line")
        for name, value in (("devices", devices), ("nodes", nodes), ("devices a node", each))
        if value
    ]
    return Part(
        kind=FRAGMENT.name,
        title=say("a launch line of {program}", program=_program(command)),
        says=(*_variables(piece), *_says(values, command, devices), *_options(command, piece.name)),
        figures=tuple(stated),
        problems=tuple(problems),
    )


def _variables(piece: Piece) -> list[str]:
    return variable_lines(environment_of(piece.name, piece.text))


def _options(command: str, name: str) -> list[str]:
    """Megatron's options behind the script, those of the program that starts it left out."""
    _, script, behind = command.partition(".py ")
    return option_lines(parse(behind, name, FLAGS, LISTS).values) if script and OPTION.search(behind) else []


def _program(text: str) -> str:
    found = re.search(r"\b(msrun|torchrun|mpirun|mpiexec|srun|deepspeed|accelerate launch|python3?|bash)\b", text)
    return found[1] if found else "a program"


def _devices(values: Mapping[str, Any], text: str) -> tuple[int | None, int | None, int | None]:
    each, nodes, all_of, tasks = (_first(values, names) for names in (EACH, NODES, WORKERS, TASKS))
    if all_of is not None:
        return all_of, nodes or (all_of // each if each else None), each
    if each is not None:
        nodes = nodes or (None if any(name in values for name in NODES) else tasks or 1)
        return each * nodes if nodes else None, nodes, each
    if tasks is not None:
        return tasks, nodes, None
    tail = re.search(r"\.sh\s+[\"'].*[\"']\s+(\d+)(?:\s+(\d+))?", text)
    return (int(tail[1]), None, int(tail[2]) if tail[2] else None) if tail else (None, nodes, None)


def _first(values: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    return next((values[name] for name in names if isinstance(values.get(name), int)), None)


def _says(values: Mapping[str, Any], text: str, devices: int | None) -> Iterator[str]:
    if "run_mode" in values:
        trains = values["run_mode"] in ("train", "finetune")
        yield say("run_mode {mode}: training" if trains else "run_mode {mode}: not training", mode=str(values["run_mode"]))
    if "config" in values:
        yield say("configuration: {name}", name=str(values["config"]))
    if found := re.search(r">\s*(\S+)", text):
        yield say("the log goes to {name}", name=found[1])
    unresolved = sorted(set(re.findall(r"\$\{?\w+\}?", text)))
    if unresolved:
        yield say("not set in the paste: {names}", names=", ".join(unresolved))
    if devices is None:
        yield "it does not say how many processes are started" if _program(text) != "python" else "one process"


def _goes_on(text: str, line: str) -> bool:
    """Whether a launch line goes on below: behind a backslash, or in quotes that are not closed."""
    if not starts_program(text.lstrip("\n").split("\n")[0]) or text.count("\n") > MAX_LINES:
        return False
    return text.rstrip().endswith("\\") or not {"'", '"'}.isdisjoint(_IN_QUOTES.sub("", text))


FRAGMENT = FragmentKind(
    name="launch",
    title="a launch line",
    looks_for="a command such as msrun, torchrun, mpirun, or python with a script",
    order=25,
    claims=starts_program,
    read=_read,
    alone=True,
    holds=_goes_on,
)
