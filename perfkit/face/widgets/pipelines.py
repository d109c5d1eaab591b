"""Pipelines: a configuration or a case for a pipeline, chosen on a page, and the controls that change it.

@widgets.step(problem=choose_case(path), **pipeline_entries())
def what_the_pipeline_does(problem, layers, recompute, **sizes):
    changed = changed_problem(problem, **sizes)
    return laid_out(changed, recomputed(changed, layers, recompute))
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from perfkit.config.presets import read_plan
from perfkit.core import catalog
from perfkit.core.errors import PerfkitError
from perfkit.core.resources import data_folder
from perfkit.core.roots import checked
from perfkit.core.texts import t
from perfkit.core.units import GIB, NS_PER_US
from perfkit.face.charts.schedule import picture_height, schedule_picture, schedule_rows, schedule_table
from perfkit.face.widgets import context
from perfkit.face.widgets.chart import Figure
from perfkit.face.widgets.entries import Choice, Entry, Folder, Number, Slider, Text
from perfkit.face.widgets.pickers import Picker, make_picker
from perfkit.face.widgets.plan_entries import USUAL_DEVICE, device_of
from perfkit.face.widgets.status import NothingYet
from perfkit.predict.changes import on_device
from perfkit.predict.estimate import efficiency_of
from perfkit.predict.plans.balance.case_file import is_case, read_problem
from perfkit.predict.plans.balance.fields import MAX_FILE_BYTES
from perfkit.predict.plans.balance.from_plan import PlanProblem, problem_of_plan
from perfkit.predict.plans.balance.laid_out import (
    AS_CONFIGURED,
    FASTEST,
    LaidOut,
    Pipeline,
    case_of,
    chunks_of,
    own_layers,
    schedules_of,
    stages_of,
    transfers_of,
)
from perfkit.predict.plans.balance.sapp import is_sapp, read_sapp

SAMPLES = {
    "GPT 175B, 16 stages": "plans/gpt_175b_16_stages.json",
    "GPT 175B, 16 stages x 3 chunks": "plans/gpt_175b_16_stages_3_chunks.json",
    "Dense + MoE, 28 layers, 4 stages": "plans/dense_moe_4_stages.json",
    "Llama, 96 layers, 16 stages": "plans/llama_96_layers_16_stages.json",
}
"""The first is the one in which solving gains most against an even split."""


def choose_case(path: str | Path = "", *, samples: Mapping[str, str] = SAMPLES) -> Picker:
    """A pipeline: `.value` is the `PlanProblem` of a configuration, or the `PipelineProblem` of a case.

    It starts with `path`, else with the configuration that the project has open, else with a sample. The device beside it is
    that of a configuration, and the usual one where it names none.
    """
    project = context.current_project()
    opened = project.open_config if project is not None else None
    own = str(opened) if opened is not None and opened.exists() else ""
    first = str(path) or own or str(data_folder() / next(iter(samples.values())))
    device = Choice(_devices, default=_device, label="Device", visible=_is_configuration)

    def read(config: str, device: str) -> Pipeline:
        if not config:
            raise NothingYet(t("No configuration is chosen yet. Choose one above."))
        if (text := _case_text(config)) is not None:
            return read_sapp(text, config) if is_sapp(text) else read_problem(checked(config))
        plan = read_plan(config)
        if plan.hardware is None or plan.hardware.name != device:
            plan = on_device(plan, device)
        return problem_of_plan(plan, efficiency_of(plan))

    def told(pipeline: Pipeline) -> str:
        problem = case_of(pipeline)
        chunks = f" of {problem.num_chunks} chunks" if problem.num_chunks > 1 else ""
        return f"{problem.num_layers} layers, {problem.num_stages} stages{chunks}, {problem.num_microbatches} micro batches."

    entry = Folder(
        first,
        partial(_options, samples=samples),
        label="Configuration or case",
        help="a configuration with pipeline stages, or a perfkit.plans.plan/1 file",
    )
    return make_picker("config", "Configuration or case", entry, read, told, samples=samples, more={"device": device})


def config_of_case(case: str) -> str:
    """The configuration that the page has open: the one of its pipeline, else the one that other pages open with."""
    return case if _is_configuration(case) else context.first_config()


def _options(_state: object = None, *, samples: Mapping[str, str]) -> list[tuple[str, str, str]]:
    project = context.current_project()
    own = [] if project is None else sorted(project.folder.glob("uploads/**/*.json"))
    cases = [(one.name, str(one), "Project") for one in own if not _is_configuration(str(one))]
    bundled = [(label, str(data_folder() / place), "Samples") for label, place in samples.items()]
    return [*cases, *bundled, *context.plan_options(samples={})]


def _case_text(config: str) -> str | None:
    """The text of a case, also of one of SAPP's; None of a configuration and of the name of a model."""
    if config in catalog.models():
        return None
    place = checked(config)
    if not is_case(place) and (place.suffix.lower() not in (".yaml", ".yml", ".json") or place.stat().st_size > MAX_FILE_BYTES):
        return None
    text = place.read_text(encoding="utf-8", errors="replace")
    return text if is_case(place) or is_sapp(text) else None


