"""What an action tells to set is written as the framework writes it, and stands in its documentation or source."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from perfkit.config.dialects.read import read_text
from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder
from perfkit.explain.diagnose import rules
from perfkit.explain.diagnose.advice import NAMES

RULES = Path(rules.__file__).parent
ADVISING = [*sorted(RULES.glob("*.py")), RULES.parent / "advice.py", RULES.parent / "own_words.py"]
MEGATRON = "github.com/NVIDIA/Megatron-LM/blob/main/megatron/training/arguments.py"
MINDFORMERS = "www.mindspore.cn/mindformers/docs/en/r1.7.0/feature/configuration.html"
MINDSPORE = "www.mindspore.cn/docs/en/master/api_python"
TORCH = "docs.pytorch.org/docs/stable"
MSRUN = "www.mindspore.cn/tutorials/en/master/parallel/msrun_launcher.html"
NPU_API = "gitcode.com/Ascend/pytorch/blob/master/docs/zh/api/torch_npu_apis.md"
TORCH_NPU = "gitcode.com/Ascend/pytorch/blob/master/docs/zh/api/environment_variable/_menu_environment_variable.md"
CANN = "www.hiascend.com/document/detail/zh/canncommercial/82RC1/maintenref/envvar"
NCCL = "docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"
PYTHON = "docs.python.org/3/library/gc.html"

DOCUMENTED = {
    "--async-save": MEGATRON,
    "--bf16": MEGATRON,
    "--bind": MSRUN,
    "--ckpt-format": MEGATRON,
    "--cpunodebind": "man7.org/linux/man-pages/man8/numactl.8.html",
    "--ddp-bucket-size": MEGATRON,
    "--distributed-timeout-minutes": MEGATRON,
    "--empty-unused-memory-level": MEGATRON,
    "--global-batch-size": MEGATRON,
    "--initial-loss-scale": MEGATRON,
    "--log": MSRUN,
    "--log-dir": f"{TORCH}/elastic/run.html",
    "--log-interval": MEGATRON,
    "--manual-gc": MEGATRON,
    "--manual-gc-interval": MEGATRON,
    "--membind": "man7.org/linux/man-pages/man8/numactl.8.html",
    "--micro-batch-size": MEGATRON,
    "--moe-aux-loss-coeff": MEGATRON,
    "--moe-expert-capacity-factor": MEGATRON,
    "--moe-pad-expert-input-to-capacity": MEGATRON,
    "--moe-router-enable-expert-bias": MEGATRON,
    "--no-check-for-nan-in-loss-and-grad": MEGATRON,
    "--num-distributed-optimizer-instances": MEGATRON,
    "--num-layers-per-virtual-pipeline-stage": MEGATRON,
    "--num-workers": MEGATRON,
    "--rerun-mode": MEGATRON,
    "--optimizer-cpu-offload": MEGATRON,
    "--overlap-grad-reduce": MEGATRON,
    "--overlap-param-gather": MEGATRON,
    "--pipeline-model-parallel-layout": MEGATRON,
    "--recompute-granularity": MEGATRON,
    "--recompute-method": MEGATRON,
    "--recompute-num-layers": MEGATRON,
    "--save-interval": MEGATRON,
    "--sequence-parallel": MEGATRON,
    "--transformer-impl": MEGATRON,
    "--use-distributed-optimizer": MEGATRON,
    "--use-flash-attn": MEGATRON,
    "ASCEND_LAUNCH_BLOCKING": TORCH_NPU,
    "CPU_AFFINITY_CONF": TORCH_NPU,
    "CUDA_LAUNCH_BLOCKING": f"{TORCH}/cuda_environment_variables.html",
    "HCCL_BUFFSIZE": CANN,
    "HCCL_CONNECT_TIMEOUT": CANN,
    "HCCL_EXEC_TIMEOUT": CANN,
    "HCCL_OP_EXPANSION_MODE": CANN,
    "MS_ALLOC_CONF": f"{MINDSPORE}/env_var_list.html",
    "MS_DEV_LAUNCH_BLOCKING": f"{MINDSPORE}/env_var_list.html",
    "MS_MEMORY_STATISTIC": f"{MINDSPORE}/env_var_list.html",
    "NCCL_ALGO": NCCL,
    "NCCL_DEBUG": NCCL,
    "NCCL_MIN_NCHANNELS": NCCL,
    "OMP_NUM_THREADS": "www.openmp.org/spec-html/5.0/openmpse50.html",
    "PYTORCH_CUDA_ALLOC_CONF": f"{TORCH}/notes/cuda.html",
    "PYTORCH_NO_CUDA_MEMORY_CACHING": f"{TORCH}/cuda_environment_variables.html",
    "PYTORCH_NO_NPU_MEMORY_CACHING": TORCH_NPU,
    "PYTORCH_NPU_ALLOC_CONF": TORCH_NPU,
    "TASK_QUEUE_ENABLE": TORCH_NPU,
    "aic_metrics": "gitcode.com/Ascend/pytorch: torch_npu.profiler._ExperimentalConfig",
    "async_save": MINDFORMERS,
    "aux_loss_factor": MINDFORMERS,
    "balance_via_topk_bias": MINDFORMERS,
    "batch_size": MINDFORMERS,
    "bucket_cap_mb": f"{TORCH}/generated/torch.nn.parallel.DistributedDataParallel.html",
    "capacity_factor": MINDFORMERS,
    "comm_fusion": f"{MINDSPORE}/mindspore/mindspore.set_auto_parallel_context.html",
    "compute_dtype": MINDFORMERS,
    "context_fn": f"{TORCH}/checkpoint.html",
    "create_selective_checkpoint_contexts": f"{TORCH}/checkpoint.html",
    "ctx.save_for_backward": f"{TORCH}/generated/torch.autograd.function.FunctionCtx.save_for_backward.html",
    "drop_last": f"{TORCH}/data.html",
    "drop_remainder": f"{MINDSPORE}/dataset/dataset_method/batch/mindspore.dataset.Dataset.batch.html",
    "enable_parallel_optimizer": MINDFORMERS,
    "enable_vmm": f"{MINDSPORE}/env_var_list.html",
    "expandable_segments": f"{TORCH}/notes/cuda.html",
    "fully_shard": f"{TORCH}/distributed.fsdp.fully_shard.html",
    "gc.collect": PYTHON,
    "gc.disable": PYTHON,
    "gc.freeze": PYTHON,
    "hccn_tool": "support.huawei.com: HCCN Tool interface reference",
    "gradient_as_bucket_view": f"{TORCH}/generated/torch.nn.parallel.DistributedDataParallel.html",
    "init_process_group": f"{TORCH}/distributed.html",
    "init_scale": f"{TORCH}/amp.html",
    "jit_compile": NPU_API,
    "jit_level": MINDFORMERS,
    "layernorm_compute_type": MINDFORMERS,
    "loss_scale_value": f"{MINDSPORE}/nn/mindspore.nn.DynamicLossScaleUpdateCell.html",
    "max_device_memory": MINDFORMERS,
    "memory_tracker": f"{MINDSPORE}/env_var_list.html",
    "micro_batch_interleave_num": MINDFORMERS,
    "micro_batch_num": MINDFORMERS,
    "mindspore.runtime.empty_cache": f"{MINDSPORE}/runtime/mindspore.runtime.empty_cache.html",
    "mindspore.runtime.launch_blocking": f"{MINDSPORE}/runtime/mindspore.runtime.launch_blocking.html",
    "mindspore.runtime.set_cpu_affinity": f"{MINDSPORE}/runtime/mindspore.runtime.set_cpu_affinity.html",
    "mint.empty": f"{MINDSPORE}/mint/mindspore.mint.empty.html",
    "mint.zeros": f"{MINDSPORE}/mint/mindspore.mint.zeros.html",
    "model_parallel": MINDFORMERS,
    "moe_config": MINDFORMERS,
    "n_microbatches": f"{TORCH}/distributed.pipelining.html",
    "no_sync": f"{TORCH}/generated/torch.nn.parallel.DistributedDataParallel.html",
    "non_blocking": f"{TORCH}/generated/torch.Tensor.to.html",
    "num_parallel_workers": f"{MINDSPORE}/dataset/mindspore.dataset.config.set_num_parallel_workers.html",
    "num_workers": f"{TORCH}/data.html",
    "numa_enable": MINDFORMERS,
    "offload_policy": f"{TORCH}/distributed.fsdp.fully_shard.html",
    "optimizer.zero_grad": f"{TORCH}/generated/torch.optim.Optimizer.zero_grad.html",
    "optimizer_weight_shard_size": f"{MINDSPORE}/mindspore/mindspore.set_auto_parallel_context.html",
    "param_init_type": MINDFORMERS,
    "persistent_workers": f"{TORCH}/data.html",
    "pin_memory": f"{TORCH}/data.html",
    "pipeline_interleave": MINDFORMERS,
    "pp_interleave_num": MINDFORMERS,
    "prefetch_factor": f"{TORCH}/data.html",
    "prefetch_size": f"{MINDSPORE}/dataset/mindspore.dataset.config.set_prefetch_size.html",
    "profile_communication": MINDFORMERS,
    "profile_memory": f"{TORCH}/profiler.html",
    "profile_start_step": MINDFORMERS,
    "profiler_level": f"{MINDSPORE}/mindspore/mindspore.profiler.profile.html",
    "pynative_synchronize": MINDFORMERS,
    "ProfilerLevel.Level1": NPU_API,
    "record_shapes": f"{TORCH}/profiler.html",
    "recompute_config.recompute": MINDFORMERS,
    "recompute_config.select_recompute": MINDFORMERS,
    "save_checkpoint_steps": f"{MINDSPORE}/train/mindspore.train.CheckpointConfig.html",
    "scaled_dot_product_attention": f"{TORCH}/generated/torch.nn.functional.scaled_dot_product_attention.html",
    "set_auto_parallel_context": f"{MINDSPORE}/mindspore/mindspore.set_auto_parallel_context.html",
    "sink_mode": MINDFORMERS,
    "sink_size": MINDFORMERS,
    "set_to_none": f"{TORCH}/generated/torch.optim.Optimizer.zero_grad.html",
    "tensor.pin_memory": f"{TORCH}/generated/torch.Tensor.pin_memory.html",
    "tensor.to": f"{TORCH}/generated/torch.Tensor.to.html",
    "topk_bias_update_rate": MINDFORMERS,
    "torch.autocast": f"{TORCH}/amp.html",
    "torch.backends.cudnn.allow_tf32": f"{TORCH}/notes/cuda.html",
    "torch.bfloat16": f"{TORCH}/tensor_attributes.html",
    "torch.compile": f"{TORCH}/generated/torch.compile.html",
    "torch.cuda.empty_cache": f"{TORCH}/generated/torch.cuda.memory.empty_cache.html",
    "torch.cuda.memory": f"{TORCH}/torch_cuda_memory.html",
    "torch.distributed.checkpoint.async_save": f"{TORCH}/distributed.checkpoint.html",
    "torch.empty": f"{TORCH}/generated/torch.empty.html",
    "torch.npu.config.allow_internal_format": NPU_API,
    "torch.npu.empty_cache": NPU_API,
    "torch.npu.matmul.allow_hf32": NPU_API,
    "torch.npu.set_compile_mode": NPU_API,
    "torch.optim.AdamW": f"{TORCH}/generated/torch.optim.AdamW.html",
    "torch.profiler": f"{TORCH}/profiler.html",
    "torch.set_float32_matmul_precision": f"{TORCH}/generated/torch.set_float32_matmul_precision.html",
    "torch.utils.checkpoint": f"{TORCH}/checkpoint.html",
    "torch_dist": MEGATRON,
    "torch_npu": "gitcode.com/Ascend/pytorch",
    "torch_npu.npu.memory": NPU_API,
    "torch_npu.profiler": NPU_API,
    "torch_npu.optim.NpuFusedAdamW": NPU_API,
    "train_dataset": MINDFORMERS,
    "transformer_engine": MEGATRON,
    "use_flash_attention": MINDFORMERS,
    "use_seq_parallel": MINDFORMERS,
    "used_bprop_inputs": "www.mindspore.cn/mindformers/docs: performance optimization, memory",
    "validate_results": MEGATRON,
}
"""By key or call where its framework documents it."""
ANYWHERE = (PYTHON, "man7.org")
OF_SPEAKER = {
    "mindspore": (MINDSPORE, MINDFORMERS, MSRUN, CANN, "www.mindspore.cn/mindformers"),
    "megatron": (MEGATRON,),
    "torch_npu": (TORCH, TORCH_NPU, NPU_API, CANN, "gitcode.com/Ascend/pytorch"),
    "torch": (TORCH,),
    "ascend": (CANN, "support.huawei.com"),
    "nvidia": (NCCL,),
    "amd": (NCCL,),  # RCCL reads the variables of NCCL.
}
"""By program or device whose documents say what it may be told to set; torch_npu runs below torch and understands its words."""
KEY = re.compile(r"--[a-z][a-z0-9-]+|\b[A-Za-z]+(?:[._][A-Za-z0-9]+)+\b")


def told(source: str) -> set[str]:
    """The keys and calls in the actions of a rule: in its sentences, without places for numbers and what is said of limits."""
    tree = ast.parse(source)
    calls = [call for call in ast.walk(tree) if isinstance(call, ast.Call) and ast.unparse(call.func) == "Threshold"]
    notes = {id(part) for call in calls for part in (*call.args, *(word.value for word in call.keywords))}
    notes |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value and id(node) not in notes
    ]
    return {key for text in texts for key in KEY.findall(re.sub(r"\{[^}]*\}", " ", text))}


@pytest.mark.parametrize("path", ADVISING, ids=lambda path: path.stem)
def test_every_key_that_an_action_tells_to_set_is_one_of_the_framework(path: Path):
    assert told(path.read_text(encoding="utf-8")) <= set(DOCUMENTED)


def test_the_table_holds_no_key_that_nothing_tells():
    every = set().union(*(told(path.read_text(encoding="utf-8")) for path in ADVISING))
    assert set(DOCUMENTED) <= every


def _by_speaker(path: Path) -> Iterator[tuple[str, str]]:
    """The programs and devices that an action has words for, with each key in those words."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if (
            isinstance(node, ast.Dict)
            and node.keys
            and all(isinstance(key, ast.Constant) and key.value in NAMES for key in node.keys)
        ):
            for speaker, words in zip(node.keys, node.values, strict=True):
                yield from ((ast.literal_eval(speaker), key) for key in told(f"[{ast.unparse(words)}]"))


