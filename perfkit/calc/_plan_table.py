"""A table of plans as columns for the formulas, with everything that is wrong or was assumed, row by row.

The table's columns are those of `data/reference/step_time.csv`, in any order; an empty cell or a missing column means "not stated".
What can be filled in is (devices from the sizes of the groups, key-value heads from heads), and the row says so; a row that states
a contradiction, or too little, is named with all its problems and is not computed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from perfkit import catalog
from perfkit.calc._labels import Labels, network_of, stack_of
from perfkit.calc._plan_columns import Flags, Floats, PlanColumns
from perfkit.calc._units import compute_units, is_mesh
from perfkit.errors import InputError
from perfkit.spec.hardware import HardwareSpec

DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "fp8": "float8"}
DTYPES |= {name: name for name in DTYPES.values()}
ELEMENT_BYTES = {
    "bfloat16": 2.0,
    "float16": 2.0,
    "float32": 4.0,
    "float8": 2.0,
}  # activations stay in 16 bits beside 8-bit products

REQUIRED = ("layers", "hidden", "heads", "ffn_hidden", "vocab", "seq_len")
SIZES = {
    "dp": None,
    "tp": 1.0,
    "pp": 1.0,
    "vpp": 1.0,
    "cp": 1.0,
    "ep": 1.0,
    "micro_batch": None,
    "global_batch": None,
    "n_devices": None,
}
WORDS = {
    "recompute": ("none", "selective", "full"),
    "attention_kernel": ("flash", "fused-softmax", "unfused"),
    "activation": ("gelu", "swiglu", "squared-relu"),
}


@dataclass(frozen=True, slots=True)
class PlanTable:
    """Plans of the rows that can be computed (`rows`, positions in the table), and by position what is wrong and what was assumed."""

    plans: PlanColumns
    rows: Any
    problems: Mapping[int, tuple[str, ...]]
    assumed: Mapping[int, tuple[str, ...]]
    labels: Labels


@dataclass(slots=True)
class _Reader:
    """Cells by column as numbers or words, collecting notes by row."""

    frame: pd.DataFrame
    problems: dict[int, list[str]] = field(default_factory=dict)
    assumed: dict[int, list[str]] = field(default_factory=dict)
    factorized: dict[str, Any] = field(default_factory=dict)

    def numbers(self, column: str) -> Floats:
        """The column as numbers, nan where it is empty; a cell that is no finite number is a problem of its row."""
        size = len(self.frame)
        if column not in self.frame:
            return np.full(size, np.nan)
        cells = self.frame[column]
        if cells.dtype.kind in "iuf":
            values = cells.to_numpy(dtype=np.float64, na_value=np.nan)
        else:
            values = pd.to_numeric(cells.replace(r"^\s*$", np.nan, regex=True), errors="coerce").to_numpy(dtype=np.float64)
            stated = cells.notna().to_numpy() & (cells.astype(str).str.strip() != "").to_numpy()
            self.add(stated & np.isnan(values), lambda row: f"{column} = {cells.iloc[row]!r} is not a number")
        self.add(np.isinf(values), lambda row: f"{column} = {values[row]} must be finite")
        return np.where(np.isfinite(values), values, np.nan)

    def words(self, column: str, default: str) -> tuple[Any, list[str]]:
        """Codes and words of a text column; empty cells read as `default`."""
        if column not in self.frame:
            return np.zeros(len(self.frame), dtype=np.intp), [default]
        if column not in self.factorized:
            self.factorized[column] = pd.factorize(self.frame[column])
        codes, uniques = self.factorized[column]
        words = [str(word).strip() or default for word in uniques]
        return np.where(codes < 0, len(words), codes), [*words, default]

    def add(self, mask: Flags, message: Callable[[int], str], *, assumed: bool = False) -> None:
        """Note `message(row)` for every row of the mask."""
        notes = self.assumed if assumed else self.problems
        for row in np.flatnonzero(mask):
            notes.setdefault(int(row), []).append(message(int(row)))


def read_plans(frame: pd.DataFrame, devices: Mapping[str, HardwareSpec] | None = None) -> PlanTable:
    """Read the plans of a table; `devices` adds to the catalogue. Nothing raises for a bad row, see `PlanTable.problems`.

    Raises InputError if columns without which no row can be computed are missing from the table.
    """
    missing = [column for column in (*REQUIRED, "accelerator") if column not in frame]
    if missing:
        raise InputError("table of plans", [f"column {column!r} is missing" for column in missing])
    reader = _Reader(frame)
    values = _sizes(reader)
    _check_sizes(reader, values)
    hardware = _hardware(reader, values, {**catalog.hardware(), **(devices or {})})
    columns = _columns(reader, values, hardware)
    good = np.ones(len(frame), dtype=bool)
    good[list(reader.problems)] = False
    rows = np.flatnonzero(good)
    return PlanTable(
        plans=PlanColumns(**columns).take(rows),
        rows=rows,
        problems={row: tuple(notes) for row, notes in reader.problems.items()},
        assumed={row: tuple(notes) for row, notes in reader.assumed.items()},
        labels=_labels(reader, values, rows),
    )


def _sizes(reader: _Reader) -> dict[str, Floats]:
    values = {column: reader.numbers(column) for column in (*REQUIRED, *SIZES)}
    for column in ("kv_heads", "head_dim", "experts", "experts_per_token", "shared_experts", "expert_ffn_hidden", "dense_layers"):
        values[column] = reader.numbers(column)
    for column in ("sequence_parallel", "zero_stage", "tied_embeddings", "devices_per_node"):
        values[column] = reader.numbers(column)
    for column, value in values.items():
        low = 0 if column not in (*REQUIRED, *SIZES) else 1
        wrong = np.isfinite(value) & ((value < low) | (value != np.floor(value)))
        reader.add(wrong, lambda row, c=column, v=value, b=low: f"{c} = {v[row]:g} must be a whole number of at least {b}")
    for column in REQUIRED:
        reader.add(np.isnan(values[column]), lambda row, c=column: f"{c} is not stated")
    return values


def _fill(values: dict[str, Floats], column: str, default: Any) -> Floats:
    values[column] = np.where(np.isnan(values[column]), default, values[column])
    return values[column]


def _check_sizes(reader: _Reader, values: dict[str, Floats]) -> None:
    """Fill in what is not stated and note contradictions."""
    for column in ("tp", "pp", "vpp", "cp", "ep"):
        reader.add(np.isnan(values[column]) & (column in ("tp", "pp")), lambda row, c=column: f"{c} = 1", assumed=True)
        _fill(values, column, 1.0)
    t, p, v, c, e = (values[name] for name in ("tp", "pp", "vpp", "cp", "ep"))
    rest = t * p * c
    n = values["n_devices"]
    _fill(values, "dp", np.where(np.isfinite(n), np.maximum(np.floor(n / rest), 1.0), 1.0))
    d = values["dp"]
    _fill(values, "n_devices", d * rest)
    n = values["n_devices"]
    reader.add(
        n != d * rest,
        lambda i: (
            f"n_devices = {n[i]:g} is not dp {d[i]:g} x tp {t[i]:g} x pp {p[i]:g} x cp {c[i]:g} = {d[i] * rest[i]:g}; "
            f"{_nearest(n[i] / rest[i], n[i], 'dp')}"
        ),
    )
    a, layers = values["heads"], values["layers"]
    reader.add(
        np.nan_to_num(a % t) != 0,
        lambda i: f"heads = {a[i]:g} is not divisible by tp = {t[i]:g}; nearest valid tp: {_divisors_near(a[i], t[i])}",
    )
    reader.add(
        layers < p * v,
        lambda i: (
            f"layers = {layers[i]:g} are fewer than pp {p[i]:g} x vpp {v[i]:g} = {p[i] * v[i]:g} chunks; "
            f"largest pp: {max(1, layers[i] // v[i]):g} with vpp = {v[i]:g}"
        ),
    )
    b, batch = values["micro_batch"], values["global_batch"]
    reader.add(np.isnan(b), lambda row: "micro_batch = 1", assumed=True)
    _fill(values, "micro_batch", 1.0)
    b = values["micro_batch"]
    reader.add(np.isnan(batch), lambda i: f"global_batch = {b[i] * d[i] * max(1, 4 * (p[i] - 1)):g}", assumed=True)
    _fill(values, "global_batch", b * d * np.maximum(1.0, 4 * (p - 1)))
    batch = values["global_batch"]
    uneven = (batch % d != 0) | ((batch % (d * b) != 0) & (p > 1))
    reader.add(
        uneven,
        lambda i: (
            f"global_batch = {batch[i]:g} is not divisible by micro_batch {b[i]:g} x dp {d[i]:g}; "
            f"nearest valid: {_multiples_near(b[i] * d[i], batch[i])}"
        ),
    )
    reader.add(
        ~uneven & (batch % (d * b) != 0),
        lambda i: f"the last of {np.ceil(batch[i] / d[i] / b[i]):g} micro batches is smaller",
        assumed=True,
    )
    experts = np.nan_to_num(values["experts"])
    reader.add(
        (experts > 0) & ((d * c) % e != 0),
        lambda i: f"ep = {e[i]:g} does not divide dp {d[i]:g} x cp {c[i]:g}; nearest valid ep: {_divisors_near(d[i] * c[i], e[i])}",
    )
    reader.add(
        (experts > 0) & (experts % e != 0),
        lambda i: (
            f"experts = {experts[i]:g} is not divisible by ep = {e[i]:g}; nearest valid ep: {_divisors_near(experts[i], e[i])}"
        ),
    )
    s = values["seq_len"]
    reader.add(
        np.nan_to_num(s % c) != 0,
        lambda i: f"seq_len = {s[i]:g} is not divisible by cp = {c[i]:g}; nearest valid cp: {_divisors_near(s[i], c[i])}",
    )
    _fill(values, "kv_heads", a)
    _fill(values, "head_dim", values["hidden"] / a)
    for column in ("experts", "shared_experts", "dense_layers", "sequence_parallel", "zero_stage"):
        _fill(values, column, 0.0)
    _fill(values, "experts_per_token", 0.0)
    _fill(values, "expert_ffn_hidden", values["ffn_hidden"])
    _fill(values, "tied_embeddings", 0.0)


def _nearest(value: float, n: float, name: str) -> str:
    return f"{name} = {value:g} would fit" if value >= 1 and value == int(value) else f"tp x pp x cp must divide {n:g}"


def _divisors_near(whole: float, value: float) -> str:
    whole, found = int(whole), []
    for candidate in range(1, min(whole, 1 << 16) + 1):
        if whole % candidate == 0:
            found.append(candidate)
    below = [x for x in found if x < value][-1:]
    above = [x for x in found if x > value][:1]
    return " or ".join(str(x) for x in below + above)


def _multiples_near(unit: float, value: float) -> str:
    low = int(value // unit * unit)
    return " or ".join(str(x) for x in (low, low + int(unit)) if x > 0)


def _hardware(reader: _Reader, values: dict[str, Floats], devices: Mapping[str, HardwareSpec]) -> dict[str, Floats]:
    """Rates of every row's device, from the catalogue and, for the network, from what the row's note states."""
    codes, names = reader.words("accelerator", "")
    kinds, precisions = reader.words("precision", "")
    plain = {re.sub(r"[\s_-]+", "-", name.lower()): spec for name, spec in devices.items()}
    table = np.full((len(names), 8), np.nan)
    for code, name in enumerate(names):
        if not (codes == code).any():
            continue
        spec = plain.get(re.sub(r"[\s_-]+", "-", name.lower()))
        if spec is None:
            text = "accelerator is not stated" if not name else f"accelerator = {name!r} is not in the catalogue"
            near = "" if not name else _suggest(name, devices)
            reader.add(codes == code, lambda row, x=text + near: x)
            continue
        inter = spec.links["inter_node"].bytes_per_s if "inter_node" in spec.links else np.nan
        intra = spec.links["intra_node"].bytes_per_s if "intra_node" in spec.links else np.nan
        units = compute_units(spec.name)
        table[code, :6] = spec.memory_bytes_per_s, intra, inter, spec.devices_per_node, units, float(is_mesh(spec))
        for kind, precision in enumerate(precisions):
            rows = (codes == code) & (kinds == kind)
            dtype = DTYPES.get(precision.lower() or "bf16", "")
            if not rows.any() or dtype in spec.peak_flops_per_s:
                continue
            if precision == "":
                continue
            known = ", ".join(spec.peak_flops_per_s)
            reader.add(rows, lambda row, x=precision, k=known, a=name: f"precision = {x!r}: {a} has peaks for {k} only")
    peaks = np.full((len(names), len(precisions)), np.nan)
    for code, name in enumerate(names):
        spec = plain.get(re.sub(r"[\s_-]+", "-", name.lower()))
        if spec is not None:
            for kind, precision in enumerate(precisions):
                dtype = DTYPES.get(precision.lower(), "") or next(iter(spec.peak_flops_per_s))
                peaks[code, kind] = spec.peak_flops_per_s.get(dtype, np.nan)
    gathered = table[codes]
    node = np.where(np.isnan(values["devices_per_node"]), gathered[:, 3], values["devices_per_node"])
    node = np.where(np.isnan(node), 8.0, np.maximum(node, 1.0))
    stated = _stated_network(reader)
    element = np.array([ELEMENT_BYTES.get(DTYPES.get(word.lower(), "bfloat16"), 2.0) for word in precisions])[kinds]
    single = gathered[:, 1]
    return {
        "peak_flops_per_s": peaks[codes, kinds],
        "memory_bytes_per_s": gathered[:, 0],
        "intra_bytes_per_s": single,
        "node_bytes_per_s": np.where(np.isnan(stated), gathered[:, 2] * node, stated),
        "devices_per_node": node,
        "compute_units": gathered[:, 4],
        "mesh": gathered[:, 5] > 0,
        "element_bytes": element,
        "eight_bit": np.array([DTYPES.get(word.lower()) == "float8" for word in precisions])[kinds],
    }


def _suggest(name: str, devices: Mapping[str, HardwareSpec]) -> str:
    import difflib

    near = difflib.get_close_matches(name, devices, n=3, cutoff=0.4)
    return f"; nearest: {', '.join(near)}" if near else f"; known are {', '.join(devices)}"


_LINKS = re.compile(r"(?:(\d+)\s*x\s*)?(\d+)\s*Gb/s per node")


def _stated_network(reader: _Reader) -> Floats:
    """Bytes/s of a node's network where the row's note states it, such as "4x200 Gb/s per node"; nan elsewhere."""
    codes, notes = reader.words("note", "")
    rates = np.full(len(notes), np.nan)
    for code, note in enumerate(notes):
        if match := _LINKS.search(note):
            rates[code] = int(match[1] or 1) * int(match[2]) * 1e9 / 8
    return rates[codes]


_RELEASE = re.compile(r"mindformers r(\d+)\.(\d+)")
REFERENCE_RELEASE = 13  # r1.3, in minor releases


def _releases_before(reader: _Reader) -> Floats:
    """Minor releases of MindFormers between the one that the row's source names and the reference; 0 where it names none."""
    codes, paths = reader.words("source_path", "")
    found = [_RELEASE.search(path) for path in paths]
    return np.array([REFERENCE_RELEASE - 10.0 * int(match[1]) - int(match[2]) if match else 0.0 for match in found])[codes]


