"""MindFormers' `offset` and recompute lists as counts, one tuple a virtual chunk and one entry a pipeline stage.

Layers are dealt out as num_layers // (stages x chunks) + offset, chunk by chunk. A recompute value is True (all layers), False,
a list of counts or flags a stage, or a list of such lists a chunk; a one-dimensional list with chunks is handed out one by one
while a chunk has room. Counts are of the first layers of a chunk and are cut to its layers
(`mindformers/models/utils.py`, LayerSetting).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perfkit.config.dialects._section import Section, shown
from perfkit.core.spec.recompute import Counts, RecomputePlan

DEFAULT_SELECT = (r"feed_forward\.mul", r"feed_forward\.w1\.activation\.silu")
SELECT, COMMUNICATION = "select_recompute", "select_comm_recompute"


def layers_per_stage(config: Section, num_layers: int, num_stages: int, num_chunks: int) -> Counts:
    """The layers of every chunk and stage from `offset`; problems are noted and an even split is returned."""
    value = config.raw("offset")
    average, rest = divmod(num_layers, num_stages * num_chunks)
    even = tuple((average,) * num_stages for _ in range(num_chunks))
    rows = _offset_rows(value, num_stages, num_chunks)
    if isinstance(rows, str):
        config.reading.problem(config.path("offset"), f"{shown(value)} {rows}")
        return even
    total = sum(sum(row) for row in rows)
    if total != rest:
        config.reading.problem(
            config.path("offset"),
            f"{shown(value)} adds up to {total}; {num_layers} layers on {num_stages} stages x {num_chunks} chunks leave {rest}",
        )
        return even
    counts = tuple(tuple(average + extra for extra in row) for row in rows)
    if any(count < 0 for row in counts for count in row):
        config.reading.problem(config.path("offset"), f"{shown(value)} leaves a stage with fewer than 0 layers")
        return even
    return counts


def recompute_plan(config: Section, layers: Counts) -> RecomputePlan | None:
    """The recompute section as a plan; `layers` is what every chunk and stage holds."""
    everything = config.raw("recompute")
    full = () if isinstance(everything, bool) else _counts(config, "recompute", everything, layers)
    operators = _patterns(config, SELECT, layers, DEFAULT_SELECT)
    communication = _patterns(config, COMMUNICATION, layers, ("communication",))
    if len(communication) > 1:
        config.reading.note(f"{config.path(COMMUNICATION)}: patterns are not told apart; the largest count of each stage is taken")
    for key in ("select_recompute_exclude", "select_comm_recompute_exclude"):
        if config.raw(key):
            config.reading.note(f"{config.path(key)}: exclusions are not taken into account")
    return config.reading.build(
        lambda: RecomputePlan(
            all_layers=everything is True, full_layers=full, operators=operators, communication=_largest(communication)
        )
    )


def _offset_rows(value: Any, num_stages: int, num_chunks: int) -> tuple[tuple[int, ...], ...] | str:
    """The offset of every chunk and stage, or what is wrong with it."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value == 0):
        return ((0,) * num_stages,) * num_chunks
    if not isinstance(value, list) or not value:
        return "must be 0, a list of one number a stage, or such a list for every chunk"
    rows = value if isinstance(value[0], list) else [value]
    if any(not isinstance(row, list) or any(isinstance(item, bool) or not isinstance(item, int) for item in row) for row in rows):
        return "must hold whole numbers only"
    if any(len(row) != num_stages for row in rows):
        return f"must have {num_stages} numbers, one a pipeline stage"
    if not isinstance(value[0], list) and num_chunks > 1:
        if any(value):
            return f"is one list for {num_chunks} chunks: MindFormers adds it to every chunk; give {num_chunks} lists"
        return ((0,) * num_stages,) * num_chunks
    if len(rows) != num_chunks:
        return f"must have {num_chunks} lists, one a virtual chunk (pp_interleave_num)"
    return tuple(tuple(row) for row in rows)


def _patterns(config: Section, key: str, layers: Counts, defaults: Sequence[str]) -> dict[str, Counts]:
    value = config.raw(key)
    if isinstance(value, Mapping):
        named = {str(pattern): _counts(config, f"{key}.{pattern}", counts, layers) for pattern, counts in value.items()}
    elif isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        named = dict.fromkeys(value, layers)
    else:
        named = dict.fromkeys(defaults, _counts(config, key, value, layers))
    return {pattern: counts for pattern, counts in named.items() if any(map(any, counts))}


def _counts(config: Section, key: str, value: Any, layers: Counts) -> Counts:
    """Counts of a recompute value, cut to the layers there are; an empty tuple after a problem or for none."""
    if value is None or value is False:
        return ()
    if value is True:
        return layers
    wrong = _form_problem(value, len(layers[0]), len(layers))
    if wrong:
        config.reading.problem(config.path(key), f"{shown(value)} {wrong}")
        return ()
    if isinstance(value[0], list):
        return tuple(
            tuple(_cut(item, room) for item, room in zip(row, rooms, strict=True)) for row, rooms in zip(value, layers, strict=True)
        )
    columns = [_hand_out(item, [row[stage] for row in layers]) for stage, item in enumerate(value)]
    return tuple(zip(*columns, strict=True))


def _form_problem(value: Any, num_stages: int, num_chunks: int) -> str:
    if not isinstance(value, list) or not value:
        return "must be True, False, or a list of one count a pipeline stage"
    rows = value if isinstance(value[0], list) else [value]
    if any(not isinstance(row, list) for row in rows) or any(not isinstance(item, int) for row in rows for item in row):
        return "must hold whole numbers or True and False only"
    if any(len(row) != num_stages for row in rows):
        return f"must have {num_stages} counts, one a pipeline stage"
    if any(item < 0 for row in rows for item in row):
        return "must not hold a negative count"
    if isinstance(value[0], list) and len(rows) != num_chunks:
        return f"must have {num_chunks} lists, one a virtual chunk (pp_interleave_num)"
    return ""


def _cut(item: int | bool, room: int) -> int:
    return (room if item else 0) if isinstance(item, bool) else min(item, room)


def _hand_out(item: int | bool, rooms: Sequence[int]) -> list[int]:
    """Layers of one stage given to its chunks one by one, in the order of the chunks, while a chunk has room."""
    left, given = _cut(item, sum(rooms)), [0] * len(rooms)
    while left:
        free = [chunk for chunk, room in enumerate(rooms) if given[chunk] < room]
        share = min(left // len(free), *(rooms[chunk] - given[chunk] for chunk in free))
        for chunk in free if share else free[:left]:
            given[chunk] += max(share, 1)
            left -= max(share, 1)
    return given


def _largest(named: Mapping[str, Counts]) -> Counts:
    rows = list(named.values())
    if not rows:
        return ()
    return tuple(
        tuple(max(counts[chunk][stage] for counts in rows) for stage in range(len(rows[0][0]))) for chunk in range(len(rows[0]))
    )
