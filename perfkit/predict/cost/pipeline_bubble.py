"""Pipeline bubble: the share of a step in which the stages of a pipeline wait for each other.

One-forward-one-backward fills and drains a pipeline of p stages with p - 1 micro batches that do not overlap; v chunks a stage make
each of them v times shorter (arXiv 2104.04473, section 2.2): bubble over ideal time = (p - 1) / (v m). Equal stages without
communication are assumed; `perfkit.simulate_schedule` does without that.
"""

from __future__ import annotations

from perfkit.core.errors import InputError


def bubble_over_ideal(stages: int, micro_batches: int, chunks: int = 1) -> float:
    """Bubble over the time of the work itself: 3/128 for 4 stages, 32 micro batches, 4 chunks."""
    _check(stages, micro_batches, chunks)
    return (stages - 1) / (chunks * micro_batches)


def bubble_share(stages: int, micro_batches: int, chunks: int = 1) -> float:
    """Bubble as a share (0 to 1) of the whole step: 3/131 for 4 stages, 32 micro batches, 4 chunks."""
    _check(stages, micro_batches, chunks)
    return (stages - 1) / (chunks * micro_batches + stages - 1)


def _check(stages: int, micro_batches: int, chunks: int) -> None:
    sizes = {"stages": stages, "micro_batches": micro_batches, "chunks": chunks}
    problems = [f"{name} = {size} must be positive" for name, size in sizes.items() if size < 1]
    if problems:
        raise InputError("pipeline bubble", problems)