@pytest.mark.parametrize("path", ADVISING, ids=lambda path: path.stem)
def test_every_program_is_told_keys_of_its_own(path: Path):
    wrong = {(who, key) for who, key in _by_speaker(path) if not DOCUMENTED[key].startswith((*OF_SPEAKER[who], *ANYWHERE))}
    assert wrong == set()


SCRIPT = """torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 8 --hidden-size 1024 --num-attention-heads 8 --seq-length 2048
--max-position-embeddings 2048 --micro-batch-size 1 --global-batch-size 16 --vocab-size 32000 --num-experts 8 --moe-router-topk 2
--pipeline-model-parallel-size 2 --recompute-granularity full --recompute-method block --recompute-num-layers 1"""
VALUES = {"--global-batch-size": "32", "--pipeline-model-parallel-layout": "'Et*4|t*4L'", "--recompute-method": "uniform"}


@pytest.mark.parametrize("option", [key for key, origin in DOCUMENTED.items() if origin == MEGATRON and key.startswith("--")])
def test_every_option_of_megatron_is_one_that_its_dialect_knows(option: str):
    refused = []
    for value in (VALUES.get(option, "1"), "", "full"):
        try:
            plan = read_text(f"{' '.join(SCRIPT.split())} {option} {value}".strip() + "\n", "pretrain.sh")
        except InputError as error:
            refused.append(str(error))
        else:
            assert plan.document is not None
            assert plan.document.unknown == ()
            return
    pytest.fail("\n".join(refused))