def _recompute(reader: _Reader, values: dict[str, Floats]) -> tuple[Floats, Floats, Floats]:
    """Shares of full layers, of attention cores and of other products that are repeated."""
    codes, words = reader.words("recompute", "none")
    details, texts = reader.words("recompute_detail", "")
    vendor, names = reader.words("accelerator", "")
    for code, word in enumerate(words):
        if word not in WORDS["recompute"]:
            reader.add(codes == code, lambda row, w=word: f"recompute = {w!r} must be one of {', '.join(WORDS['recompute'])}")
    full = np.array([word == "full" for word in words])[codes].astype(float)
    for code, text in enumerate(texts):
        counts = [int(x) for x in re.findall(r"(\d+) layers of stage", text)]
        if match := re.search(r"(?<![a-z_])recompute=\[([\d, ]+)\]", text):
            counts = [int(x) for x in match[1].split(",")]
        if counts:
            rows = (details == code) & (full > 0)
            stage = np.maximum(values["layers"] / values["pp"], 1)
            full = np.where(rows, np.minimum(1.0, max(counts) / stage), full)
    selective = np.array([word == "selective" for word in words])[codes]
    matrix = np.array([not name.startswith("Ascend") for name in names])[vendor]
    core = np.where(selective & matrix, 1.0, 0.0)
    return full, core, np.zeros(len(full))


