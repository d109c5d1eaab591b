"""Accuracy: the verdict on the losses of a round, written to the log of its project."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from perfkit.core.errors import InputError
from perfkit.explain.alignment import Alignment
from perfkit.project import is_sample
from perfkit.project.experiments import ExperimentLog
from perfkit.project.keep import own_project


def keep_accuracy(found: Alignment, places: Iterable[str | Path] = ()) -> str:
    """Write the verdict on the losses to the round that waits for its decision, and say so; `places` are where they were read.

    Raises InputError if there is no project or round, or if one of the places is a bundled sample.
    """
    project = own_project("accuracy")
    log = ExperimentLog(project.folder)
    number = next((row["number"] for row in log.show("json")["rounds"] if not row["verdict"]), None)
    if number is None:
        raise InputError("accuracy", [f"no round of {project.name} is open; start the next one first"])
    if any(is_sample(Path(place), project.folder) for place in places):
        raise InputError("accuracy", ["a bundled sample says nothing about this project; choose logs of your own"])
    log.record_accuracy(
        number,
        found.stored_as,
        note=f"{found.verdict}: {'; '.join(found.judgement.reasons)}",
        steps=found.num_compared,
        limits={"class": found.change_class, **asdict(found.limits)},
        max_rel=found.max_relative,
        mean_rel=found.mean_relative,
        norm_max_rel=found.norm_max_relative,
    )
    return f"Saved to round {number} of {project.name}: {found.verdict}, stored as {found.stored_as}."
