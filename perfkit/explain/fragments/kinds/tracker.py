"""Rows of MindSpore's memory tracker (memory_block.csv): the peak, and what is held after its last use."""

from __future__ import annotations

import re

from perfkit.core.errors import NotMeasuredError
from perfkit.core.figure import figure
from perfkit.core.texts import say
from perfkit.explain.fragments.kind import FragmentKind, Part, Piece
from perfkit.explain.fragments.pasted_run import pasted_run
from perfkit.record.memory import bytes_at_peak, held_after_use, live_peak, pools, use_peak

_HEADER = re.compile(r"^\s*start_time_stamp\s*,")
_ROW = re.compile(r"^\s*-?\d+,\s*\d+,\s*(?:0x)?[0-9a-fA-F]+,")


def _read(piece: Piece) -> Part:
    blocks = pasted_run(piece.text, "memory_block.csv").frame("memory_blocks")
    live = live_peak(blocks)
    figures = [figure("live peak", live.num_bytes, "bytes", "computed", "blocks from allocation to release")]
    largest = list(bytes_at_peak(live).items())[:5]
    says: list[str] = [say("{name}: {held_bytes} at the peak", name=name or "unnamed", held_bytes=size) for name, size in largest]
    try:
        used = use_peak(blocks).num_bytes
        figures.append(
            figure("held after its last use", live.num_bytes - used, "bytes", "computed", "live peak - peak up to the last use")
        )
        says += [
            say("held after its last use: {name} of {held_bytes}", name=held.name or str(held.address), held_bytes=held.num_bytes)
            for held in held_after_use(blocks)
        ]
    except NotMeasuredError as error:
        says.append(str(error))
    gaps = [pool.fragmentation_bytes for pool in pools(blocks) if pool.fragmentation_bytes is not None]
    figures += [figure("gaps between blocks", sum(gaps), "bytes", "computed", "reported peak - live peak")] if gaps else []
    return Part(
        kind=FRAGMENT.name,
        title=say("memory tracker, blocks: {number}", number=len(blocks)),
        belongs="rank_N/memory_block.csv of a run with memory_tracker:True",
        says=tuple(says),
        figures=tuple(figures),
    )


FRAGMENT = FragmentKind(
    name="tracker",
    title="rows of a memory tracker",
    looks_for="a header `start_time_stamp,end_time_stamp,device_addr,...`",
    order=12,
    claims=lambda line: _HEADER.match(line) is not None or _ROW.match(line) is not None,
    read=_read,
)
