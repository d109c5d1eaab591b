"""Time of operators on one device: matrix products by shape, attention by length, element-wise work by bytes.

A roofline with shape: a product runs at `ceiling` of the peak, less what padding to tiles, a part-filled last wave of tiles and a
short inner dimension lose; no operator is faster than its bytes over the memory bandwidth. NVIDIA's matrix multiplication guide
describes the three losses; cube units of other vendors tile alike.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfkit.core.numbers import Number, any_of, maximum, minimum, where

TILES = ((256.0, 128.0, 1.0), (128.0, 128.0, 0.92), (128.0, 64.0, 0.75))
"""Rows, columns and relative speed of the output tiles that a library chooses from; a smaller one reads its inputs more often."""

ALIGNMENT = 64.0
"""Elements of a row that one memory transaction moves (128 bytes of 16 bits)."""

TENSOR_ALIGNMENT = 8.0
"""Elements that a row must be a multiple of for the matrix units to be fed directly (16 bytes of 16 bits)."""


ATTAINABLE = 0.97
"""Share of a data-sheet rate that no operator exceeds: the highest of 20 searches over shapes (`matmul_ceilings.csv`, Gaudi 2)."""


@dataclass(frozen=True, slots=True)
class Device:
    """What one device sustains, a row a plan: FLOP/s of products at the ceiling, bytes/s, units, and the shape losses.

    `most_flops_per_s` is what no product exceeds however its shape suits the units.
    """

    flops_per_s: Number
    most_flops_per_s: Number
    bytes_per_s: Number
    units: Number
    half_depth: Number
    misaligned: Number


def sustained(share: Number, factor: Number = 1.0) -> Number:
    """A share of a data-sheet rate under a factor on time, which makes no device do more than is attainable."""
    return minimum(share / factor, maximum(share, ATTAINABLE))


def product_s(rows: Number, columns: Number, depth: Number, device: Device, count: Number = 1.0) -> Number:
    """Seconds of `count` independent products (rows x depth) (depth x columns) in 16 bits."""
    return _aligned_s(rows, columns, depth, device, count) * misalignment(depth, columns, device)


def weight_product_s(
    rows: Number, columns: Number, depth: Number, device: Device, count: Number, *, trained: Number = 1.0
) -> tuple[Number, Number]:
    """Seconds of a product with a weight (depth x columns): forward, and backward for the inputs' and the weights' gradients.

    `trained` (1 or 0) says whether the weight has one: a frozen weight has none.

    The rows of `count` groups lie one behind the other and differ from step to step: none of them is on or off a grain.
    """
    # In one pass: a call of an array function costs more than the arithmetic of a few plans.
    down = np.array((rows, rows, depth))
    across, inner = np.array((columns, depth, columns)), np.array((depth, columns, rows))
    forward, inputs, weights = _aligned_s(down, across, inner, device, count)
    weight = misalignment(depth, columns, device)
    across_rows = misalignment(where(count > 1, 0.0, rows), columns, device)
    return forward * weight, inputs * weight + trained * (weights * across_rows)


def group_start_s(columns: Number, depth: Number, device: Device, count: Number, group_rows: Number) -> Number:
    """Seconds to start and drain the units for each of `count` grouped products, 0 for a single one: those of `group_rows` rows.

    However many rows a group has, so that more of them never take less time.
    """
    rows = where(count > 1, group_rows * count, 0.0)
    return rows * columns * (depth + device.half_depth) * (2.0 / device.flops_per_s)


def _aligned_s(rows: Number, columns: Number, depth: Number, device: Device, count: Number) -> Number:
    """Seconds of products whose rows are aligned: the best tile's, or those of the bytes moved.

    ceil(tiles/units) waves, each tile at the unit's share of the ceiling. `half_depth` is the inner dimension at which filling the
    pipeline costs as much as the work.
    """
    area: Number = np.inf
    for tile_rows, tile_columns, speed in TILES:
        tiles = np.ceil(rows * (1.0 / tile_rows)) * np.ceil(columns * (1.0 / tile_columns)) * count
        area = minimum(area, np.ceil(tiles / device.units) * (tile_rows * tile_columns / speed))
    work = area * (depth + device.half_depth) * (device.units * 2.0 / device.flops_per_s)
    moved = (rows * depth + depth * columns + rows * columns) * (2.0 * count / device.bytes_per_s)
    return maximum(maximum(work, moved), rows * columns * depth * (2.0 * count / device.most_flops_per_s))


def misalignment(depth: Number, columns: Number, device: Device) -> Number:
    """Factor of a product whose rows start off the memory transaction (`misaligned`), squared off the matrix unit's grain."""
    narrow = off_grain(depth, ALIGNMENT) | off_grain(columns, ALIGNMENT)
    if not any_of(narrow):
        return 1.0
    broken = off_grain(depth, TENSOR_ALIGNMENT) | off_grain(columns, TENSOR_ALIGNMENT)
    return where(broken, device.misaligned * device.misaligned, where(narrow, device.misaligned, 1.0))


def off_grain(size: Number, grain: float) -> Number:
    """Whether sizes are no multiples of `grain`; far faster than the remainder."""
    steps = size * (1.0 / grain)
    return steps != np.floor(steps)
