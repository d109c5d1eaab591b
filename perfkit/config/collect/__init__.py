"""Collect: the configuration lines that record what a run does not show yet.

Pure text: nothing is executed and no file is changed. Steps are counted from 1, `start_step` and `stop_step` both belong to
the window; each writer turns that into the convention of its framework. Step 1 compiles, so a window starts after step 3, and
2 to 4 steps are enough (MindFormers guides). Parts are those of the table `coverage`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from perfkit.config.collect._request import Language as Language
from perfkit.config.collect._request import Request
from perfkit.config.collect._request import Snippet as Snippet
from perfkit.config.collect._writers import EXTRAS as _EXTRAS
from perfkit.config.collect._writers import EXTRAS_NOTE, GRAPH_WRITERS, OLDER, SWITCHES, WRITERS
from perfkit.core.errors import InputError
from perfkit.core.texts import say

T = TypeVar("T")

FRAMEWORKS = tuple(WRITERS)
GRAPH_FRAMEWORKS = tuple(GRAPH_WRITERS)
"""Those of which the graphs can be saved that MindSpore compiles."""
PARTS = tuple(SWITCHES["mindformers"])
DEFAULT_PARTS = ("step times", "kernels", "collectives", "links", "timeline", "operator statistics")
"""What a first profile should hold: stacks and memory slow the step, so they are recorded only when they are asked for."""

EXTRAS = tuple(_EXTRAS["mindspore"])
"""What the profilers of MindSpore and torch_npu can record beside the parts that perfkit reads."""

LAST_COMPILING_STEP = 3
LONGEST_WINDOW_STEPS = 4
QUICK_NUM_LAYERS = 2
DRYRUN_SINCE = (2, 5)


@dataclass(frozen=True, slots=True)
class Advice:
    """A problem of a setting: the lint `rule` and a `message` with the found and the right value."""

    rule: str
    message: str


def check_window(start_step: int, stop_step: int) -> tuple[Advice, ...]:
    """What is wrong with recording the steps `start_step` to `stop_step`, both included; empty if nothing is."""
    if start_step < 1 or stop_step < start_step:
        return (Advice("profile-window-empty", f"steps {start_step} to {stop_step} are no window; write for example 5 to 7"),)
    problems = []
    if start_step <= LAST_COMPILING_STEP:
        message = f"start step {start_step}: step 1 compiles and the next ones settle; start after step {LAST_COMPILING_STEP}"
        problems.append(Advice("profile-start-compile", message))
    steps = stop_step - start_step + 1
    if steps > LONGEST_WINDOW_STEPS:
        message = f"{steps} steps ({start_step} to {stop_step}) are recorded; 2 to {LONGEST_WINDOW_STEPS} are enough"
        problems.append(Advice("profile-window-long", message))
    return tuple(problems)


def profiling_config(
    framework: str,
    *,
    missing: Iterable[str] = DEFAULT_PARTS,
    start_step: int = 5,
    stop_step: int = 7,
    num_layers: int | None = None,
    extras: Iterable[str] = (),
    release: str = "",
) -> Snippet:
    """The lines that record the `missing` parts of steps `start_step` to `stop_step` (both included) in `framework`.

    With `num_layers` the model is cut to that many layers for a quick recording. `extras` are written as far as `release` has
    them, the newest unless given: of MindSpore (such as "2.6"), or of Ascend Extension for PyTorch (such as "7.2"). Raises
    InputError for a framework, part or extra that is not known and for a window without a step; a window that compiles or is
    long is written, and said in the notes.
    """
    parts = frozenset(missing)
    window = check_window(start_step, stop_step)
    problems = _unknown_parts(parts)
    problems += [advice.message for advice in window if advice.rule == "profile-window-empty"]
    if num_layers is not None and num_layers < 1:
        problems.append(f"num_layers = {num_layers} must be positive")
    arguments, said = _extra_arguments(framework, tuple(extras), release, problems)
    write = _named(framework, WRITERS, "profile", problems)
    if problems or write is None:
        raise InputError("profiling configuration", problems)
    snippet = write(Request(parts, start_step, stop_step, num_layers, arguments))
    notes = [*(advice.message for advice in window), *said]
    if num_layers is not None:
        notes.append(f"Reduced model ({num_layers} layers): do not compare its totals with those of the full model.")
    return replace(snippet, notes=(*notes, *snippet.notes))


def save_graphs_config(framework: str, num_layers: int | None = None) -> Snippet:
    """The lines that save the compiled graphs as `.ir` files, with advice if `num_layers` is more than the question needs.

    Raises InputError for frameworks that compile no MindSpore graph.
    """
    problems: list[str] = []
    snippet = _named(framework, GRAPH_WRITERS, "save the graphs of", problems)
    if snippet is None:
        raise InputError("save_graphs configuration", problems)
    notes = ["The files end in .ir. Saving slows compilation and fills the disk: switch it off again before timing a run."]
    if num_layers is not None and num_layers > QUICK_NUM_LAYERS:
        fewer = f"set num_layers to {QUICK_NUM_LAYERS} while saving graphs; every layer compiles alike."
        notes.insert(0, f"The model has {num_layers} layers: {fewer}")
    return replace(snippet, notes=tuple(notes))


def dryrun_commands(
    num_devices: int,
    pipeline_stages: int,
    *,
    version: str | None = None,
    command: str = "python run_mindformer.py --config config.yaml --run_mode train",
    ranks: Iterable[int] | None = None,
) -> tuple[Snippet, ...]:
    """Commands that compile `ranks` on one machine, the first of every pipeline stage unless given, and log their memory.

    `num_devices` is data x tensor x context x pipeline parallel size. The guides print different variables: given are those of
    MindSpore `version` (such as "2.4.1"), without one the set of 2.5 and newer, then that of those before.
    """
    if num_devices < 1 or pipeline_stages < 1 or num_devices % pipeline_stages:
        raise InputError("dry run", [f"{num_devices} devices cannot be split into {pipeline_stages} equal pipeline stages"])
    newer = "MS_SIMULATION_LEVEL=1 MS_KERNEL_LAUNCH_SKIP=all MS_MEMORY_STATISTIC=1"
    older = "ENABLE_CELL_REUSE=1 MS_MEMORY_STATISTIC=1 MS_SIMULATION_LEVEL=1"
    notes = (
        "Each log ends with 'Used peak memory usage'; if the line is absent, add GLOG_v=1.",
        "These variables stand before the command only: with them set in the shell, nothing is trained.",
    )
    sets = [(newer, "a shell, MindSpore 2.5 and newer"), (older, "a shell, MindSpore before 2.5")]
    if version is not None:
        sets = [sets[_version(version) < DRYRUN_SINCE]]
    chosen = list(range(0, num_devices, num_devices // pipeline_stages) if ranks is None else ranks)
    return tuple(Snippet(_dryrun(variables, num_devices, chosen, command), "shell", where, notes) for variables, where in sets)


def has_extras(framework: str) -> bool:
    """Whether the profiler of a framework records `EXTRAS` from a script."""
    return _plain(framework) in _EXTRAS


def how_to_collect(part: str, framework: str | None = None) -> str:
    """One sentence for a message: what to switch on to record `part` in `framework`, or in any if it is None."""
    problems = _unknown_parts([part])
    if framework is None and not problems:
        return f"record steps 5 to 7 with a profiler that keeps the {part}; page 10 writes the lines for your framework"
    switches = _named(framework or "", SWITCHES, "profile", problems)
    if problems or switches is None:
        raise InputError("how to collect", problems)
    where = profiling_config(framework or "", missing=[part]).file_hint
    return f"set {switches[part]} in {where} and record steps 5 to 7 again"


def _extra_arguments(framework: str, extras: Iterable[str], release: str, problems: list[str]) -> tuple[str, list[str]]:
    """The arguments of extras for a release, and what is to be said of them."""
    name = _plain(framework)
    known, older = _EXTRAS.get(name, {}), OLDER.get(name, {})
    found, said = [], []
    for extra in extras:
        if extra not in EXTRAS:
            problems.append(f"extra {extra!r} is unknown; extras are {', '.join(EXTRAS)}")
        elif extra not in known:
            said.append(say("{extra}: only the profilers of MindSpore and torch_npu record it from a script.", extra=extra))
        else:
            argument, since = known[extra]
            if not release or _version(release) >= since:
                found.append(argument)
            elif extra in older:
                found.append(older[extra])
            else:
                first = ".".join(map(str, since))
                said.append(
                    say(
                        "{extra}: release {release} does not have it, {first} is the first.",
                        extra=extra,
                        release=release,
                        first=first,
                    )
                )
    return "".join(f", {argument}" for argument in found), [*said, *([EXTRAS_NOTE] if found else [])]


def _unknown_parts(parts: Iterable[str]) -> list[str]:
    return [f"part {part!r} is unknown; parts are {', '.join(PARTS)}" for part in sorted(set(parts) - set(PARTS))]


def _plain(framework: str) -> str:
    return framework.strip().lower().replace("_", "-").replace(" ", "-")


def _named(framework: str, table: Mapping[str, T], verb: str, problems: list[str]) -> T | None:
    found = table.get(_plain(framework))
    if found is None:
        problems.append(f"framework {framework!r} is unknown here; perfkit can {verb} {', '.join(table)}")
    return found


def _version(text: str) -> tuple[int, ...]:
    numbers = text.strip().split(".")[:2]
    if len(numbers) < 2 or not all(number.isascii() and number.isdigit() for number in numbers):
        raise InputError("release", [f"version {text!r} is not of the form 2.5 or 2.5.0"])
    return tuple(int(number) for number in numbers)


def _dryrun(variables: str, num_devices: int, ranks: Iterable[int], command: str) -> str:
    runs = [
        (
            f"env {variables}",
            f"RANK_SIZE={num_devices} RANK_ID={rank}",
            *_shell_lines(command),
            f"> output_dryrun/rank_{rank}.log 2>&1",
        )
        for rank in ranks
    ]
    return "\n".join(["mkdir -p output_dryrun", *map(_CONTINUED.join, runs)]) + "\n"


_CONTINUED = " \\\n    "
_LINE_LENGTH = 84
"""Of 90 letters what the indent and the sign that a line goes on leave."""
_SHELL_WORD = re.compile(r"""(?:[^\s"'\\]|\\.|"(?:\\.|[^"\\])*"|'[^']*')+""")


def _shell_lines(command: str) -> list[str]:
    """The words of a command in lines: a quoted text is never cut, nor a command of which a quote is not closed."""
    lines: list[str] = []
    for word in [command] if _SHELL_WORD.sub("", command).strip() else _SHELL_WORD.findall(command):
        if lines and len(lines[-1]) + 1 + len(word) <= _LINE_LENGTH:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines
