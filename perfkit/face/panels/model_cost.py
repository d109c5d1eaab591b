"""Model cost: parameters and FLOPs by part, and the MFU of a measured speed in every convention.

A preset fills the sizes; every size can then be changed. The guides' totals stand beside the exact ones with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import pandas as pd

from perfkit.config.dialects import read_config
from perfkit.core import catalog
from perfkit.core.breakdown import Breakdown
from perfkit.core.errors import InputError
from perfkit.core.params import active_params, count_params
from perfkit.core.spec.hardware import HardwareSpec
from perfkit.core.spec.model import ModelSpec
from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.spec.recompute import RecomputePlan
from perfkit.core.spec.workload import Workload
from perfkit.core.units import TERA, format_ratio, format_si, significant
from perfkit.face.charts.cost import flops_bars, parameter_bars, roofline
from perfkit.face.widgets import context
from perfkit.face.widgets.chart import Figure
from perfkit.face.widgets.control import Choice, Number, Slider, Toggle
from perfkit.face.widgets.panel import Action, Answer, Panel
from perfkit.face.widgets.table import Table
from perfkit.predict.cost.flops import Attention, pass_flops, training_flops
from perfkit.predict.cost.guide import guide_flops
from perfkit.predict.cost.roofline import layer_matmuls
from perfkit.predict.cost.utilization import guide_selective_hfu, hfu, judge_utilization, mfu, published_cases
from perfkit.project import save

DEFAULT_PRESET = "llama2-13b"
SIZES = ("num_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "ffn_hidden_size", "vocab_size")
CONVENTIONS: tuple[tuple[str, Attention, bool], ...] = (
    ("full attention, with head", "full", True),
    ("full attention, without head", "full", False),
    ("causal half, with head", "causal", True),
    ("causal half, without head", "causal", False),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """The sizes on the page. Choosing another `preset` fills them anew; `filled` is the preset that they were filled from."""

    preset: str = DEFAULT_PRESET
    filled: str = ""
    num_layers: int = 0
    hidden_size: int = 0
    num_attention_heads: int = 0
    num_key_value_heads: int = 0
    ffn_hidden_size: int = 0
    vocab_size: int = 0
    seq_length: int = 4096
    micro_batch_size: int = 1
    attention: Attention = "full"
    count_head: bool = True
    num_recomputed_layers: int = 0
    device: str = "Ascend-910B2"
    peak_tflops_per_s: float = 376.0
    tokens_per_s_per_device: float = 2562.0

    def __post_init__(self) -> None:
        if self.preset != self.filled:
            model = preset_model(self.preset)
            for name in SIZES:
                object.__setattr__(self, name, getattr(model, name))
            object.__setattr__(self, "filled", self.preset)


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """All that the page shows."""

    state: State
    model: ModelSpec
    parameters: Breakdown
    active_parameters: Breakdown
    passes: dict[str, Breakdown]
    products: pd.DataFrame
    hardware: HardwareSpec
    mfu: float
    hfu: float


def preset_model(preset: str) -> ModelSpec:
    """The model of a preset: a name of the catalogue, or the path of a configuration."""
    if preset in catalog.models():
        return catalog.models()[preset]
    path = Path(preset)
    return _config_model(preset, path.stat().st_mtime_ns if path.exists() else 0)


@lru_cache(maxsize=16)
def _config_model(path: str, _modified_ns: int) -> ModelSpec:
    # A slider asks several times a second; reading a configuration takes 40 ms.
    return read_config(path).model


def start() -> State:
    """The project's configuration, counting convention and peak, else Llama2-13B at the speed of its last published round."""
    project = context.current_project()
    if project is None:
        return State()
    preset = str(project.open_config) if project.open_config is not None and project.open_config.exists() else DEFAULT_PRESET
    peak = project.peak_flops_per_s / TERA if project.peak_flops_per_s else 376.0
    return State(preset=preset, attention=project.attention, count_head=project.count_head, peak_tflops_per_s=peak)