def _is_configuration(config: str) -> bool:
    """Whether a plan is read from it; what is wrong with any other file the picker says."""
    try:
        return bool(config) and _case_text(config) is None and bool(read_plan(config))
    except PerfkitError:
        return False


def _device(config: str) -> str:
    return device_of(read_plan(config)) if _is_configuration(config) else USUAL_DEVICE


def _devices(config: str) -> list[str]:
    """Devices that compute in the precision of a configuration; all of them where none is chosen."""
    known = catalog.hardware()
    if not _is_configuration(config):
        return list(known)
    dtype = read_plan(config).workload.dtype
    return [name for name, device in known.items() if dtype in device.peak_flops_per_s]


def schedule_figure(drawn: LaidOut) -> Figure:
    """What every stage runs; the table of the picture has every bar of the step."""
    operations, again_ns = drawn.schedule.columns(), drawn.recompute_ns()
    return Figure(
        chart=schedule_picture(schedule_rows(operations, again_ns)),
        params={"height": picture_height(drawn.problem.num_stages)},
        table="operations",
        rows=partial(schedule_table, operations, again_ns),
        wide=True,
    )


def pipeline_entries() -> dict[str, Entry]:
    """Controls by what they change: the fields of the `problem` that a step follows, `limit_gib`, `p2p_us`, and the `layers`.

    The layers are those of the plan, or an even split of other stages and chunks and of a case, until they are edited.
    """
    return {
        "num_stages": Slider(
            values=stages_of,
            default=lambda problem: case_of(problem).num_stages,
            label="Pipeline stages",
            key="parallel_config.pipeline_stage",
        ),
        "num_chunks": Slider(
            values=chunks_of,
            default=lambda problem: case_of(problem).num_chunks,
            label="Chunks a stage",
            key="parallel_config.pp_interleave_num",
        ),
        "layers": Text(
            own_layers,
            label="Layers of stage 0, 1, …",
            help="stages separated by spaces, chunks by semicolons",
            key="offset",
        ),
        "recompute": Choice(
            AS_CONFIGURED,
            FASTEST,
            label="Recompute",
            help="layers that are not those of the configuration have the fastest that fits",
            visible=lambda problem: isinstance(problem, PlanProblem),
            buttons=True,
        ),
        "schedule": Choice(
            schedules_of,
            default=lambda problem: case_of(problem).schedule,
            label="Schedule",
            buttons=True,
            key="parallel.pipeline_config",
        ),
        "num_microbatches": Slider(
            values=lambda problem: sorted({*range(1, 257), case_of(problem).num_microbatches}),
            default=lambda problem: case_of(problem).num_microbatches,
            label="Micro batches",
            key="parallel_config.micro_batch_num",
        ),
        "limit_gib": Number(
            lambda problem: (case_of(problem).memory_limit_bytes or 0) / GIB,
            low=0.0,
            high=4096.0,
            label="Memory limit",
            unit="GiB",
            empty=0.0,
            placeholder="none",
        ),
        "p2p_us": Number(
            lambda problem: case_of(problem).p2p_ns / NS_PER_US, low=0.0, high=1e6, label="Transfer between stages", unit="µs"
        ),
        "p2p_mode": Choice(transfers_of, default=lambda problem: case_of(problem).p2p_mode, label="Transfers are"),
    }
