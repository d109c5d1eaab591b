"""The command `plan`: a configuration in, the best strategies out as text, JSON or a configuration."""

from __future__ import annotations

from typing import TextIO

from perfkit.core import texts
from perfkit.core.errors import InputError
from perfkit.core.spec.plan import Plan
from perfkit.core.texts import told
from perfkit.core.units import NS_PER_S, format_bytes, format_ns, format_ratio, significant
from perfkit.face.cli._document import print_document
from perfkit.face.cli._progress import Progress
from perfkit.face.cli._screen import say
from perfkit.face.cli._tables import print_table
from perfkit.predict.plans.search.search import search_plans
from perfkit.predict.plans.search.search_result import SearchResult
from perfkit.predict.plans.search.search_text import plan_text


def plan_config(
    path: str,
    plan: Plan,
    *,
    devices: int | None,
    top: int,
    calibration: str | None,
    target: str | None,
    as_json: bool,
    out: TextIO,
    errors: TextIO,
) -> None:
    """Search the strategies for the plan that `path` states and print them; the best one goes to `target` if that is given.

    Raises InputError with all problems, before anything is written.
    """
    with Progress(errors) as show:
        result = search_plans(plan, devices=devices, top=top, progress=show, calibration=calibration)
    if target and not result.plans:
        raise InputError(
            target, [f"nothing is written: no plan fits {format_bytes(result.memory_limit_bytes)}", result.missing_text()]
        )
    written = _write(result.plans[0].plan, target, path) if target else []
    if as_json:
        print_document(result.to_dict(), out)
    else:
        print_plans(path, result, out)
    for number, line in enumerate(written):
        say(errors if as_json else out, "  " if number else "\n", line)


def print_plans(name: str, result: SearchResult, out: TextIO) -> None:
    """Print how much was searched, the best plans with their reasons, the front, the rule of thumb, and why the others lost."""
    searched = "{name}: {num} combinations on {devices} devices in {seconds} s; {evaluated} keep the rules"
    fitting = "{searched}, {feasible} of them fit {limit_bytes} ({source})"
    counts = {"num": str(result.searched), "devices": str(result.devices), "seconds": significant(result.seconds, 2)}
    lead = texts.say(searched, name=name, evaluated=str(result.evaluated), **counts)
    limit_bytes, source = result.memory_limit_bytes, result.memory_limit.source
    say(out, texts.say(fitting, searched=lead, feasible=str(result.feasible), limit_bytes=limit_bytes, source=source))
    say(out)
    if result.plans:
        _print_ranked(result, out)
    elif result.nearest is not None:
        say(out, told(result.missing_text()))
        say(out)
        rows = [[part, format_bytes(amount)] for part, amount in result.nearest.parts.parts.items()]
        print_table(["part of its fullest stage", "size"], rows, out, told=["part of its fullest stage"])
    if result.pareto:
        say(out, "\n", texts.say("time against memory: plans that no other one beats in both"))
        rows = [
            [plan_text(point.plan), format_ns(point.step_time_s * NS_PER_S), format_bytes(point.peak_memory_bytes)]
            for point in result.pareto[: max(10, len(result.plans))]
        ]
        print_table(["plan", "step", "peak"], rows, out, told=["plan"])
    if result.suggestion is not None:
        rule, suggested = result.suggestion
        say(out, "\n", texts.say("rule of thumb of the guides ({rule}):", rule=rule))
        say(out, "  ", plan_text(suggested.plan), ": ", told(suggested.why))
    say(out, "\n", texts.say("why the others lost"))
    print_table(["reason", "combinations"], [[reason, str(count)] for reason, count in _by_count(result)], out, told=["reason"])


def _print_ranked(result: SearchResult, out: TextIO) -> None:
    rows = [
        [
            plan_text(found.plan),
            format_ns(found.estimate.step_time_s * NS_PER_S),
            significant(found.estimate.tokens_per_s_per_device, 4),
            format_ratio(found.estimate.mfu),
            format_bytes(found.estimate.peak_memory_bytes),
            format_ratio(found.win_share),
        ]
        for found in result.plans
    ]
    print_table(["plan", "step", "tokens/s/device", "MFU", "peak", "wins"], rows, out, told=["plan"])
    best = result.plans[0]
    say(out, "\n", texts.say("best: {why}", why=best.why))
    say(out, told(result.certainty_text()))


def _by_count(result: SearchResult) -> list[tuple[str, int]]:
    return sorted(result.rejected.items(), key=lambda item: -item[1])


def _write(plan: Plan, target: str, path: str) -> list[texts.Said]:
    """Write the plan in the dialect of the configuration that it was read from; what could not be said is told."""
    written = plan.write(target)
    lines = [texts.say("written to {target} in the dialect of {path}", target=target, path=path)]
    # The device was named beside a configuration that has no place for it.
    lines += [texts.say("not said there: {lost}", lost=lost) for lost in written.lost if not lost.startswith("hardware:")]
    return lines + [texts.say("note: {note}", note=note) for note in written.notes]