def compute(state: State) -> Result:
    """Count everything; raises InputError with every size that cannot be."""
    base = preset_model(state.preset)
    sizes: dict[str, Any] = {name: int(getattr(state, name)) for name in SIZES}
    if (base.hidden_size, base.num_attention_heads) != (sizes["hidden_size"], sizes["num_attention_heads"]):
        sizes["head_size"] = max(1, sizes["hidden_size"] // sizes["num_attention_heads"])
    model = replace(base, **sizes)
    recompute = RecomputePlan(full_layers=((min(int(state.num_recomputed_layers), model.num_layers),),))
    passes = pass_flops(model, int(state.seq_length), recompute, state.attention, head=state.count_head)
    work = training_flops(model, int(state.seq_length), state.attention, head=state.count_head)
    peak, speed = state.peak_tflops_per_s * TERA, state.tokens_per_s_per_device
    hardware = replace(catalog.hardware_named(state.device), peak_flops_per_s={"bfloat16": peak})
    workload = Workload(
        seq_length=int(state.seq_length),
        micro_batch_size=int(state.micro_batch_size),
        global_batch_size=int(state.micro_batch_size),
    )
    return Result(
        state=state,
        model=model,
        parameters=count_params(model),
        active_parameters=active_params(model),
        passes=passes,
        products=layer_matmuls(model, workload, ParallelPlan(), hardware),
        hardware=hardware,
        mfu=mfu(work, speed, peak),
        hfu=hfu(work, passes["recompute"], speed, peak),
    )


def view(result: Result) -> Answer:
    """FLOPs, parameters and roofline as charts; conventions and the guides' totals as tables."""
    charts = {
        "flops": Figure(
            chart=flops_bars(result.passes),
            title="FLOP per token by part of the model",
            sources=[breakdown.source for breakdown in result.passes.values()],
            wide=True,
        ),
        "parameters": Figure(
            chart=parameter_bars(result.parameters), title="Parameters by part", sources=[result.parameters.source]
        ),
        "roofline": Figure(
            chart=roofline(
                result.products,
                peak_flops_per_s=result.hardware.peak("bfloat16"),
                memory_bytes_per_s=result.hardware.memory_bytes_per_s,
            ),
            title=f"Roofline of one layer's products on {result.hardware.name}",
            sources=[
                "computed: min(peak, intensity x memory bandwidth), CACM 52(4) 2009",
                *map(str, result.hardware.sources.values()),
            ][:3],
            table="products",
        ),
    }
    return Answer(charts, lambda: _tables(result), _sentence(result), lambda: _notes(result))


def _tables(result: Result) -> dict[str, Table]:
    return {
        "conventions": Table(frame=_conventions(result), title="MFU of this speed in every convention"),
        "guides": Table(
            frame=_guides(result.model, int(result.state.seq_length)), title="The guides' totals beside the exact ones"
        ),
        "published": Table(frame=_published(), title="Speeds and MFUs that the guides print, recomputed"),
    }


def _conventions(result: Result) -> pd.DataFrame:
    state, model = result.state, result.model
    rows = []
    for name, attention, head in CONVENTIONS:
        work = training_flops(model, int(state.seq_length), attention, head=head)
        again = pass_flops(model, int(state.seq_length), RecomputePlan(all_layers=True), attention, head=head)["recompute"]
        speed, peak = state.tokens_per_s_per_device, state.peak_tflops_per_s * TERA
        rows.append(
            {
                "convention": name,
                "training per token": format_si(work.total, "FLOP", 4),
                "MFU": f"{mfu(work, speed, peak):.2%}",
                "HFU, all layers recomputed": f"{hfu(work, again, speed, peak):.2%}",
            }
        )
    return pd.DataFrame(rows)


def _guides(model: ModelSpec, seq_length: int) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "quantity": figure.name,
                "guide": format_si(figure.guide_flops, "FLOP", 4),
                "exact": format_si(figure.exact_flops, "FLOP", 4),
                "difference": f"{figure.ratio - 1:+.1%}",
                "why": f"{figure.erratum}: {figure.why}",
            }
            for figure in guide_flops(model, seq_length)
        ]
    )


@cache
def _published() -> pd.DataFrame:
    rows = []
    for case in published_cases().to_dict("records"):
        speed, printed = case["tokens_per_s_per_device"], case["published_mfu"]
        rows.append(
            {
                "case": case["case"],
                "tokens/s per device": None if pd.isna(speed) else significant(speed, 4),
                "printed MFU": None if pd.isna(printed) else f"{printed:.1%}",
                "recomputed": None if pd.isna(case["mfu"]) else f"{case['mfu']:.1%}",
                "counted as": case["convention"],
                "verdict": case["judgement"],
            }
        )
    return pd.DataFrame(rows)


def _sentence(result: Result) -> str:
    state, model = result.state, result.model
    work = result.passes["forward"].total + result.passes["backward"].total
    changed = any(getattr(model, name) != getattr(preset_model(state.preset), name) for name in SIZES)
    name = (model.name or Path(state.preset).name) + (", changed" if changed else "")
    count = f"{int(result.parameters.total):,}".replace(",", "\u2009")
    text = f"{name}: {count} parameters"
    if model.num_experts:
        text += f", {format_si(result.active_parameters.total, '')} of them active per token"
    text += f"; {format_si(work, 'FLOP', 4)} per token in training. "
    text += (
        f"At {significant(state.tokens_per_s_per_device, 4)} tokens/s per device that is MFU {result.mfu:.2%} "
        f"of {significant(state.peak_tflops_per_s)} TFLOP/s"
    )
    return text + (f", HFU {result.hfu:.2%}." if state.num_recomputed_layers else ".")


