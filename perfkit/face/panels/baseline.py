"""Baseline: what a step takes now, from a training log, and how far that is from the hardware.

Step time is the median after warm-up. Throughput divides by all devices (erratum X02). MFU needs the model's FLOPs: from the
configuration, from a chosen model, or from the rate that the log itself prints.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd

from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder
from perfkit.core.units import format_ratio, significant
from perfkit.explain.training_log import detect_divisor
from perfkit.face.charts.steps import step_time_rows, step_times
from perfkit.face.panels._baseline import Result, State, compute, start
from perfkit.face.widgets import context
from perfkit.face.widgets.chart import Figure
from perfkit.face.widgets.control import Choice, Number, PathPicker, Slider, Toggle
from perfkit.face.widgets.panel import Action, Answer, Empty, Panel
from perfkit.face.widgets.table import Table
from perfkit.predict.cost.utilization import judge_utilization
from perfkit.project.experiments import ExperimentLog, figures_of_log

MAX_WARMUP = 20


def view(result: Result) -> Answer:
    """The step times as a chart, the figures with their origin as a table, and the answer in one sentence."""
    statistics, state = result.found.statistics, result.state
    rows = step_time_rows(
        result.found.log, num_warmup=statistics.num_warmup, median_ns=statistics.median_ns, outliers=statistics.outlier_steps
    )
    figure = Figure(
        chart=step_times(rows),
        title=context.marked(state.log, f"Step times of {result.run.name}"),
        sources=[f"measured: {result.run.name}, table log"],
        table="steps",
        wide=True,
    )
    return Answer({"steps": figure}, lambda: {"figures": _table(result)}, _sentence(result), lambda: _notes(result))


def _table(result: Result) -> Table:
    return Table(
        frame=_figures(result), title="Figures and where they come from", labels={"value": "value", "origin": "where from"}
    )


def _figures(result: Result) -> pd.DataFrame:
    statistics, found = result.found.statistics, result.found
    shown = [
        replace(found.step_time, name="step time, median"),
        found.spread,
        found.samples_per_s_per_device,
        found.tokens_per_s_per_device,
        found.flops_per_s_per_device,
        found.mfu,
    ]
    rows = [(each.name, each.text(), each.state, each.source) for each in shown]
    sizes = [(each.name, each.text(absent="not known"), each.state, each.source) for each in found.sizes.values()]
    span = ("10th to 90th percentile", context.span(statistics.p10_ns, statistics.p90_ns), "measured", "same steps")
    return pd.DataFrame([*rows[:2], span, *sizes, *rows[2:]], columns=["quantity", "value", "state", "origin"])


def _sentence(result: Result) -> str:
    statistics = result.found.statistics
    left_out = (
        "nothing left out"
        if not statistics.num_warmup
        else f"{statistics.num_warmup} warm-up step{'s' if statistics.num_warmup > 1 else ''} left out"
    )
    spread = format_ratio(statistics.mad_ns / statistics.median_ns if statistics.median_ns else 0.0)
    tokens, utilization = result.found.tokens_per_s_per_device, result.found.mfu
    text = (
        f"A step takes {result.found.step_time.text()} (median of {statistics.num_steps}, {left_out}; typical deviation {spread})."
    )
    if tokens.known is not None:
        text += f" That is {tokens.text()}."
    if utilization.value is not None:
        text += f" MFU is {utilization.text()} of {significant(result.state.peak_tflops_per_s)} TFLOP/s"
        text += "." if result.model is not None else ", by the log's own FLOP rate."
    return text


def _notes(result: Result) -> tuple[str, ...]:
    statistics, notes = result.found.statistics, []
    ratio = statistics.first_to_median
    if ratio is not None and ratio >= 2 and statistics.num_warmup == 0:
        notes.append(f"The first step is {significant(ratio, 2)} times the median: it holds compilation. Leave it out.")
    if statistics.num_warmup != result.found.suggested_warmup:
        notes.append(f"Suggested warm-up: {result.found.suggested_warmup} steps.")
    if statistics.num_steps < 3:
        notes.append(f"Only {statistics.num_steps} steps are left: too few for a baseline, 3 or more are needed.")
    if statistics.outlier_steps:
        shown = ", ".join(map(str, statistics.outlier_steps[:8])) + (" …" if len(statistics.outlier_steps) > 8 else "")
        notes.append(
            f"{len(statistics.outlier_steps)} of {statistics.num_steps} steps lie more than 3 MAD from the median: {shown}."
        )
    share = result.found.mfu.value
    if share is not None and judge_utilization(share) != "plausible":
        notes.append(
            f"An MFU of {format_ratio(share)} is {judge_utilization(share)}: check devices, batch, sequence length and peak."
        )
    notes += _divisor_note(result)
    notes += [f"Not read: {lost.count} x {lost.what} ({lost.file})." for lost in result.run.dropped]
    return (*notes, *result.run.notes)


def _divisor_note(result: Result) -> list[str]:
    logged = result.found.statistics.samples_per_s_per_device
    devices, batch = result.found.sizes["num_devices"].value, result.found.sizes["global_batch_size"].value
    if logged is None or not devices or not batch:
        return []
    candidates = {"all devices": int(devices)}
    if result.plan is not None:
        candidates["the data-parallel size"] = result.plan.parallel.data_parallel_size
    found = detect_divisor(
        logged, global_batch_size=int(batch), duration_ns=result.found.statistics.median_ns, candidates=candidates
    )
    if found is None:
        return [
            f"The log prints {significant(logged, 4)} samples/s/p, which does not fit {' or '.join(candidates)}: "
            "check batch and devices."
        ]
    return [f"The log's {significant(logged, 4)} samples/s/p is divided by {found.name} ({found.size})."]


def save_baseline(state: State) -> str:
    """Write the log and its figures to the open round of the project, the first one if there is none yet."""
    project = context.current_project()
    if project is None:
        raise InputError("baseline", ["no project is open; make one on page 00"])
    result = compute(state)
    if result.found.statistics.num_steps < 3:
        raise InputError("baseline", [f"{result.found.statistics.num_steps} steps after warm-up; a baseline needs 3 or more"])
    log = ExperimentLog(project.folder)
    rounds = log.show("json")["rounds"]
    number = next((row["number"] for row in rounds if not row["verdict"]), None)
    if number is None and rounds:
        raise InputError("baseline", [f"all {len(rounds)} rounds of {project.name} are decided; start the next one first"])
    if number is None:
        number = log.start("Baseline", "what the training does before anything is changed")
    kind = "reported" if context.is_sample(Path(state.log)) else result.run.kind
    log.attach(number, state.log, "run", run=result.run, kind=kind, figures=figures_of_log(result.run.name, result.found))
    return f"Saved to round {number} of {project.name}: step time, throughput and MFU of {result.run.name}."


def fill(state: State) -> State:
    """The bundled log."""
    sample = next(iter(context.SAMPLE_LOGS.values()))
    return replace(state, log=str(data_folder() / sample))


def _models(_state: State) -> list[tuple[str, str]]:
    return [("from the configuration, or none", ""), *((name, name) for name in catalog.models())]


PANEL = Panel(
    title="Step time and throughput",
    start=start,
    compute=compute,
    view=view,
    empty=Empty(action="Use the sample log", fill=fill),
    shared=("log",),
    actions=(
        Action(
            name="save",
            label="Save as baseline",
            run=save_baseline,
            help="writes the log and its figures to the open round of the project",
            visible=context.can_save,
        ),
    ),
    controls=(
        PathPicker(
            path="log", options=context.log_options, label="Training log", help="MindFormers or Megatron; a file or its folder"
        ),
        Toggle(path="suggest", label="Suggested warm-up", help="leave out the first steps that are longer than the run explains"),
        Slider(
            path="num_warmup",
            low=0,
            high=MAX_WARMUP,
            label="Warm-up steps left out",
            unit="steps",
            visible=lambda state: not state.suggest,
        ),
        PathPicker(
            path="config",
            options=context.config_options,
            label="Configuration",
            help="states devices, batch, sequence length and model",
        ),
        Choice(path="model", options=_models, label="Model", help="for the model FLOPs in MFU"),
        Number(
            path="num_devices",
            low=0,
            high=1_000_000,
            step=1,
            label="Devices",
            empty=0,
            placeholder="as the log says",
            help="all devices of the job",
        ),
        Number(
            path="global_batch_size",
            low=0,
            high=10_000_000,
            step=1,
            label="Global batch",
            empty=0,
            placeholder="as the log says",
            unit="sequences",
        ),
        Number(
            path="seq_length",
            low=0,
            high=10_000_000,
            step=1,
            empty=0,
            placeholder="as the log says",
            label="Sequence length",
            unit="tokens",
            key="model.model_config.seq_length",
        ),
        Number(
            path="peak_tflops_per_s",
            low=0.1,
            high=100_000,
            label="Peak of one device",
            unit="TFLOP/s",
            help="dense, of the training dtype",
        ),
    ),
)