def _columns(reader: _Reader, values: dict[str, Floats], hardware: dict[str, Floats]) -> dict[str, Any]:
    full, core, extra = _recompute(reader, values)
    kernels, names = reader.words("attention_kernel", "flash")
    activations, acts = reader.words("activation", "swiglu")
    for column, codes, words in (("attention_kernel", kernels, names), ("activation", activations, acts)):
        for code, word in enumerate(words):
            if word not in WORDS[column]:
                reader.add(codes == code, lambda row, w=word, c=column: f"{c} = {w!r} must be one of {', '.join(WORDS[c])}")
    h, a, k, d = values["hidden"], values["heads"], values["kv_heads"], values["head_dim"]
    first, middle, last = stage_layers(values["layers"], values["pp"])
    size = len(h)
    notes, texts = reader.words("note", "")
    bf16 = np.array([DTYPES.get(str(w).lower(), "bfloat16") == "bfloat16" for w in reader.words("precision", "")[1]])[
        reader.words("precision", "")[0]
    ]
    ascend = np.array([n.startswith("Ascend") for n in reader.words("accelerator", "")[1]])[reader.words("accelerator", "")[0]]
    pure = np.array(["PURE" in text for text in texts])[notes]
    return {
        **hardware,
        "layers": values["layers"],
        "layers_first": first,
        "layers_middle": middle,
        "layers_last": last,
        "hidden": h,
        "heads": a,
        "kv_heads": k,
        "head_size": d,
        "value_size": d,
        "qkv_weights": h * (a + 2 * k) * d,
        "output_weights": a * d * h,
        "ffn": values["ffn_hidden"],
        "ffn_matrices": np.array([3.0 if word == "swiglu" else 2.0 for word in acts])[activations],
        "vocab": values["vocab"],
        "tied": values["tied_embeddings"] > 0,
        "experts": values["experts"],
        "experts_per_token": values["experts_per_token"],
        "expert_ffn": values["expert_ffn_hidden"],
        "shared_ffn": values["shared_experts"] * values["expert_ffn_hidden"],
        "dense_layers": values["dense_layers"],
        "data": values["dp"],
        "tensor": values["tp"],
        "pipeline": values["pp"],
        "virtual": values["vpp"],
        "context": values["cp"],
        "expert_parallel": np.where(values["experts"] > 0, values["ep"], 1.0),
        "sequence_parallel": (values["sequence_parallel"] > 0) & (values["tp"] > 1),
        "zero": values["zero_stage"],
        "optimizer_shards": np.where(values["zero_stage"] > 0, values["dp"] * values["cp"], 1.0),
        "interleave": np.ones(size),
        "releases_before": _releases_before(reader),
        "recompute_full": full,
        "recompute_core": core,
        "recompute_extra": extra,
        "micro_batch": values["micro_batch"],
        "global_batch": values["global_batch"],
        "seq_length": values["seq_len"],
        "gradient_bytes": np.where(bf16 & ~ascend & ~pure, 4.0, 2.0),
        "flash": np.array([word == "flash" for word in names])[kernels],
    }


