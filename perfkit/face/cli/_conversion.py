"""The command `convert`: the text on standard output or in a file, everything else that the user should know beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TextIO

import yaml

from perfkit.config.dialects import Written, edit_config, load_document, write_config
from perfkit.core import texts
from perfkit.core.errors import InputError
from perfkit.core.spec.hardware import HardwareSpec
from perfkit.core.spec.plan import Plan
from perfkit.core.texts import told
from perfkit.core.units import significant
from perfkit.face.cli._document import print_document
from perfkit.face.cli._screen import say, write_text
from perfkit.predict.estimate import estimate
from perfkit.predict.plans.repair_text import repair_text
from perfkit.predict.reading import read_config, read_text


def convert(
    config: str,
    dialect: str,
    *,
    target: str | None,
    changes: Sequence[str],
    device: HardwareSpec | None,
    repair: bool = False,
    out: TextIO,
    remarks: TextIO,
    as_json: bool,
) -> None:
    """Read `config`, change values, write it in `dialect`; the text goes to `out` or `target`, remarks to `remarks` or `out`.

    Raises InputError for values that are no KEY=VALUE, a configuration that cannot be read, or a target that is the input.
    """
    plan, notes, original = _repaired(config) if repair else (read_config(config), (), "")
    if changes:
        edited = edit_config(plan.document, _values(changes))
        notes, wanted = (*notes, *edited.notes), read_text(edited.text, edited.name)
        same = not dialect or dialect == plan.document.dialect
        written = edited if same else write_config(wanted, dialect=dialect)
        plan = wanted
    else:
        written = write_config(plan, dialect=dialect)
    written = replace(written, notes=tuple(dict.fromkeys((*notes, *written.notes))), source=plan.document.path or written.source)
    if original and written.before:
        written = replace(written, before=original)
    figures = _figures(plan, written, device)
    if target:
        written.save(target)
    if as_json:
        print_document(_document(written, figures), out)
        return
    if not target:
        write_text(out, written.text)
    _remark(written, figures, out if target else remarks, target)


def _repaired(config: str) -> tuple[Plan, tuple[str, ...], str]:
    """The plan of the repaired text, which is proposed and not the file's, a sentence for every proposal, and the file's text."""
    document = load_document(config)
    found = repair_text(document.text, document.name)
    plan = read_text(found.text, document.name)
    form = "line {line}: {before} becomes {after}: {why}"
    notes = tuple(texts.say(form, line=str(one.line), before=one.before, after=one.after, why=one.why) for one in found.proposals)
    return replace(plan, document=replace(plan.document, path=document.path, marked=document.marked)), notes, document.text


def _values(changes: Sequence[str]) -> dict[str, Any]:
    found, problems = {}, []
    for change in changes:
        key, equals, value = change.partition("=")
        try:
            found[key.strip()] = yaml.safe_load(value)
        except yaml.YAMLError:
            problems.append(f"{change!r}: the value is not YAML")
        if not equals or not key.strip():
            problems.append(f"{change!r} must be KEY=VALUE")
    if problems:
        raise InputError("--set", problems)
    return found


def _figures(plan: Plan, written: Written, device: HardwareSpec | None) -> list[str]:
    """What the losses cost: the predictions of the plan and of what the new text says, on one device."""
    hardware = plan.hardware or device
    if not written.lost or hardware is None:
        return []
    found = replace(read_text(written.text, written.name), hardware=hardware)
    lines: list[str] = []
    for form, one in (("wanted: {seconds} s a step", replace(plan, hardware=hardware)), ("written: {seconds} s a step", found)):
        predicted = estimate(one)
        step = texts.say(form, seconds=significant(predicted.step_time_s))
        peak = "{step}, peak memory {peak_bytes}"
        lines.append(texts.say(peak, step=step, peak_bytes=predicted.memory.total) if predicted.memory else step)
    return lines


def _document(written: Written, figures: list[str]) -> dict[str, Any]:
    return {
        "dialect": written.dialect,
        "text": written.text,
        "diff": written.diff() if written.before else None,
        "lost": list(written.lost),
        "notes": list(written.notes),
        "predictions": figures,
    }


def _remark(written: Written, figures: list[str], out: TextIO, target: str | None) -> None:
    if target and written.before:
        write_text(out, written.diff() or told("nothing changes") + "\n")
    if target:
        say(out, texts.say("written to {target} ({dialect})", target=target, dialect=written.dialect))
    if written.lost:
        form = "{dialect} cannot say {num} of the settings (wanted, and what the text says instead):"
        say(out, texts.say(form, dialect=written.dialect, num=str(len(written.lost))))
    for line in (*written.lost, *written.notes, *figures):
        say(out, "  - ", told(line))
