"""Operator names: from what NPU and GPU profilers call a kernel to one neutral operator and its class.

The lists are in the order in which they are tried; the first pattern found in the name counts. Ascend states an operator type
(MatMulV2, SwiGlu), which is tried before the kernel's name; GPU kernels are known by their libraries (cuBLAS, cuDNN, CK, Triton)
and by the functor of elementwise templates. Names seen in Ascend, CUDA and ROCm recordings of PyTorch, MindSpore and Triton.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

OTHER = "Other"


class Operator(NamedTuple):
    """A neutral operator: what it computes, whether in the backward pass, and its class."""

    name: str
    operator_class: str

    @property
    def known(self) -> bool:
        """Whether any pattern fitted."""
        return self.operator_class != OTHER


_OPERATORS: tuple[tuple[str, str, str], ...] = (
    ("FlashAttention", "FlashAttention", r"flash_?(attn|attention|fwd|bwd)|fmha|(attn|mha)_(fwd|bwd)|scaleddot|fused_?att"),
    ("GroupedMatMul", "MatMul", r"grouped?_?(mat_?mul|gemm)"),
    ("BatchMatMul", "BatchMatMul", r"batch_?mat_?mul|(^|[^a-z])b(addb)?mm([^a-z]|$)"),
    ("Conv", "Conv", r"conv(?!ert)|cudnn.*(fprop|dgrad|wgrad)|_scudnn_|implicit_?gemm|igemm_|winograd"),
    ("MatMul", "MatMul", r"mat_?mul|gemm|(^|[^a-z])(add)?mm([^a-z]|$)|(^|::)linear$|^cijk_|nvjet|cublas|gemv"),
    ("RmsNorm", "Norm", r"rms_?norm"),
    ("LayerNorm", "Norm", r"layer_?norm"),
    ("GroupNorm", "Norm", r"(group|instance)_?norm"),
    ("BatchNorm", "Norm", r"batch_?norm|bn_?(fw|bw|training)|miopenbatchnorm"),
    ("CrossEntropy", "Loss", r"cross_?entropy|nll_?loss|softmaxcrossentropy"),
    ("Softmax", "Softmax", r"soft_?max"),
    ("RotaryEmbedding", "RoPE", r"rotary|(^|[^a-z])rope"),
    ("SwiGLU", "SwiGLU", r"swi_?glu"),
    ("GELU", "Activation", r"gelu"),
    ("SiLU", "Activation", r"silu|swish"),
    ("ReLU", "Activation", r"relu|threshold|clamp_min"),
    ("Sigmoid", "Activation", r"sigmoid"),
    ("Tanh", "Activation", r"tanh"),
    ("Dropout", "Dropout", r"drop_?out|dropoutdomask|philox"),
    ("Optimizer", "Optimizer", r"adam|lamb|(^|[^a-z])sgd|multi_?tensor|momentum|foreach|apply_?gradient"),
    ("Embedding", "Embedding", r"embedding|gather|index_?select|indexselect"),
    ("Scatter", "Embedding", r"scatter|index_?put|index_?add|index_elementwise"),
    ("TransData", "Cast/Transpose", r"trans_?data|format_?cast|nchwto|nhwcto"),
    ("Transpose", "Cast/Transpose", r"transpose|permute"),
    ("Cast", "Cast/Transpose", r"(^|[^a-z])cast|aclnncast|_to_copy|convert"),
    ("Copy", "Copy", r"tensor_?move|memcpy|copy|contiguous|identity|broadcast_?to|expand"),
    ("Fill", "Copy", r"memset|fill|zeros|ones_?like|zeroslike"),
    ("Concat", "Copy", r"concat|(^|[^a-z])cat([^a-z]|$)|catarray|(^|[^a-z])pack"),
    ("Slice", "Copy", r"slice|split|narrow|(^|[^a-z])pad"),
    ("Pool", "Pool", r"pool"),
    ("TopK", "Sort", r"top_?k|sort|radix"),
    ("Rsqrt", "Elementwise", r"rsqrt"),
    ("Sqrt", "Elementwise", r"sqrt"),
    ("Reduce", "Reduce", r"reduce|(^|[^a-z])(sum|mean|norm|argmax|amax|max|min)([^a-z]|$)|scan|l2norm|lpnorm"),
    ("Mul", "Elementwise", r"mul"),
    ("Div", "Elementwise", r"div|reciprocal"),
    ("Sub", "Elementwise", r"(^|[^a-z])sub|subtensor"),
    ("Add", "Elementwise", r"(^|[^a-z])i?add|addfunctor|functor_add|inplaceadd|aclnnadd|accumulate|bias"),
    ("Pow", "Elementwise", r"(^|[^a-z])pow|square"),
    ("Exp", "Elementwise", r"(^|[^a-z])exp|(^|[^a-z])log([^a-z]|$)"),
    ("Neg", "Elementwise", r"(^|[^a-z])neg|abs"),
    ("Select", "Elementwise", r"where|masked|select|equal|less|greater|compare|non_?zero|not|isfinite|isnan"),
    ("Random", "Elementwise", r"random|distribution|uniform|normal"),
    ("Range", "Elementwise", r"arange|range|linspace|one_?hot"),
    ("FusedElementwise", "Elementwise", r"^triton_|elementwise|fused"),
)  # fmt: skip

_COMPILED = tuple((name, group, re.compile(pattern, re.IGNORECASE)) for name, group, pattern in _OPERATORS)
_BACKWARD = re.compile(r"grad|backward|_bwd|bwd_|dgrad|wgrad|backprop", re.IGNORECASE)
# Words of C++ templates that say how values are loaded, not what is computed.
_PLUMBING = re.compile(
    r"(Load|Store)With(out)?Cast|\w*OffsetCalculator|TensorIterator(Base)?|at::detail::Array|std::array|__nv_bfloat16|multi_?processor",
    re.IGNORECASE,
)
_SCOPE = re.compile(r"^.*/")
_FUNCTOR = re.compile(r"(\w*Functor\w*|\w+_kernel_(?:impl|cuda))")


@lru_cache(maxsize=100_000)
def operator_of(name: str, type_: str | None = None) -> Operator:
    """The neutral operator that a kernel of this name, and operator type where one is stated, computes."""
    for text in (type_, name):
        if not text:
            continue
        plain = _PLUMBING.sub(" ", text)
        own = _SCOPE.sub("", plain) if type_ is None and plain.startswith(("Default/", "Gradients/")) else plain
        functor = _FUNCTOR.search(own) if "elementwise_kernel" in own else None
        for candidate in (functor[0] if functor else "", own):
            for operator, group, pattern in _COMPILED:
                if candidate and pattern.search(candidate):
                    moves = group in ("Copy", "Cast/Transpose", "Optimizer")
                    backward = " backward" if not moves and (_BACKWARD.search(text) or _BACKWARD.search(name)) else ""
                    return Operator(operator + backward, group)
    return Operator(type_ or name, OTHER)


FUSIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("FlashAttention", ("BatchMatMul", "Softmax", "Dropout", "Select")),
    ("SwiGLU", ("SiLU", "Mul", "Slice")),
    ("RmsNorm", ("Pow", "Reduce", "Rsqrt", "Mul", "Cast")),
    ("LayerNorm", ("Sub", "Pow", "Reduce", "Rsqrt", "Mul", "Add")),
    ("RotaryEmbedding", ("Neg", "Slice", "Concat", "Mul", "Add")),
    ("CrossEntropy", ("Softmax", "Exp", "Embedding", "Reduce")),
    ("Optimizer", ("Mul", "Add", "Sqrt", "Div", "Pow", "Sub")),
    ("FusedElementwise", ("Mul", "Add", "Cast", "Copy", "Sub", "Div", "Pow", "Rsqrt", "Reduce")),
    ("GroupedMatMul", ("MatMul",)),
    ("BatchMatMul", ("MatMul",)),
)
"""A fused operator and the operators that do the same one by one; both passes alike."""
