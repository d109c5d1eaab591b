"""Operators: what the operators of a training step are called by profilers, and on which unit they run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Operator:
    """A kind of operator: its type and core on Ascend devices, its kernel on CUDA devices, and the operator of the host."""

    name: str
    type: str
    core: str
    kernel: str
    host: str


_ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::{}>"

OPERATORS: tuple[Operator, ...] = (
    Operator("Norm", "RmsNorm", "AI_VECTOR_CORE", "void rms_norm_kernel<c10::BFloat16>", "aten::rms_norm"),
    Operator("MatMul", "MatMulV2", "AI_CORE", "nvjet_tst_128x128_64x6_bf16_gemm", "aten::mm"),
    Operator("MatMulBig", "MatMulV3", "AI_CORE", "nvjet_tst_256x128_64x4_bf16_gemm", "aten::addmm"),
    Operator("GroupedMatMul", "GroupedMatmul", "AI_CORE", "grouped_gemm_bf16_kernel", "GroupedGemm"),
    Operator("Attn", "FlashAttentionScore", "MIX_AIC", "flash_fwd_kernel<128, 128, 64, bf16>", "FlashAttnFunc"),
    Operator(
        "AttnGrad", "FlashAttentionScoreGrad", "MIX_AIC", "flash_bwd_dq_dk_dv_loop_kernel<128, 64, bf16>", "FlashAttnFuncBackward"
    ),
    Operator("Rope", "RotaryPositionEmbedding", "AI_VECTOR_CORE", "fused_rope_kernel<c10::BFloat16>", "FusedRoPEFunc"),
    Operator("Act", "SwiGlu", "AI_VECTOR_CORE", _ELEMENTWISE.format("silu_mul_kernel"), "aten::silu"),
    Operator("Add", "Add", "AI_VECTOR_CORE", _ELEMENTWISE.format("CUDAFunctor_add<c10::BFloat16>"), "aten::add"),
    Operator("Cast", "Cast", "AI_VECTOR_CORE", "void at::native::unrolled_elementwise_kernel<direct_copy_kernel_cuda>", "aten::to"),
    Operator("AiCpu", "IndexPutV2", "AI_CPU", "void at::native::index_elementwise_kernel<128, 4, index_put>", "aten::index_put_"),
    Operator(
        "Embed", "GatherV2", "AI_VECTOR_CORE", "void at::native::indexSelectLargeIndex<c10::BFloat16, long>", "aten::embedding"
    ),
    Operator(
        "Loss",
        "SoftmaxCrossEntropyWithLogits",
        "AI_VECTOR_CORE",
        "void cunn_SoftMaxForward<4, float, float>",
        "aten::cross_entropy_loss",
    ),
    Operator("Accumulate", "Axpy", "AI_VECTOR_CORE", _ELEMENTWISE.format("CUDAFunctor_add<float>"), "aten::add_"),
    Operator(
        "Optim",
        "ApplyAdamWV2",
        "AI_VECTOR_CORE",
        "void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor>",
        "aten::_fused_adamw_",
    ),
    Operator("Copy", "MemcpyAsync", "SDMA", "Memcpy HtoD (Pinned -> Device)", "aten::copy_"),
)
CODE = {operator.name: code for code, operator in enumerate(OPERATORS)}

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_receive", "send", "receive")
SHOWN = dict(
    zip(COLLECTIVES, ("allReduce", "allGather", "reduceScatter", "alltoAll", "batchSendRecv", "send", "receive"), strict=True)
)
"""Names of operations as HCCL writes them."""


def find(text: str) -> tuple[int, ...]:
    """Codes of the operators that a name or type stands for, whatever its case; empty if there is none."""
    wanted = text.lower()
    return tuple(code for code, operator in enumerate(OPERATORS) if wanted in (operator.name.lower(), operator.type.lower()))
