"""Roofline: FLOPs and bytes of operators from their recorded shapes, against what the device can do.

Counted are matrix products (2 m n k each, batches multiplied), attention (4 x elements of the queries x length of the keys, 2.5
times that backward, no causal mask assumed), elementwise operators (one FLOP an element of the largest input). Bytes are those of
the inputs, and of an output that follows from them, once each: caches may move fewer, repeated reading more.

What is of another kind, or has no shapes, is null, never 0.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np
import pandas as pd

from perfkit.core.errors import InputError
from perfkit.core.looks import brief
from perfkit.core.run import Run
from perfkit.core.spec.hardware import HardwareSpec
from perfkit.core.texts import say
from perfkit.core.units import NS_PER_S

LEAST_DRAWN = 0.01
"""What reaches less of its roof is counted, not drawn under it: such operators wait rather than compute or move."""
MOST_DRAWN = 200
"""Of operators and their shapes, the longest first: further points would lie on one another."""
ELEMENT_BYTES = {
    **dict.fromkeys(("int8", "uint8", "bool", "char", "byte", "signed char", "unsigned char", "float8_e4m3fn", "float8_e5m2"), 1),
    **dict.fromkeys(("float16", "dt_bf16", "bfloat16", "bf16", "fp16", "half", "short", "int16", "c10::half", "c10::bfloat16"), 2),
    **dict.fromkeys(("float", "float32", "fp32", "int", "int32", "uint32"), 4),
    **dict.fromkeys(("double", "float64", "fp64", "long", "long int", "int64", "uint64", "c10::complex<float>"), 8),
}
"""Size of an element by the name that a profiler gives its type, in lower case."""
BACKWARD_ATTENTION = 2.5
_ATTENTION = re.compile(
    r"flash_?att|attention_?score|scaled_dot_product|(?:fused|cudnn)_?attention|_efficient_attention", re.IGNORECASE
)
_BACKWARD = re.compile(r"grad|backward|bwd", re.IGNORECASE)
_PRODUCT = re.compile(
    r"^(?:aten::)?(?:mat_?mul\w*|batch_?mat_?mul\w*|addmm|mm|bmm|baddbmm|linear|_scaled_mm|gemm\w*)$", re.IGNORECASE
)
_ELEMENTWISE = re.compile(
    r"^(?:aten::)?(?:add|sub|mul|div|muls|adds|silu|gelu|relu|swish|swi_?glu|sigmoid|tanh|exp|sqrt|rsqrt|pow|cast|copy|neg|real_?div|"
    r"select|where|fill|zero|to|dropout|square|maximum|minimum|clamp)(?:_|d|v2|_out|grad|_backward|aicore|aicpu)*$",
    re.IGNORECASE,
)
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Cost:
    """What one call of an operator has to do; null where its kind is not known."""

    kind: str
    flops: float
    num_bytes: float


def cost_of(operator: str, shapes: str | None, dtypes: str | None) -> Cost | None:
    """FLOPs and bytes of one call from texts such as "4096,1024;1024,1024" and "DT_BF16;DT_BF16"; None if they do not tell."""
    inputs = _shapes(shapes)
    sizes = _sizes(dtypes, len(inputs))
    tensors = [shape for shape in inputs if shape]
    if not tensors or not sizes[0]:
        return None
    read = sum(math.prod(shape) * size for shape, size in zip(inputs, sizes, strict=True) if shape)
    if _ATTENTION.search(operator):
        flops = _attention_flops(tensors, backward=_BACKWARD.search(operator) is not None)
        return None if flops is None else Cost("attention", flops, read + math.prod(tensors[0]) * sizes[0])
    if _PRODUCT.match(operator):
        product = _product(operator, tensors)
        return None if product is None else Cost("matmul", product[0], read + product[1] * sizes[0])
    if _ELEMENTWISE.match(operator):
        largest = max(math.prod(shape) for shape in tensors)
        return Cost("elementwise", float(largest), read + largest * sizes[0])
    return None


def operator_costs(run: Run, *, rank: int, step: int | None = None) -> pd.DataFrame:
    """One row an operator and its input shapes: what it computed, and how fast.

    `operator`, `kind` (matmul, attention, elementwise; null: not known), `input_shapes`, `input_dtypes`, `count`, `total_ns` (on
    the device), `flops`, `bytes` (of all calls), `flops_per_s`, `bytes_per_s`, `intensity_flops_per_byte`. The longest first.
    Kernels are grouped by their type, or by the operator of the host that launched them where that has the shapes; then a call
    is counted once, however many kernels it launched.
    """
    rows = _calls(run, rank, None if step is None else [step])
    key = ["operator", "input_shapes", "input_dtypes"]
    table = (
        rows.groupby(key, dropna=False, observed=True).agg(count=("call", "nunique"), total_ns=("duration_ns", "sum")).reset_index()
    )
    costs = [
        cost_of(str(row["operator"]), _text(row["input_shapes"]), _text(row["input_dtypes"])) for row in table.to_dict("records")
    ]
    time_s = table["total_ns"].to_numpy(dtype=np.float64) / NS_PER_S
    counts = table["count"].to_numpy(dtype=np.float64)
    flops = np.array([math.nan if cost is None else cost.flops for cost in costs]) * counts
    num_bytes = np.array([math.nan if cost is None else cost.num_bytes for cost in costs]) * counts
    positive = np.where(time_s > 0, time_s, np.nan)
    table = table.assign(
        kind=pd.Series([None if cost is None else cost.kind for cost in costs], dtype="object", index=table.index),
        flops=flops,
        bytes=num_bytes,
        flops_per_s=flops / positive,
        bytes_per_s=num_bytes / positive,
        intensity_flops_per_byte=flops / np.where(num_bytes > 0, num_bytes, np.nan),
    )
    return table.sort_values("total_ns", ascending=False, kind="stable", ignore_index=True)


def roofline(costs: pd.DataFrame, *, peak_flops_per_s: float, memory_bytes_per_s: float) -> pd.DataFrame:
    """Rows of `operator_costs` with the roof over each: `roof_flops_per_s`, `bound` (compute or memory) and `efficiency_ratio`."""
    by_memory = costs["intensity_flops_per_byte"] * memory_bytes_per_s
    roof = by_memory.clip(upper=peak_flops_per_s)
    bound = pd.Series(np.where(by_memory < peak_flops_per_s, "memory", "compute"), index=costs.index, dtype="object")
    return costs.assign(
        roof_flops_per_s=roof, bound=bound.where(roof.notna()), efficiency_ratio=costs["flops_per_s"] / roof.where(roof > 0)
    )


def roof_of(device: HardwareSpec) -> tuple[float, float]:
    """FLOP/s (bf16 where it has it) and bytes a second of memory that bound a device; InputError if its memory is not known."""
    if not device.memory_bytes_per_s:
        raise InputError(device.name, ["its memory rate is not known, so it has no roof; choose another device"])
    return device.peak_flops_per_s.get("bf16") or next(iter(device.peak_flops_per_s.values())), device.memory_bytes_per_s


def under_the_roof(costs: pd.DataFrame, device: HardwareSpec) -> pd.DataFrame:
    """Rows of `operator_costs` with known FLOPs beside the roof of a device, the longest first."""
    known = costs.dropna(subset=["flops_per_s", "intensity_flops_per_byte"])
    peak, memory = roof_of(device) if len(known) else (math.nan, math.nan)
    table = roofline(known, peak_flops_per_s=peak, memory_bytes_per_s=memory).dropna(subset=["efficiency_ratio"])
    first = ("operator", "total_ns", "flops_per_s", "roof_flops_per_s", "efficiency_ratio")
    rest = ("bound", "kind", "count", "intensity_flops_per_byte", "input_shapes")
    frame = table[[*first, *rest]].reset_index(drop=True)
    frame.attrs |= {"title": "Operators beside their roof, the longest first", "look": "folded"}
    return brief(frame, *first)


def roof_told(beneath: pd.DataFrame, device: str) -> list[str]:
    """What the longest row of `under_the_roof` reaches of the roof of a device; then how many lie above it, and far below."""
    if beneath.empty:
        return ["No shapes were recorded, so FLOPs and the roofline are not measured."]
    longest = beneath.iloc[0]
    form = "{operator} with the shapes that take longest ({total_ns}) reaches {share} of the roof of {device}."
    amounts = {"total_ns": int(longest["total_ns"]), "share": float(longest["efficiency_ratio"])}
    told: list[str] = [say(form, operator=str(longest["operator"]), device=device, **amounts)]
    if above := int((beneath["efficiency_ratio"] > 1).sum()):
        why = "what a cache holds moves faster than memory does, or the recording is of another device"
        told.append(
            say(
                "{num} of {all} operators, each with its shapes, lie above it: {why}.",
                num=str(above),
                all=str(len(beneath)),
                why=why,
            )
        )
    if len(beneath) > MOST_DRAWN:
        form = "Drawn are the {num} that take longest, of {all} operators, each with its shapes."
        told.append(say(form, num=str(MOST_DRAWN), all=str(len(beneath))))
    longest_ones = beneath.head(MOST_DRAWN)
    if below := int((longest_ones["efficiency_ratio"] < LEAST_DRAWN).sum()):
        form = "Not drawn, as below a hundredth of the roof: {num} of {all} operators, each with its shapes."
        told.append(say(form, num=str(below), all=str(len(longest_ones))))
    return told


def _calls(run: Run, rank: int, steps: list[int] | None) -> pd.DataFrame:
    """Kernels that compute, with operator, shapes and the number of the call that they belong to."""
    kernels = run.frame("kernels", ranks=[rank], steps=steps)
    kernels = kernels[kernels["kind"] == "computing"]
    if kernels["input_shapes"].notna().any() or "launches" not in run.tables:
        operator = kernels["type"].astype("object").fillna(kernels["name"].astype("object"))
        columns = {name: kernels[name].astype("object") for name in ("input_shapes", "input_dtypes")}
        return pd.DataFrame(
            {"operator": operator, **columns, "duration_ns": kernels["duration_ns"], "call": np.arange(len(kernels))}
        )
    rows = run.frame("launches", ranks=[rank], steps=steps)
    rows = rows[rows["kind"] == "computing"].reset_index(drop=True)
    named = rows["operator"].notna()
    # One operator launches several kernels; its launches follow one another on its thread without another operator between.
    key = rows.assign(operator=rows["operator"].astype("object"), thread=rows["thread"].astype("object"))
    key = key.sort_values(["thread", "launch_ns"], kind="stable")
    changed = (key[["thread", "operator"]] != key[["thread", "operator"]].shift()).any(axis=1) | ~named.reindex(key.index)
    return pd.DataFrame(
        {
            "operator": key["operator"].fillna(key["name"].astype("object")),
            "input_shapes": key["input_shapes"].astype("object"),
            "input_dtypes": key["input_dtypes"].astype("object"),
            "duration_ns": key["duration_ns"],
            "call": changed.cumsum(),
        }
    )


def _shapes(text: str | None) -> list[Shape]:
    if text is None:
        return []
    parts = [part.strip() for part in text.split(";")]
    plain = all(re.fullmatch(r"(?:\d{1,12}(?:,\d{1,12})*)?", part) for part in parts)
    return [tuple(int(size) for size in part.split(",")) if part else () for part in parts] if plain else []


def _sizes(text: str | None, count: int) -> list[int]:
    names = [] if text is None else [name.strip().lower() for name in text.split(";")]
    sizes = [ELEMENT_BYTES.get(name, 0) for name in names[:count]]
    return sizes + [0] * (max(count, 1) - len(sizes))


def _product(operator: str, tensors: list[Shape]) -> tuple[float, float] | None:
    """FLOPs and elements of the output of a product of two of the tensors; a bias comes first for addmm, last for linear."""
    wide = [shape for shape in tensors if len(shape) >= 2]
    if operator.lower().removeprefix("aten::") in ("addmm", "baddbmm") and len(wide) > 2:
        wide = wide[1:]
    if len(wide) < 2:
        return None
    a, b = wide[0], wide[1]
    shared = [size for size in a[-2:] if size in b[-2:]]
    if not shared:
        return None
    k = a[-1] if a[-1] in b[-2:] else a[-2]
    m = math.prod(a) // k
    batch = math.prod(b[:-2]) if len(b) > 2 else 1
    n = math.prod(b) // (k * batch)
    return 2.0 * m * n * k, float(m * n)


def _attention_flops(tensors: list[Shape], *, backward: bool) -> float | None:
    """4 x (elements of the queries) x (length of the keys); the layout follows from the shapes: BNSD, BSND or BSH."""
    if len(tensors) < 2 or len(tensors[0]) not in (3, 4) or len(tensors[1]) != len(tensors[0]):
        return None
    queries, keys = tensors[0], tensors[1]
    lengths = keys[1] if len(keys) == 3 or keys[1] > keys[2] else keys[2]
    return 4.0 * math.prod(queries) * lengths * (BACKWARD_ATTENTION if backward else 1.0)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
