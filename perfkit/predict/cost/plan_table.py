"""A table of plans as columns for the formulas, with everything that is wrong or was assumed, row by row.

The table's columns are those of `data/reference/step_time.csv`, in any order; an empty cell or a missing column means "not stated".
What can be filled in is (devices from the sizes of the groups, key-value heads from heads), and the row says so; a row that states
a contradiction, or too little, is named with all its problems and is not computed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.plan_columns import Coded, Flags, Floats
from perfkit.core.spec.hardware import HardwareSpec
from perfkit.predict.cost._table_cells import Cells, frozen, said
from perfkit.predict.cost._table_hardware import DTYPES, USUAL, read_hardware
from perfkit.predict.cost._table_options import read_options
from perfkit.predict.cost._table_sizes import REQUIRED, Sizes, read_sizes
from perfkit.predict.cost.cost_columns import CostColumns
from perfkit.predict.cost.labels import Label, network_of
from perfkit.predict.cost.table_names import with_usual_names
from perfkit.predict.cost.table_recompute import read_stages

KERNELS = ("flash", "fused-softmax", "unfused")
ACTIVATIONS = ("gelu", "swiglu", "squared-relu")
REFERENCE_RELEASE = 13  # r1.3 of MindFormers, in minor releases

_RELEASE = re.compile(r"mindformers r(\d)\.(\d+)")


@dataclass(frozen=True, slots=True)
class PlanTable:
    """Plans of the rows that can be computed (`rows`, positions in the table); by position what is wrong and what was assumed."""

    plans: CostColumns
    rows: Any
    problems: Mapping[int, tuple[str, ...]]
    assumed: Mapping[int, tuple[str, ...]]
    labels: Coded[Label]


def read_plans(frame: pd.DataFrame, devices: Mapping[str, HardwareSpec] | None = None) -> PlanTable:
    """Read the plans of a table; `devices` adds to the catalogue. Nothing raises for a bad row, see `PlanTable.problems`.

    Raises InputError if columns without which no row can be computed are missing from the table.
    """
    frame = with_usual_names(frame)
    missing = [column for column in (*REQUIRED, "accelerator") if column not in frame]
    if missing:
        raise InputError("table of plans", [f"column {column!r} is missing" for column in missing])
    cells = Cells(frame)
    sizes = read_sizes(cells)
    hardware = read_hardware(cells, {**catalog.hardware(), **(devices or {})}, sizes["devices_per_node"], sizes["n_devices"])
    options = read_options(cells, sizes)
    swapped = options.pop("swapped_layers")
    columns = {**hardware, **_model(cells, sizes), **_split(cells, sizes), **_work(cells, sizes), **options}
    columns["stages"] = read_stages(cells, sizes, _swapped(cells, columns, swapped))
    good = np.ones(len(frame), dtype=bool)
    good[list(cells.problems)] = False
    rows = np.flatnonzero(good)
    plans = CostColumns(**columns)
    return PlanTable(
        plans=plans if good.all() else plans.take(rows),
        rows=rows,
        problems=frozen(cells.problems),
        assumed=frozen(cells.assumed),
        labels=_labels(cells, sizes, rows),
    )


def _model(cells: Cells, sizes: Sizes) -> dict[str, Any]:
    codes, words = cells.chosen("activation", ACTIVATIONS, "swiglu")
    h, a, k, d = sizes["hidden"], sizes["heads"], sizes["kv_heads"], sizes["head_dim"]
    return {
        "layers": sizes["layers"],
        "hidden": h,
        "heads": a,
        "kv_heads": k,
        "head_size": d,
        "value_size": d,
        "qkv_weights": h * (a + 2 * k) * d,
        "output_weights": a * d * h,
        "ffn": sizes["ffn_hidden"],
        "ffn_matrices": np.array([3.0 if word == "swiglu" else 2.0 for word in words])[codes],
        "vocab": sizes["vocab"],
        "tied": sizes["tied_embeddings"] > 0,
        "experts": sizes["experts"],
        "experts_per_token": sizes["experts_per_token"],
        "expert_ffn": sizes["expert_ffn_hidden"],
        "shared_ffn": sizes["shared_experts"] * sizes["expert_ffn_hidden"],
        "dense_layers": np.minimum(sizes["dense_layers"], sizes["layers"]),
    }


def _split(cells: Cells, sizes: Sizes) -> dict[str, Any]:
    return {
        "data": sizes["dp"],
        "tensor": sizes["tp"],
        "pipeline": sizes["pp"],
        "virtual": sizes["vpp"],
        "context": sizes["cp"],
        "expert_parallel": sizes["ep"],
        "sequence_parallel": (sizes["sequence_parallel"] > 0) & (sizes["tp"] > 1),
        "zero": sizes["zero_stage"],
    }


def _work(cells: Cells, sizes: Sizes) -> dict[str, Any]:
    codes, kernels = cells.chosen("attention_kernel", KERNELS, "flash")
    wide = cells.flags("precision", lambda word: DTYPES.get(word.lower(), USUAL) == USUAL)
    ascend = cells.flags("accelerator", lambda name: name.startswith("Ascend"))
    pure = cells.flags("note", lambda note: "PURE" in note)
    return {
        "micro_batch": sizes["micro_batch"],
        "global_batch": sizes["global_batch"],
        "seq_length": sizes["seq_len"],
        "gradient_bytes": np.where(wide & ~ascend & ~pure, 4.0, 2.0),
        "flash": np.array([kernel == "flash" for kernel in kernels])[codes],
        "releases_before": _releases_before(cells),
    }


def _swapped(cells: Cells, columns: Mapping[str, Any], layers: Floats) -> Floats:
    """Layers of a stage that go to the host, and bytes a token of each: arXiv 2205.05198 with the scores that are stored."""
    if not layers.any():
        return np.zeros((2, len(layers)))
    cells.problem(
        (layers > 0) & ~(columns["host_bytes_per_s"] > 1), said("swapped_layers: the catalogue knows no link to the host")
    )
    t = columns["tensor"]
    shared = np.where(columns["sequence_parallel"], t, 1.0)
    width = (2 * columns["heads"] + 2 * columns["kv_heads"]) * columns["head_size"]
    width = width + columns["ffn"] * np.where(columns["ffn_matrices"] == 3, 4.0, 2.0)
    scores = np.where(columns["flash"], 0.0, 2.5 * columns["heads"] * columns["seq_length"])
    kept = 4 * columns["hidden"] / shared + (width + scores) / t
    return np.stack([layers, np.where(layers > 0, kept * columns["element_bytes"], 0.0)])


def _releases_before(cells: Cells) -> Floats:
    """Minor releases of MindFormers between the one that the row's source names and the reference; 0 where it names none."""
    codes, paths = cells.words("source_path")
    found = [_RELEASE.search(path) for path in paths]
    return np.array([REFERENCE_RELEASE - 10.0 * int(match[1]) - int(match[2]) if match else 0.0 for match in found])[codes]


def _labels(cells: Cells, sizes: Sizes, rows: Any) -> Coded[Label]:
    """Accelerator, stack and network of the rows."""
    devices, names = cells.words("accelerator")
    omni_path: Flags = cells.flags("note", lambda note: bool(network_of(note)))
    sharded = sizes["zero_stage"] >= 2
    split = (sizes["tp"] > 1) | (sizes["pp"] > 1)
    packed = devices * 8 + omni_path * 4 + sharded * 2 + split
    unique, codes = np.unique(packed[rows], return_inverse=True)
    labels = []
    for code in unique.tolist():
        name = names[code // 8]
        only_shared = bool(code // 2 % 2) and not code % 2
        stack = "mindspore" if name.startswith("Ascend") else "fsdp" if only_shared else "megatron"
        labels.append((name, stack, "Omni-Path" if code // 4 % 2 else ""))
    return Coded(codes, tuple(labels))