def _notes(result: Result) -> tuple[str, ...]:
    state, notes = result.state, []
    judgement = judge_utilization(result.mfu)
    if judgement == "impossible":
        notes.append(f"Impossible: MFU {format_ratio(result.mfu)} is above 1. Check speed, sequence length and peak (X08a).")
    elif judgement == "suspicious":
        notes.append(f"Suspicious: no published training of a large model reaches an MFU of {format_ratio(result.mfu)}.")
    model, seq = result.model, int(state.seq_length)
    printed = guide_selective_hfu(model, seq, state.tokens_per_s_per_device, state.peak_tflops_per_s * TERA, state.attention)
    core = pass_flops(model, seq, RecomputePlan(attention_core=True), state.attention)["recompute"]
    right = hfu(training_flops(model, seq, state.attention), core, state.tokens_per_s_per_device, state.peak_tflops_per_s * TERA)
    notes.append(
        f"With only the attention core recomputed, HFU is {right:.2%}; the variant that the guides print gives {printed:.2%} (X06)."
    )
    if result.model.hidden_size % result.model.num_attention_heads:
        notes.append("The hidden size is not a multiple of the heads: the head size is rounded down.")
    return tuple(notes)


def save_convention(state: State) -> str:
    """Write the counting convention and the peak to the project: all MFU figures use them."""
    project = context.current_project()
    if project is None:
        raise InputError("convention", ["no project is open; make one on page 00"])
    saved = save(
        replace(project, attention=state.attention, count_head=state.count_head, peak_flops_per_s=state.peak_tflops_per_s * TERA)
    )
    head = "with" if saved.count_head else "without"
    peak = significant(state.peak_tflops_per_s)
    return f"All MFU figures of {saved.name} now count {saved.attention} attention {head} head, of {peak} TFLOP/s."


def _presets(_state: State) -> list[tuple[str, str, str]]:
    configs = [(label, path, "From a configuration") for label, path, group in context.config_options() if group == "Project"]
    return [*configs, *((name, name, "Published models") for name in catalog.models())]


def _divisors_of_heads(state: State) -> list[float]:
    heads = int(state.num_attention_heads)
    return [float(size) for size in range(1, heads + 1) if heads % size == 0]


PANEL = Panel(
    title="Parameters and FLOPs",
    start=start,
    compute=compute,
    view=view,
    shared=("preset",),
    actions=(
        Action(
            name="save",
            label="Use this convention in the project",
            run=save_convention,
            help="writes attention, head and peak to perfkit.toml",
            visible=context.can_save,
        ),
    ),
    controls=(
        Choice(path="preset", options=_presets, label="Model", key="model.model_config.type"),
        Slider(
            path="seq_length",
            low=128,
            high=1_048_576,
            scale="log",
            label="Sequence length",
            unit="tokens",
            key="model.model_config.seq_length",
        ),
        Slider(path="hidden_size", low=64, high=65_536, scale="log", label="Hidden size", key="model.model_config.hidden_size"),
        Slider(path="num_layers", low=1, high=1024, scale="log", label="Layers", key="model.model_config.num_layers"),
        Slider(
            path="num_attention_heads", low=1, high=512, scale="log", label="Attention heads", key="model.model_config.num_heads"
        ),
        Slider(
            path="num_key_value_heads",
            low=1,
            high=512,
            values=_divisors_of_heads,
            label="Key-value heads",
            key="model.model_config.n_kv_heads",
            help="must divide the attention heads",
        ),
        Slider(
            path="ffn_hidden_size",
            low=64,
            high=262_144,
            scale="log",
            label="FFN hidden size",
            key="model.model_config.intermediate_size",
        ),
        Number(
            path="vocab_size",
            low=1,
            high=10_000_000,
            step=1,
            label="Vocabulary",
            unit="tokens",
            key="model.model_config.vocab_size",
        ),
        Choice(
            path="attention",
            options=(("full", "full"), ("causal half", "causal")),
            buttons=True,
            label="Attention counted",
            help="MFU conventions differ: all scores, or only those below the diagonal",
        ),
        Toggle(path="count_head", label="Count the output head"),
        Slider(path="num_recomputed_layers", low=0, high=1024, label="Layers recomputed in full", key="recompute_config.recompute"),
        Number(path="tokens_per_s_per_device", low=0.0, high=10_000_000, label="Measured speed", unit="tokens/s per device"),
        Choice(
            path="device",
            options=lambda _state: list(catalog.hardware()),
            label="Device",
            help="its memory bandwidth draws the roof",
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