def _names(value: Any, parent: str = "") -> set[str]:
    """The keys of a configuration, alone and behind the section that they stand in."""
    if isinstance(value, list):
        return set().union(*(_names(part, parent) for part in value))
    if not isinstance(value, dict):
        return set()
    own = {name for key in value for name in (str(key), f"{parent}.{key}")}
    return own.union(*(_names(part, str(key)) for key, part in value.items()))


def test_every_key_of_mindformers_stands_in_a_configuration_of_its_own_or_in_the_table_of_its_keys():
    folders = (data_folder() / "configs", data_folder() / "case13b", Path(__file__).parents[2] / "data/configs/mindformers")
    files = [path for folder in folders for path in folder.rglob("*.yaml")]
    known = set().union(*(_names(yaml.safe_load(path.read_text(encoding="utf-8"))) for path in files))
    known |= _names(_meanings()["mindformers"])
    assert {key for key, origin in DOCUMENTED.items() if origin == MINDFORMERS} - known == set()


def test_every_variable_of_the_environment_stands_in_the_table_of_variables():
    assert {key for key in DOCUMENTED if key.isupper()} - set(_meanings()["environment"]) == set()


def _meanings() -> dict[str, Any]:
    return tomllib.loads((data_folder() / "config_keys.toml").read_text(encoding="utf-8"))
