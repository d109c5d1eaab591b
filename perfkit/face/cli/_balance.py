"""The command `balance`: a case or a configuration in, the best layout out as text, JSON or a configuration."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from perfkit.config.dialects import write_config
from perfkit.config.export_text import as_stated
from perfkit.core import texts
from perfkit.core.errors import InputError
from perfkit.core.run import Run
from perfkit.core.texts import told
from perfkit.core.units import NS_PER_S
from perfkit.explain.summary import summarize
from perfkit.face.cli._asked import asked_plan
from perfkit.face.cli._document import print_document
from perfkit.face.cli._progress import SolveProgress
from perfkit.face.cli._screen import say
from perfkit.face.cli._tables import print_table
from perfkit.predict.estimate import efficiency_of, estimate
from perfkit.predict.limits import option_limit
from perfkit.predict.plans.balance.balance import PlanResult, balance, time_problems
from perfkit.predict.plans.balance.case_file import is_case, read_problem
from perfkit.predict.plans.balance.fields import MAX_FILE_BYTES
from perfkit.predict.plans.balance.from_plan import PlanProblem, balanced, problem_of_plan, scaled
from perfkit.predict.plans.balance.measured_layers import layer_times, with_layer_times
from perfkit.predict.plans.balance.sapp import Asked, is_sapp, read_sapp, write_layers
from perfkit.predict.plans.balance.text import plan_table
from perfkit.predict.reading import read_config, read_text
from perfkit.record.load import load

STANDARD_INPUT, STDIN_NAME = "-", "standard input"


def balance_input(
    path: str,
    *,
    time_limit_s: float,
    run: str | None,
    given: Sequence[str],
    calibration: str | None,
    limit: str | None,
    target: str | None,
    as_json: bool,
    out: TextIO,
    errors: TextIO,
    sizes: tuple[int | None, int | None] = (None, None),
) -> None:
    """Balance the case or configuration at `path` and print the result; the configuration found goes to `target`.

    Raises InputError with all problems; for a case also where an option asks for a configuration. `sizes` are stages and micro
    batches for a file of SAPP that states none.
    """
    name, text = _given(path)
    if (start := _of_sapp(path, text)) is not None:
        wanted = Asked(stages=sizes[0], micro_batches=sizes[1], memory_limit_bytes=option_limit(limit)[0])
        problem, found = read_sapp(start, name, wanted), None
        with SolveProgress(errors) as progress:
            result = balance(problem, time_limit_s=time_limit_s, progress=progress)
        if target:
            Path(target).write_text(write_layers(problem, Path(name).stem), encoding="utf-8")
            target = None
    elif is_case(path, text):
        asked = {"--run": run, "--device": given, "--calibration": calibration, "--memory-limit-gib": limit, "--out": target}
        if wrong := [option for option, value in asked.items() if value]:
            raise InputError(name, [f"{option} needs a configuration; a case states its own times and limits" for option in wrong])
        found = None
        with SolveProgress(errors) as progress:
            result = balance(read_problem(name, text), time_limit_s=time_limit_s, progress=progress)
    else:
        read = read_config if text is None else lambda _: read_text(text, name)
        plan = asked_plan(name, given, limit, read, others=time_problems(time_limit_s))
        found = problem_of_plan(plan, efficiency_of(plan, calibration))
        if run:
            found = _measured(found, run)
        with SolveProgress(errors) as progress:
            result = balanced(found, time_limit_s=time_limit_s, progress=progress)
    written = _written(found, result, target)
    if as_json:
        print_document({**result.to_dict(), **written}, out)
        return
    table = plan_table(result)
    say(out, table.title)
    if table.rows:
        print_table(table.header, table.rows, out)
    assumed = [texts.say("assumed: {what}", what=what) for what in result.problem.assumptions]
    for note in (*assumed, *written.get("lost", ())):
        say(out, "  - ", told(note))
    if target:
        say(out, texts.say("written to {target}", target=target))


def _given(path: str) -> tuple[str, str | None]:
    """What messages call the input, and its text if it is standard input, which can be read only once."""
    if path != STANDARD_INPUT:
        return path, None
    raw = sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
    problems = [f"more than {MAX_FILE_BYTES} bytes; a case or configuration is small"] if len(raw) > MAX_FILE_BYTES else []
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        problems.append(f"byte {error.start} (0x{raw[error.start]:02x}) is not UTF-8")
    if problems:
        raise InputError(STDIN_NAME, problems)
    return STDIN_NAME, text


def _of_sapp(path: str, text: str | None) -> str | None:
    """The text of one of SAPP's files; None for any other input."""
    if text is None:
        file = Path(path)
        if file.suffix.lower() not in (".yaml", ".yml", ".json") or not file.is_file() or file.stat().st_size > MAX_FILE_BYTES:
            return None
        text = file.read_text(encoding="utf-8", errors="replace")
    return text if is_sapp(text) else None


def _measured(found: PlanProblem, path: str) -> PlanProblem:
    """The problem with the times of a run: of its layers where its kernels name them, else of its stages."""
    run, plan = load(path), found.plan
    by_layer = with_layer_times(found, layer_times(run, plan.num_micro_batches))
    if by_layer is not None:
        return by_layer
    computed_s = _computed_s(run, plan.parallel.pipeline_parallel_size)
    if not any(computed_s):
        raise InputError(
            path,
            [
                "no kernel names the layer that it belongs to, and no rank has both a pipeline stage and a computing time; a run "
                "whose folder or cluster analysis tells the stages of the ranks is needed"
            ],
        )
    return scaled(found, computed_s)


def _computed_s(run: Run, num_stages: int) -> list[float | None]:
    """Seconds that the ranks of each stage computed in a step: the median of all ranks and steps, None where no rank is known."""
    by_stage: dict[int, list[float]] = {}
    for rank in summarize(run)["ranks"]:
        for step in rank["steps"]:
            computed = _computing_ns(step["breakdown_ns"])
            if computed and rank["pipeline_stage"] is not None:
                by_stage.setdefault(rank["pipeline_stage"], []).append(computed / NS_PER_S)
    return [sorted(values)[len(values) // 2] if (values := by_stage.get(stage)) else None for stage in range(num_stages)]


def _computing_ns(breakdown: Mapping[str, int] | None) -> int:
    return sum(amount for path, amount in (breakdown or {}).items() if path.split("/")[0] == "computing")


def _written(found: PlanProblem | None, result: PlanResult, target: str | None) -> dict[str, Any]:
    if found is None or result.layout is None:
        if target:
            raise InputError(target, [f"nothing is written: {result.why()}"])
        return {}
    plan = found.plan_of(result.layout)
    predicted = estimate(plan)
    written = write_config(as_stated(plan), target)
    return {"estimate": predicted.to_dict(), "config": written.text, "lost": list(written.lost), "notes": list(written.notes)}
