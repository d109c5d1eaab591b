"""Chains of kernels that one fused kernel could replace."""

import pytest

from perfkit.explain.diagnose import chains
from perfkit.explain.diagnose.rules.fusion_candidate import RULE
from tests.explain.diagnose.made import Training, judged, stays_healthy


def layers(*ops):
    """A training whose layers run these operators, in order, 200 us each."""
    return Training(extra=tuple((op, "AI_VECTOR_CORE", 200.0) for op in ops)).run()


@pytest.mark.parametrize(
    ("ops", "fused", "saved"),
    [
        (("Silu", "Mul"), "SwiGLU", 0.4 * 400),
        (("Silu", "MatMul", "Mul"), "SwiGLU", 0.4 * 400),
        (("Cast", "Square", "ReduceMean", "Add", "Rsqrt", "Mul", "Cast", "Mul"), "RmsNorm", 5 / 7 * 1200),
        (("Mul", "Neg", "ConcatD", "Mul", "Add"), "RotaryPositionEmbedding", 0.8 * 1000),
        (("BatchMatMul", "Mul", "MaskedFill", "SoftmaxV2", "DropOutDoMask", "BatchMatMul"), "FlashAttention", 800),
    ],
)
def test_a_chain_saves_the_memory_traffic_that_one_kernel_does_not_have(ops, fused, saved):
    (found,) = judged(RULE, layers(*ops)).findings
    assert found.evidence[f"{fused}_chains_a_rank_and_step"] == 4
    assert fused in found.actions[0]
    assert found.cost_ns == pytest.approx(4 * saved * 1000, rel=0.05)


def test_fused_kernels_and_other_orders_are_no_chains():
    for ops in (("SwiGlu", "Mul"), ("RmsNorm",), ("Mul", "Silu"), ("MatMul", "LogSoftmaxV2", "MatMul"), ("BroadcastTo", "Mul")):
        assert stays_healthy(RULE, layers(*ops))["chains_a_rank_and_step"] == 0


def test_kernels_of_c_plus_plus_are_read_by_the_functor_in_their_name():
    template = "void at::native::vectorized_elementwise_kernel<4, at::native::{}>"
    names = ("(anonymous namespace)::silu_kernel(at::TensorIteratorBase&)", "BinaryFunctor<float, float, float, MulFunctor<float>>")
    assert "".join(chains.letter_of(template.format(name)) for name in names) == "SM"
    assert chains.letter_of("void flash_fwd_kernel<128, 128, softmax>") == "."


def test_chains_of_pytorch_are_found_by_the_kernels_that_it_launches():
    # PyTorch launches the same kernel for a difference and a sum; recorded under autocast on an H100.
    add, mul = "at::native::CUDAFunctor_add<float>", "BinaryFunctor<float, float, float, binary_internal::MulFunctor<float> >"
    mean, root = (
        "ReduceOp<float, at::native::MeanOps<float, float, float, float> >",
        "at::native::sqrt_kernel_cuda(at::TensorIteratorBase&)",
    )
    div, tanh = (
        "BinaryFunctor<float, float, float, binary_internal::DivFunctor<float> >",
        "at::native::tanh_kernel_cuda(at::TensorIteratorBase&)",
    )
    shift = "at::native::CUDAFunctorOnSelf_add<float>"
    norm, gelu = (mean, add, mul, mean, shift, root, div, mul, add), (mul, mul, mul, mul, add, mul, tanh, shift, mul)
    found = judged(RULE, layers(*(f"void elementwise_kernel<{name}>" for name in (*norm, "nvjet_sm90_tst", *gelu)))).findings[0]
    assert found.evidence["LayerNorm_chains_a_rank_and_step"] == found.evidence["GELU_chains_a_rank_and_step"] == 4
