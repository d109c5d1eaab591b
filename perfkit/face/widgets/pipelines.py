"""Pipelines: a case for a pipeline, chosen on a page, and the controls that change it.

@widgets.step(problem=choose_case(path), **pipeline_entries())
def what_the_pipeline_does(problem, layers, **sizes):
return laid_out(changed_problem(problem, **sizes), layers)
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from perfkit.core.resources import data_folder
from perfkit.core.roots import checked
from perfkit.core.units import GIB, NS_PER_US
from perfkit.face.widgets import context
from perfkit.face.widgets.entries import Choice, Entry, Folder, Number, Slider, Text
from perfkit.face.widgets.pickers import Picker, make_picker
from perfkit.face.widgets.status import NothingYet
from perfkit.predict.plans.balance.case_file import read_problem
from perfkit.predict.plans.balance.laid_out import chunks_of, schedules_of, stages_of, transfers_of
from perfkit.predict.plans.balance.moves import even_split, layers_text
from perfkit.predict.plans.balance.problem import PipelineProblem

SAMPLES = {
    "GPT 175B, 16 stages": "plans/gpt_175b_16_stages.json",
    "GPT 175B, 16 stages x 3 chunks": "plans/gpt_175b_16_stages_3_chunks.json",
    "Dense + MoE, 28 layers, 4 stages": "plans/dense_moe_4_stages.json",
    "Llama, 96 layers, 16 stages": "plans/llama_96_layers_16_stages.json",
}
"""The first is the one in which solving gains most against an even split."""


def choose_case(path: str | Path = "", *, samples: Mapping[str, str] = SAMPLES) -> Picker:
    """A case with layers, times, sizes and stages: `.value` is its `PipelineProblem`. It starts with `path`, else with a sample."""
    first = str(path) or str(data_folder() / next(iter(samples.values())))

    def options(_state: object = None) -> list[tuple[str, str, str]]:
        project = context.current_project()
        own = [] if project is None else sorted(project.folder.glob("uploads/**/*.json"))
        bundled = [(label, str(data_folder() / place), "Samples") for label, place in samples.items()]
        return [*((one.name, str(one), "Project") for one in own), *bundled]

    def read(case: str) -> PipelineProblem:
        if not case:
            raise NothingYet("No case is chosen yet. Choose one above.")
        return read_problem(checked(case))

    def told(problem: PipelineProblem) -> str:
        chunks = f" of {problem.num_chunks} chunks" if problem.num_chunks > 1 else ""
        return f"{problem.num_layers} layers, {problem.num_stages} stages{chunks}, {problem.num_microbatches} micro batches."

    entry = Folder(first, options, label="Case", help="a perfkit.plans.plan/1 file")
    return make_picker("case", "Case", entry, read, told, samples=samples)


def pipeline_entries() -> dict[str, Entry]:
    """Controls by what they change: the fields of the `problem` that a step follows, `limit_gib`, `p2p_us`, and the `layers`.

    The layers are an even split of the stages and chunks until they are edited.
    """
    return {
        "num_stages": Slider(
            values=stages_of,
            default=lambda problem: problem.num_stages,
            label="Pipeline stages",
            key="parallel_config.pipeline_stage",
        ),
        "num_chunks": Slider(
            values=chunks_of,
            default=lambda problem: problem.num_chunks,
            label="Chunks a stage",
            key="parallel_config.pp_interleave_num",
        ),
        "layers": Text(
            lambda problem, num_stages, num_chunks: layers_text(even_split(problem.num_layers, num_chunks, num_stages)),
            label="Layers by stage",
            help="stages separated by spaces, chunks by semicolons",
            key="offset",
        ),
        "schedule": Choice(
            schedules_of,
            default=lambda problem: problem.schedule,
            label="Schedule",
            buttons=True,
            key="parallel.pipeline_config",
        ),
        "num_microbatches": Slider(
            1, 256, default=lambda problem: problem.num_microbatches, label="Micro batches", key="parallel_config.micro_batch_num"
        ),
        "limit_gib": Number(
            lambda problem: (problem.memory_limit_bytes or 0) / GIB,
            low=0.0,
            high=4096.0,
            label="Memory limit",
            unit="GiB",
            empty=0.0,
            placeholder="none",
        ),
        "p2p_us": Number(lambda problem: problem.p2p_ns / NS_PER_US, low=0.0, high=1e6, label="Transfer between stages", unit="µs"),
        "p2p_mode": Choice(transfers_of, default=lambda problem: problem.p2p_mode, label="Transfers are"),
    }