def _labels(reader: _Reader, values: dict[str, Floats], rows: Any) -> Labels:
    """Accelerator, stack and network of the rows."""
    devices, names = reader.words("accelerator", "")
    notes, texts = reader.words("note", "")
    networks = np.array([1 if network_of(text) else 0 for text in texts])[notes]
    sharded = (values["zero_stage"] >= 2).astype(int)
    split = ((values["tp"] > 1) | (values["pp"] > 1)).astype(int)
    packed = ((devices * 2 + networks) * 2 + sharded) * 2 + split
    unique, codes = np.unique(packed[rows], return_inverse=True)
    labels = []
    for code in unique:
        name = names[code // 8]
        stack = stack_of(name, sharded_parameters=bool(code // 2 % 2), split=bool(code % 2))
        labels.append((name, stack, "Omni-Path" if code // 4 % 2 else ""))
    return Labels(tuple(labels), codes)


def stage_layers(layers: Floats, stages: Floats) -> tuple[Floats, Floats, Floats]:
    """Layers of the first, the fullest other and the last stage.

    An even split where it exists; else one that counts the embedding and the head as a layer each, where that is even (Megatron's
    way); else the stages in the middle take one more than those at the ends.
    """
    even = layers % stages == 0
    slots = (layers + 2) % stages == 0
    share, slot = layers / stages, (layers + 2) / stages
    middle = np.where(even, share, np.where(slots & (stages > 2), slot, np.ceil(share)))
    ends = np.where(even, share, np.where(slots & (stages > 2), slot - 1, np.floor(share)))
    return ends, middle, ends
