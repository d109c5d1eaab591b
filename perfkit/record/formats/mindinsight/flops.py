"""MindSpore Insight's FLOPs: `flops_summary_<rank>.json`, what the profiler counted on the AI cores of a rank in a step.

`FLOPs` is stated in 10^6 operations, `FLOPS` in 10^9 a second of AI core time, and the utilisation in percent.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal

from perfkit.core.errors import InputError
from perfkit.core.run import Run
from perfkit.record.format import Sink
from perfkit.record.formats.ascend.json import read_json
from perfkit.record.formats.mindinsight._files import RankFiles

MOST_RANKS = 256
"""Facts of a run are shown one by one; those of more ranks would bury the others."""
_NAME = re.compile(r"rank_(\d+)_step_flops")


def add_flops(group: RankFiles, sink: Sink) -> None:
    """Keep the operations of a step that the profiler states for a rank as a fact of the run."""
    file = group.get("flops")
    if file is None or group.rank >= MOST_RANKS:
        return
    try:
        content, _ = read_json(file)
    except InputError as error:
        sink.drop("; ".join(error.problems), 1, file)
        return
    stated = content.get("FLOPs") if isinstance(content, dict) else None
    if isinstance(stated, bool) or not isinstance(stated, int | float | Decimal) or not math.isfinite(stated) or stated < 0:
        sink.drop("FLOPs that are no number of operations", 1, file)
        return
    sink.fact(f"rank_{group.rank}_step_flops", float(stated * 1_000_000), f"{file.label} FLOPs (10^6)")


def stated_flops(run: Run) -> dict[int, float]:
    """The operations of a step by rank as `add_flops` kept them; empty if none are stated."""
    found = {}
    for name, fact in run.facts.items():
        if (of := _NAME.fullmatch(name)) and isinstance(fact.value, int | float):
            found[int(of[1])] = float(fact.value)
    return found
