"""The command `simulate`: a configuration and faults in, a run folder with its truth out."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, TextIO

from perfkit.core import texts
from perfkit.core.errors import InputError
from perfkit.core.spec.plan import Plan
from perfkit.core.units import format_ns, format_ratio
from perfkit.explain.ranks import parse_ranks
from perfkit.face.cli._asked import asked_plan
from perfkit.face.cli._screen import say
from perfkit.face.cli._tables import print_table
from perfkit.face.export.write import write
from perfkit.predict.simulate.run import number_problems, prepare
from perfkit.predict.simulate.truth import truth


def simulate_config(arguments: argparse.Namespace) -> dict[str, Any]:
    """Simulate what the arguments ask for, write it, and give the truth."""
    plan = asked_plan(arguments.config, arguments.device, others=number_problems(arguments.steps, arguments.seed))
    prepared = prepare(
        plan,
        arguments.fault,
        seed=arguments.seed,
        steps=arguments.steps,
        ranks=_ranks(arguments.ranks, plan),
        calibration=arguments.calibration,
    )
    target = Path(arguments.out).expanduser()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InputError(arguments.out, ["exists already; choose a new folder"])
    document = truth(prepared, price=not arguments.no_cost)
    write(prepared.run(), target, format=arguments.format, truth=document)
    return document


def _ranks(text: str, plan: Plan) -> tuple[int, ...] | None:
    return parse_ranks(text, range(plan.num_devices)) if text.strip() else None


def print_simulation(document: dict[str, Any], folder: str, out: TextIO) -> None:
    """Print where the run is and what is wrong with it on purpose."""
    sizes = {"steps": str(document["steps"]), "ranks": str(document["world_size"])}
    say(out, texts.say("{folder}: {steps} steps of {ranks} ranks", folder=folder, **sizes))
    if "step_ns" in document:
        say(out, texts.say("step {step_ns}, without faults {healthy_step_ns}", **document))
    if document.get("fits") is False:
        form = "warning: needs {peak_memory_bytes} of {memory_limit_bytes} ({memory_limit_source}): it would not run"
        say(out, texts.say(form, **document))
    if not document["faults"]:
        say(out, texts.say("no faults"))
        return
    rows = [
        [fault["spec"], format_ns(fault.get("cost_ns_per_step")), format_ratio(fault.get("cost_share"))]
        for fault in document["faults"]
    ]
    say(out)
    print_table(["fault", "cost a step", "share"], rows, out)
