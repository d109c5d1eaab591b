"""Sizes of the plans of a table: filled in where they follow from others, and checked against each other.

Every contradiction is told with the nearest values that would fit; nothing here raises.
"""

from __future__ import annotations

import re

import numpy as np

from perfkit.core.plan_columns import Floats
from perfkit.core.spec.checks import nearest_divisors, nearest_multiples
from perfkit.predict.cost._table_cells import Cells, filled, said

REQUIRED = ("layers", "hidden", "heads", "ffn_hidden", "vocab", "seq_len")
GROUPS = ("dp", "tp", "pp", "vpp", "cp", "ep", "micro_batch", "global_batch", "n_devices")
MODEL = ("kv_heads", "head_dim", "experts_per_token", "expert_ffn_hidden")
COUNTS = ("experts", "shared_experts", "dense_layers", "sequence_parallel", "zero_stage", "tied_embeddings", "devices_per_node")

Sizes = dict[str, Floats]


def read_sizes(cells: Cells) -> Sizes:
    """All sizes by column, without empty cells; what was wrong is among the problems of its row."""
    sizes = {column: cells.sizes(column, 1) for column in (*REQUIRED, *GROUPS)}
    sizes |= {column: cells.sizes(column, 0) for column in (*MODEL, *COUNTS)}
    for column in REQUIRED:
        missing = np.isnan(sizes[column])
        missing[[row for row, notes in cells.problems.items() if any(note.startswith(f"{column} ") for note in notes)]] = False
        cells.problem(missing, said(f"{column} is not stated"))
    _fill_groups(cells, sizes)
    _fill_required(sizes)
    _fill_model(cells, sizes)
    _check_split(cells, sizes)
    _check_batch(cells, sizes)
    _check_experts(cells, sizes)
    return sizes


def _fill_required(sizes: Sizes) -> None:
    """Something that contradicts nothing in the place of what is missing: the row is a problem already, with the right reason."""
    fitting = {"heads": sizes["tp"], "layers": sizes["pp"] * sizes["vpp"], "seq_len": sizes["cp"]}
    for column in REQUIRED:
        sizes[column] = filled(sizes[column], fitting.get(column, np.ones(1)))


def _fill_model(cells: Cells, sizes: Sizes) -> None:
    sizes["kv_heads"] = filled(np.where(sizes["kv_heads"] > 0, sizes["kv_heads"], np.nan), sizes["heads"])
    sizes["head_dim"] = filled(np.where(sizes["head_dim"] > 0, sizes["head_dim"], np.nan), sizes["hidden"] / sizes["heads"])
    for column in ("experts", "shared_experts", "dense_layers", "sequence_parallel", "zero_stage", "tied_embeddings"):
        sizes[column] = filled(sizes[column], 0.0)
    mixed, width = sizes["experts"] > 0, sizes["ffn_hidden"]
    cells.problem(mixed & ~(sizes["experts_per_token"] > 0), said("experts_per_token is not stated, but experts is"))
    sizes["experts_per_token"] = filled(sizes["experts_per_token"], 0.0)
    narrow = ~(sizes["expert_ffn_hidden"] > 0)
    cells.assume(mixed & narrow, lambda i: f"expert_ffn_hidden = {width[i]:g}")
    sizes["expert_ffn_hidden"] = np.where(narrow, width, sizes["expert_ffn_hidden"])


def _fill_groups(cells: Cells, sizes: Sizes) -> None:
    """Groups that are not stated have one rank; data parallel has the devices that are left."""
    for column in ("tp", "pp", "vpp", "cp", "ep"):
        if column in ("tp", "pp"):
            cells.assume(np.isnan(sizes[column]), said(f"{column} = 1"))
        sizes[column] = filled(sizes[column], 1.0)
    rest = sizes["tp"] * sizes["pp"] * sizes["cp"]
    left = np.maximum(np.floor(sizes["n_devices"] / rest), 1.0)
    sizes["dp"] = filled(filled(sizes["dp"], left), 1.0)
    sizes["n_devices"] = filled(sizes["n_devices"], sizes["dp"] * rest)


