"""Sample: the demo project, six published rounds of tuning Llama2-13B with their configurations, a real profile and a real log.

The speeds are those of a guide (kind `reported`); predictions are those of `perfkit.estimate`. Content and time stamps are the same
on every call. The profile and the log belong to other jobs: they are samples to read, no measurements of a round.
"""

from __future__ import annotations

import shutil
import tomllib
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from perfkit.config.dialects import read_config
from perfkit.core import catalog, settings
from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder
from perfkit.core.settings import PROJECT_FILE
from perfkit.core.shortening import enumerated
from perfkit.core.spec.plan import Plan
from perfkit.core.units import NS_PER_S
from perfkit.predict.estimate import Estimate, estimates
from perfkit.project import Project, create_project, open_project
from perfkit.project.experiments import CONFIRMATION, ExperimentLog, Measurement

CASE_FOLDER = "case13b"
SAMPLES: Mapping[str, str] = {
    "profile": "traces/torch_npu_2rank",
    "log": "traces/logs/llama2_13b_8card_worker_0.log",
}
AUTHOR = "perfkit demo"

NUM_ROUNDS = 6
DEVICE = "Ascend-910B2"
METHOD = f"perfkit estimate on {DEVICE}; 80 % interval"
FIRST_NS = 1_704_067_200 * NS_PER_S  # 2024-01-01, so that every demo is the same
BUILDING = ".perfkit-building-"


def demo(folder: Path | str) -> Project:
    """Write the sample project to `folder` and open it; a second call opens what is there.

    Raises InputError if the folder holds other files or a project of its own. perfkit.toml is written last, so an
    interrupted call leaves no half project.
    """
    folder = Path(folder).resolve()
    case = read_case()
    if (folder / PROJECT_FILE).is_file():
        project = open_project(folder)
        if project.sample_case != case["case"]:
            raise InputError(str(folder), [f"holds the project {project.name!r}; give the demo an empty folder"])
        return project
    _check_empty(folder)
    building = folder / f"{BUILDING}{uuid.uuid4().hex}"
    try:
        _build(building, case)
        children = sorted(building.iterdir(), key=lambda path: path.name == PROJECT_FILE)
        for child in children:
            child.rename(folder / child.name)
    except OSError as error:
        raise InputError(str(folder), [f"cannot be written: {error.strerror}"]) from error
    finally:
        shutil.rmtree(building, ignore_errors=True)
    project = open_project(folder)
    missing = [f"the sample {name} is not part of this installation" for name in SAMPLES if not _sample(name).exists()]
    return replace(project, warnings=(*project.warnings, *missing))


def predictions() -> list[Estimate]:
    """What `perfkit.estimate` predicts of every round's configuration on the case's device."""
    return estimates(round_plans())


def round_plans() -> list[Plan]:
    """Every round's configuration on the case's device."""
    device = catalog.hardware_named(DEVICE)
    plans = (read_config(data_folder() / CASE_FOLDER / f"round{number}.yaml") for number in range(NUM_ROUNDS))
    return [replace(plan, hardware=device) for plan in plans]


def read_case() -> dict[str, Any]:
    """The bundled case: `goal`, `device` and the six `rounds` with what each changed, was reported and teaches."""
    return tomllib.loads((data_folder() / CASE_FOLDER / "rounds.toml").read_text(encoding="utf-8"))


def _sample(name: str) -> Path:
    return data_folder() / SAMPLES[name]


def _check_empty(folder: Path) -> None:
    if settings.read_only():
        raise InputError(str(folder), ["perfkit was started with PERFKIT_READ_ONLY; the demo cannot be written"])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        found = sorted(path.name for path in folder.iterdir() if not path.name.startswith(BUILDING))
    except OSError as error:
        raise InputError(str(folder), [f"cannot be used as a folder: {error.strerror}"]) from error
    if found:
        raise InputError(str(folder), [f"is not empty ({enumerated(found, 3)}); give the demo an empty folder"])


def _build(folder: Path, case: Mapping[str, Any]) -> None:
    folder.mkdir(parents=True)
    paths = {name: _copy_sample(name, folder) for name in SAMPLES if _sample(name).exists()}
    _write_rounds(folder, case)
    last = len(case["rounds"]) - 1
    create_project(
        folder,
        case["name"],
        goal_metric=case["goal"]["metric"],
        goal_value=case["goal"]["value"],
        peak_flops_per_s=case["device"]["peak_flops_per_s"],
        device_memory_bytes=case["device"]["memory_bytes"],
        usable_limit_bytes=case["device"]["usable_limit_bytes"],
        open_run=folder / paths["profile"] if "profile" in paths else None,
        open_config=folder / "rounds" / f"{last:02d}" / "config.yaml",
        open_round=last,
        sample_case=case["case"],
        document={"samples": {"paths": paths}},
    )


def _copy_sample(name: str, folder: Path) -> str:
    source = _sample(name)
    target = folder / "samples" / source.name
    target.parent.mkdir(exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copyfile(source, target)
    return target.relative_to(folder).as_posix()


def _write_rounds(folder: Path, case: Mapping[str, Any]) -> None:
    log = ExperimentLog(folder, author=AUTHOR, clock=_clock())
    goal, device = case["goal"], case["device"]
    log.set_project(
        case["name"],
        goal_metric=goal["metric"],
        goal_value=goal["value"],
        peak_flops_per_s=device["peak_flops_per_s"],
        device_memory_bytes=device["memory_bytes"],
    )
    for row, predicted in zip(case["rounds"], predictions(), strict=True):
        number = log.start(row["title"], row["hypothesis"], change=row["change"])
        log.attach(number, data_folder() / CASE_FOLDER / f"round{number}.yaml", "config")
        if number:  # the first round is where the story starts
            fast_s, slow_s = predicted.interval_s
            value, tokens = predicted.tokens_per_s_per_device, predicted.tokens_per_s_per_device * predicted.step_time_s
            log.predict(number, goal["metric"], value, low=tokens / slow_s, high=tokens / fast_s, method=METHOD)
        log.add_run(number, [Measurement(metric=goal["metric"], value=float(row["reported"]), source=case["source"])])
        log.record_accuracy(number, "not_checked", note=case["accuracy_note"])
        log.decide(number, "keep", row["lesson"], confirmation=CONFIRMATION)


def _clock() -> Callable[[], int]:
    ticks: Iterator[int] = count(FIRST_NS, NS_PER_S)
    return lambda: next(ticks)
