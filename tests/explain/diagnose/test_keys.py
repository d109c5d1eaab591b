"""What an action tells to set is written as the framework writes it, and stands in its documentation or source."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from perfkit.explain.diagnose import rules

RULES = Path(rules.__file__).parent
MEGATRON = "github.com/NVIDIA/Megatron-LM/blob/main/megatron/training/arguments.py"
MINDFORMERS = "www.mindspore.cn/mindformers/docs/en/r1.7.0/feature/configuration.html"
MINDSPORE = "www.mindspore.cn/docs/en/master/api_python"
TORCH = "docs.pytorch.org/docs/stable"
TORCH_NPU = "gitcode.com/Ascend/pytorch/blob/master/docs/zh/api/environment_variable/_menu_environment_variable.md"
CANN = "www.hiascend.com/document/detail/zh/canncommercial/82RC1/maintenref/envvar"
NCCL = "docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"
PYTHON = "docs.python.org/3/library/gc.html"

DOCUMENTED = {
    "--initial-loss-scale": MEGATRON,
    "--num-distributed-optimizer-instances": MEGATRON,
    "--pipeline-model-parallel-layout": MEGATRON,
    "--save-interval": MEGATRON,
    "ASCEND_LAUNCH_BLOCKING": TORCH_NPU,
    "CPU_AFFINITY_CONF": TORCH_NPU,
    "CUDA_LAUNCH_BLOCKING": f"{TORCH}/cuda_environment_variables.html",
    "HCCL_BUFFSIZE": CANN,
    "HCCL_CONNECT_TIMEOUT": CANN,
    "HCCL_EXEC_TIMEOUT": CANN,
    "MS_ALLOC_CONF": f"{MINDSPORE}/env_var_list.html",
    "MS_MEMORY_STATISTIC": f"{MINDSPORE}/env_var_list.html",
    "NCCL_ALGO": NCCL,
    "NCCL_MIN_NCHANNELS": NCCL,
    "OMP_NUM_THREADS": "www.openmp.org/spec-html/5.0/openmpse50.html",
    "PYTORCH_CUDA_ALLOC_CONF": f"{TORCH}/notes/cuda.html",
    "PYTORCH_NO_CUDA_MEMORY_CACHING": f"{TORCH}/cuda_environment_variables.html",
    "PYTORCH_NO_NPU_MEMORY_CACHING": TORCH_NPU,
    "PYTORCH_NPU_ALLOC_CONF": TORCH_NPU,
    "aic_metrics": "gitcode.com/Ascend/pytorch: torch_npu.profiler._ExperimentalConfig",
    "all_reduce_fusion_config": f"{MINDSPORE}/mindspore/mindspore.set_auto_parallel_context.html",
    "bucket_cap_mb": f"{TORCH}/generated/torch.nn.parallel.DistributedDataParallel.html",
    "enable_vmm": f"{MINDSPORE}/env_var_list.html",
    "expandable_segments": f"{TORCH}/notes/cuda.html",
    "gc.collect": PYTHON,
    "gc.freeze": PYTHON,
    "init_process_group": f"{TORCH}/distributed.html",
    "jit_level": MINDFORMERS,
    "loss_scale_value": f"{MINDSPORE}/nn/mindspore.nn.DynamicLossScaleUpdateCell.html",
    "max_device_memory": MINDFORMERS,
    "memory_tracker": f"{MINDSPORE}/env_var_list.html",
    "micro_batch_interleave_num": MINDFORMERS,
    "no_sync": f"{TORCH}/generated/torch.nn.parallel.DistributedDataParallel.html",
    "non_blocking": f"{TORCH}/generated/torch.Tensor.to.html",
    "num_parallel_workers": f"{MINDSPORE}/dataset/mindspore.dataset.config.set_num_parallel_workers.html",
    "num_workers": f"{TORCH}/data.html",
    "optimizer_weight_shard_size": f"{MINDSPORE}/mindspore/mindspore.set_auto_parallel_context.html",
    "pin_memory": f"{TORCH}/data.html",
    "prefetch_size": f"{MINDSPORE}/dataset/mindspore.dataset.config.set_prefetch_size.html",
    "profile_start_step": MINDFORMERS,
    "save_checkpoint_steps": f"{MINDSPORE}/train/mindspore.train.CheckpointConfig.html",
    "tensor.to": f"{TORCH}/generated/torch.Tensor.to.html",
    "torch.backends.cudnn.allow_tf32": f"{TORCH}/notes/cuda.html",
    "torch.compile": f"{TORCH}/generated/torch.compile.html",
    "torch.set_float32_matmul_precision": f"{TORCH}/generated/torch.set_float32_matmul_precision.html",
    "torch_npu": "gitcode.com/Ascend/pytorch",
    "used_bprop_inputs": "www.mindspore.cn/mindformers/docs: performance optimization, memory",
}
"""By key or call where its framework documents it."""
KEY = re.compile(r"--[a-z][a-z0-9-]+|\b[A-Za-z]+(?:[._][A-Za-z0-9]+)+\b")


def told(source: str) -> set[str]:
    """The keys and calls in the actions of a rule: in its sentences, without places for numbers and what is said of limits."""
    tree = ast.parse(source)
    notes = {
        id(word.value) for call in ast.walk(tree) if isinstance(call, ast.Call) for word in call.keywords if word.arg == "origin"
    }
    notes |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value and id(node) not in notes
    ]
    return {key for text in texts for key in KEY.findall(re.sub(r"\{[^}]*\}", " ", text))}


@pytest.mark.parametrize("path", sorted(RULES.glob("*.py")), ids=lambda path: path.stem)
def test_every_key_that_an_action_tells_to_set_is_one_of_the_framework(path: Path):
    assert told(path.read_text(encoding="utf-8")) <= set(DOCUMENTED)


def test_the_table_holds_no_key_that_nothing_tells():
    every = set().union(*(told(path.read_text(encoding="utf-8")) for path in RULES.glob("*.py")))
    assert set(DOCUMENTED) <= every