def _check_split(cells: Cells, sizes: Sizes) -> None:
    n, d, t, p, v, c = (sizes[name] for name in ("n_devices", "dp", "tp", "pp", "vpp", "cp"))
    heads, layers, length = sizes["heads"], sizes["layers"], sizes["seq_len"]
    cells.problem(
        n != d * t * p * c,
        lambda i: (
            f"n_devices = {n[i]:g} is not dp {d[i]:g} x tp {t[i]:g} x pp {p[i]:g} x cp {c[i]:g} = {d[i] * t[i] * p[i] * c[i]:g}; "
            + _fitting(n[i], t[i] * p[i] * c[i])
        ),
    )
    cells.problem(
        _indivisible(heads, t),
        lambda i: f"heads = {heads[i]:g} is not divisible by tp = {t[i]:g}; nearest is tp = {_divisors(t[i], heads[i])}",
    )
    cells.problem(
        layers < p * v,
        lambda i: (
            f"layers = {layers[i]:g} are fewer than pp {p[i]:g} x vpp {v[i]:g} = {p[i] * v[i]:g} chunks; nearest is "
            f"pp x vpp = {layers[i]:g} or less"
        ),
    )
    cells.problem(
        _indivisible(length, c),
        lambda i: f"seq_len = {length[i]:g} is not divisible by cp = {c[i]:g}; nearest is cp = {_divisors(c[i], length[i])}",
    )


def _check_batch(cells: Cells, sizes: Sizes) -> None:
    """A batch that is not stated is one micro batch a replica, four a stage with a pipeline."""
    d, p = sizes["dp"], sizes["pp"]
    cells.assume(np.isnan(sizes["micro_batch"]), said("micro_batch = 1"))
    b = sizes["micro_batch"] = filled(sizes["micro_batch"], 1.0)
    usual = b * d * np.where(p > 1, 4 * p, 1.0)
    cells.assume(np.isnan(sizes["global_batch"]), lambda i: f"global_batch = {usual[i]:g}")
    batch = sizes["global_batch"] = filled(sizes["global_batch"], usual)
    rest = _indivisible(batch, d * b)
    uneven = _indivisible(batch, d) | (rest & (p > 1))
    cells.problem(
        uneven,
        lambda i: (
            f"global_batch = {batch[i]:g} is not divisible by micro_batch {b[i]:g} x dp {d[i]:g}; nearest is global_batch = "
            + nearest_multiples(int(batch[i]), int(b[i] * d[i]))
        ),
    )
    cells.assume(rest & ~uneven, lambda i: f"the last of {np.ceil(batch[i] / d[i] / b[i]):g} micro batches is smaller")


def _check_experts(cells: Cells, sizes: Sizes) -> None:
    """Experts spread over the data and context groups, and over the tensor group too where the note splits them less than that."""
    experts, e = sizes["experts"], sizes["ep"]
    split = _stated_expert_split(cells)
    spread = np.where(np.isnan(split), 1.0, np.maximum(sizes["tp"] / split, 1.0))
    ranks = sizes["dp"] * sizes["cp"] * np.floor(spread)
    names = np.where(spread > 1, "dp x cp x tp / expert tensor parallel", "dp x cp")
    mixed = experts > 0
    cells.problem(
        mixed & _indivisible(ranks, e),
        lambda i: f"ep = {e[i]:g} does not divide {names[i]} = {ranks[i]:g}; nearest is ep = {_divisors(e[i], ranks[i])}",
    )
    cells.problem(
        mixed & _indivisible(experts, e),
        lambda i: f"experts = {experts[i]:g} is not divisible by ep = {e[i]:g}; nearest is ep = {_divisors(e[i], experts[i])}",
    )
    sizes["ep"] = np.where(mixed, e, 1.0)


_EXPERT_SPLIT = re.compile(r"expert tensor parallel (\d{1,4})")


def _stated_expert_split(cells: Cells) -> Floats:
    """Tensor-parallel size of the experts where the row's note states one, nan elsewhere."""
    codes, notes = cells.words("note")
    found = [_EXPERT_SPLIT.search(note) for note in notes]
    return np.array([float(match[1]) if match and int(match[1]) else np.nan for match in found])[codes]


def _indivisible(whole: Floats, part: Floats) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    share = whole / part
    return np.asarray(share != np.floor(share))


def _divisors(value: float, whole: float) -> str:
    return nearest_divisors(min(int(value), int(whole)), int(whole)) if value < 1e6 else "a divisor"


def _fitting(devices: float, rest: float) -> str:
    if devices % rest == 0:
        return f"nearest is dp = {devices / rest:g}"
    near = f"; nearest is n_devices = {nearest_multiples(int(devices), int(rest))}" if max(devices, rest) < 1e9 else ""
    return f"tp x pp x cp = {rest:g} must divide {devices:g}{near}"
