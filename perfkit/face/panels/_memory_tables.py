"""Tables of a memory profile: blocks at the peak, blocks that live long, blocks held after their last use."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from perfkit.record import memory

ABNORMAL = 0.1
"""Share of the peak from which a single block is marked."""
SHOWN = 20


def alive(peak: memory.Peak) -> pd.DataFrame:
    """The largest blocks alive at the peak, each with its share of it."""
    rows = peak.blocks.sort_values("bytes", ascending=False, kind="stable").head(SHOWN)
    frame = pd.DataFrame(
        [
            {
                "name": _text(row["name"]),
                "owner": _text(row["owner"]),
                "holds": _text(row["kind"]),
                "size_bytes": int(row["bytes"]),
                "share": row["bytes"] / peak.num_bytes,
                "abnormal": f"over {ABNORMAL:.0%} of the peak" if row["bytes"] >= ABNORMAL * peak.num_bytes else "",
                "allocated at": _text(row["place"]),
            }
            for row in rows.to_dict("records")
        ]
    )
    # Recordings differ in what they know of a block; a column without a word says nothing.
    return frame.loc[:, [name for name in frame.columns if (frame[name] != "").any()]]


def lived(blocks: pd.DataFrame) -> pd.DataFrame:
    """The largest blocks that live long, with the share of the span."""
    rows = blocks.head(SHOWN).to_dict("records")
    return pd.DataFrame(
        [
            {
                "name": _text(row["name"]),
                "size_bytes": int(row["bytes"]),
                "alive_ratio": float(row["alive_ratio"]),
                "released": "no" if pd.isna(row["end"]) else "yes",
            }
            for row in rows
        ]
    )


def held(blocks: Sequence[memory.Held]) -> pd.DataFrame:
    """Blocks held after their last use, moments as recorded."""
    return pd.DataFrame(
        [
            {
                "name": block.name or "",
                "address": block.address or "",
                "size_bytes": block.num_bytes,
                "last use": block.last_use,
                "released": "never" if block.freed is None else str(block.freed),
                "held for": block.held,
            }
            for block in blocks
        ]
    )


def _text(value: object) -> str:
    return "" if value is None or pd.isna(value) else str(value)  # type: ignore[call-overload]
