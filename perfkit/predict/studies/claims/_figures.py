"""Figures of the claims about work, memory and messages: models of the guides with 4,096 tokens, and the formulas of perfkit."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from perfkit.config.dialects import read_config, read_text
from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.patterns import check_patterns
from perfkit.core.resources import data_folder
from perfkit.core.spec.model import ModelSpec
from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.recompute import RecomputePlan
from perfkit.core.spec.software import SoftwareSpec
from perfkit.core.spec.workload import Workload
from perfkit.predict.cost.flops import recompute_flops, training_flops
from perfkit.predict.cost.utilization import mfu
from perfkit.predict.memory.guide import Case, freed_bytes, guide_activations
from perfkit.predict.memory.memory import peak_memory

SEQ, PEAK = 4096, 376e12
LADDER = (1860, 2136, 2189, 2210, 2353, 2562)
"""Tokens a second and device of the 13B case, change by change."""
PATTERNS = (
    r"feed_forward\.mul", r"feed_forward\.w1\.activation", r"feed_forward\.w1\.reshape", r"feed_forward\.w1\.matmul",
    r"feed_forward\.w3\.matmul", r"feed_forward\.W3\.reshape", r"feed_forward\.w2\.matmul", r"feed_forward\.w2\.reshape",
    r"ffn_norm\.norm", r"ffn_norm\.rcast", r"attention_norm\.norm", r"attention_norm\.rcast", r"attention\.wq\.reshape",
    r"attention\.wk\.reshape", r"attention\.wv\.reshape", r"attention\.wo\.matmul", r"attention\.wo\.reshape",
    r"attention\.merger_head_transpose", "add", r"attention\.flash attention",
)  # fmt: skip
"""The second change of the 13B case as it is printed."""


SMALL = """model_config: {{num_layers: 4, hidden_size: 4096, num_attention_heads: 32, ffn_hidden_size: 11008, vocab_size: 32000,
  seq_length: 4096}}
parallel_config:
  pipeline_model_parallel_size: 2
  num_layer_list: [2, 2]
  recompute_config: {{recompute: [{full}, {full}], select_recompute: [{part}, {part}], select_comm_recompute: [0, 0]}}
"""


@cache
def model(name: str) -> ModelSpec:
    """A model of the guides by the catalogue's name."""
    return catalog.model(name)


def plan(name: str, tensor: int = 1) -> Plan:
    """One sequence of a model on tensor-parallel devices."""
    work = Workload(seq_length=SEQ, micro_batch_size=1, global_batch_size=1, dtype="float16")
    return Plan(model=model(name), workload=work, parallel=ParallelPlan(tensor_parallel_size=tensor, sequence_parallel=tensor > 1))


def training(name: str) -> float:
    """FLOP a token of a training step."""
    return float(training_flops(model(name), SEQ).total)


def pangu_38b(seq_length: int = SEQ) -> Plan:
    """The 38B case on its 128 devices, as 48 layers of 8,192: the guide prints neither layers and widths nor the length."""
    shape = ModelSpec(
        num_layers=48, hidden_size=8192, num_attention_heads=64, num_key_value_heads=8, head_size=128, ffn_hidden_size=24_576,
        vocab_size=100_352, gated_ffn=True, norm="rmsnorm", bias="none",
    )  # fmt: skip
    sizes = ParallelPlan(
        data_parallel_size=4, tensor_parallel_size=8, pipeline_parallel_size=4, virtual_pipeline_parallel_size=4,
        sequence_parallel=True, optimizer_shard_size=4,
    )  # fmt: skip
    return Plan(
        model=shape,
        workload=Workload(seq_length=seq_length, micro_batch_size=2, global_batch_size=256, dtype="bfloat16"),
        parallel=sizes,
        hardware=catalog.hardware_named("Ascend-910B2"),
        software=SoftwareSpec(framework="mindspore", overlap_dp=True, overlap_pp=True),
    )


def utilization(name: str, tokens_per_s: float) -> float:
    """MFU on a device of 376 TFLOP/s."""
    return mfu(training(name), tokens_per_s, PEAK)


def gpt(name: str) -> ModelSpec:
    """The model with the feed-forward that the closed form is for."""
    found = model(name)
    return replace(found, gated_ffn=False, ffn_hidden_size=4 * found.hidden_size)


def attention_forward(name: str) -> float:
    """FLOP a token of scores and values in one forward pass."""
    found = training_flops(model(name), SEQ)
    return (found.amount("layers/scores") + found.amount("layers/values")) / 3


def full_again(name: str) -> float:
    """FLOP a token that full recomputation repeats."""
    return float(recompute_flops(model(name), SEQ, RecomputePlan(all_layers=True)).total)


def activations(case: Case, tensor: int = 8) -> float:
    """Bytes of a layer of 7B's width by the guide's table."""
    return guide_activations(plan("llama2-7b", tensor), case)


def freed(*patterns: str) -> float:
    """Bytes that a layer of 13B no longer keeps."""
    return freed_bytes(plan("llama2-13b"), patterns)


def gain(step: int) -> float:
    """Gain of a change of the 13B case, a share."""
    return LADDER[step] / LADDER[step - 1] - 1


def matched() -> int:
    """Printed patterns that name an operator."""
    return sum(bool(one.matched) for one in check_patterns(list(PATTERNS)))


def last_peak_bytes() -> float:
    """Predicted peak memory of the 13B case with its last change."""
    return float(peak_memory(read_config(data_folder() / "case13b" / "round5.yaml")).peak.total)


def devices_of_13b() -> int:
    """Devices of the bundled training file of 13B."""
    return read_config(data_folder() / "configs" / "pretrain_llama2_13b.yaml").num_devices


def most_recomputed() -> int:
    """Layers of a stage with 2 of them that MindSpeed-Core-MS' lists may recompute in full or in part."""
    most = 0
    for count in range(4):
        try:
            read_text(SMALL.format(full=count // 2, part=count - count // 2), "lists.yaml")
        except InputError:
            return most
        most = count
    return most
