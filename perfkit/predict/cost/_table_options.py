"""Settings of a table of plans that few tables state: how context is split, pieces of a sequence, sharing, swapping, optimizer.

An empty cell or a missing column means the usual: a ring, whole sequences, state shared by all replicas, no swapping, AdamW.
"""

from __future__ import annotations

import numpy as np

from perfkit.core.plan_columns import Floats
from perfkit.core.spec.checks import nearest_divisors
from perfkit.predict.cost._table_cells import Cells, filled, said
from perfkit.predict.cost._table_sizes import Sizes
from perfkit.predict.cost.cost_columns import ADAM_BYTES, MANY, optimizer_bytes
from perfkit.predict.cost.table_words import ALGORITHMS, OPTIMIZERS, plain

WHOLE = ("ulysses_size", "sequence_chunks", "optimizer_shard_size", "copies")


def read_options(cells: Cells, sizes: Sizes) -> dict[str, Floats]:
    """Columns of `CostColumns` that these settings decide; a contradiction is a problem of its row."""
    stated = {name: cells.sizes(name, 1) for name in WHOLE}
    swapped = np.minimum(filled(cells.sizes("swapped_layers", 0), 0.0), np.ceil(sizes["layers"] / sizes["pp"]))
    capacity = cells.numbers("capacity_factor")
    cells.problem(capacity < 0, lambda i: f"capacity_factor = {capacity[i]:g} must not be negative (0: no token is dropped)")
    pieces, copies = filled(stated["sequence_chunks"], 1.0), filled(stated["copies"], 1.0)
    _check_pieces(cells, sizes, pieces)
    return {
        "head_exchange": _head_exchange(cells, sizes, stated["ulysses_size"]),
        "pieces": pieces,
        "interleave": copies,
        "optimizer_shards": _shards(cells, sizes, stated["optimizer_shard_size"]),
        "optimizer_ratio": _optimizer_ratio(cells),
        "expert_load": np.where(capacity > 0, capacity, 1.0),
        "swapped_layers": swapped,
    }


def _head_exchange(cells: Cells, sizes: Sizes, stated: Floats) -> Floats:
    codes, words = cells.words("cp_algorithm")
    chosen = [ALGORITHMS.get(plain(word)) for word in words]
    for code, (word, algorithm) in enumerate(zip(words, chosen, strict=True)):
        if algorithm is None:
            cells.problem(codes == code, said(f"cp_algorithm = {word!r} must be one of ring, ulysses, hybrid"))
    context, tensor, keys = sizes["cp"], sizes["tp"], sizes["kv_heads"]
    kinds = np.array([algorithm or "ring" for algorithm in chosen])[codes]
    size = filled(stated, 1.0)
    cells.problem(
        (kinds == "hybrid") & (context % size != 0),
        lambda i: f"ulysses_size = {size[i]:g} does not divide cp = {context[i]:g}; nearest is {_near(size[i], context[i])}",
    )
    heads = np.where(kinds == "ulysses", context, np.where(kinds == "hybrid", size, 1.0))
    cells.problem(
        (kinds != "ring") & (heads > 1) & (keys % (tensor * heads) != 0),
        lambda i: (
            f"kv_heads = {keys[i]:g} is not divisible by tp {tensor[i]:g} x {heads[i]:g} ranks that exchange heads; "
            f"nearest is {_near(heads[i], np.floor(keys[i] / tensor[i]))} ranks"
        ),
    )
    return np.where(kinds == "ulysses", MANY, np.where(kinds == "hybrid", size, 1.0))


def _check_pieces(cells: Cells, sizes: Sizes, pieces: Floats) -> None:
    length = np.floor(sizes["seq_len"] / sizes["cp"])
    cells.problem(
        (pieces > 1) & (length % pieces != 0),
        lambda i: (
            f"seq_len / cp = {length[i]:g} is not divisible by sequence_chunks = {pieces[i]:g}; nearest is "
            f"sequence_chunks = {_near(pieces[i], length[i])}"
        ),
    )


def _shards(cells: Cells, sizes: Sizes, stated: Floats) -> Floats:
    """Ranks that share the optimizer state: all replicas unless fewer are stated."""
    whole = sizes["dp"] * sizes["cp"]
    cells.problem(
        whole % filled(stated, 1.0) != 0,
        lambda i: (
            f"optimizer_shard_size = {stated[i]:g} does not divide dp x cp = {whole[i]:g}; nearest is {_near(stated[i], whole[i])}"
        ),
    )
    return np.where(sizes["zero_stage"] > 0, filled(stated, whole), 1.0)


def _optimizer_ratio(cells: Cells) -> Floats:
    codes, words = cells.words("optimizer")
    for code, word in enumerate(words):
        if plain(word) not in OPTIMIZERS:
            cells.problem(codes == code, said(f"optimizer = {word!r} must be one of {', '.join(filter(None, OPTIMIZERS))}"))
    specs = [OPTIMIZERS.get(plain(word), OPTIMIZERS[""]) for word in words]
    matrix = [spec.matrix_state_bytes_per_parameter for spec in specs]
    states = [spec.state_bytes_per_parameter if own < 0 else own for spec, own in zip(specs, matrix, strict=True)]
    bytes_each = [optimizer_bytes(state, spec.master_weights) for spec, state in zip(specs, states, strict=True)]
    return np.asarray(np.array(bytes_each)[codes] / ADAM_BYTES)


def _near(value: float, of: float) -> str:
    return nearest_divisors(max(1, min(int(value), int(of))), max(1, int(of))) if of < 1e6 else "a divisor"
