"""The bubble against the guides' cases and the exact schedule's totals."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.core.errors import InputError
from perfkit.predict.cost.pipeline_bubble import bubble_over_ideal, bubble_share


@pytest.mark.parametrize(
    ("stages", "micro_batches", "chunks", "over_ideal", "share"),
    [(4, 32, 1, 0.09375, 0.0857142857), (4, 16, 1, 0.1875, 0.1578947368), (4, 32, 4, 0.0234375, 0.0229007634)],
)
def test_bubble_is_that_of_the_guides_cases(stages, micro_batches, chunks, over_ideal, share):
    assert bubble_over_ideal(stages, micro_batches, chunks) == over_ideal
    assert bubble_share(stages, micro_batches, chunks) == pytest.approx(share)


@given(st.integers(1, 64), st.integers(1, 512), st.integers(1, 8))
def test_share_and_ratio_describe_one_bubble(stages, micro_batches, chunks):
    ratio = bubble_over_ideal(stages, micro_batches, chunks)
    assert bubble_share(stages, micro_batches, chunks) == pytest.approx(ratio / (1 + ratio))


def test_a_stage_is_one_chunk_where_nothing_is_said():
    assert (bubble_over_ideal(4, 32), bubble_share(4, 32)) == (3 / 32, 3 / 35)


def test_no_pipeline_has_no_bubble():
    assert bubble_share(1, 8) == 0.0


def test_impossible_sizes_are_all_named():
    with pytest.raises(InputError) as caught:
        bubble_share(0, -1)
    assert len(caught.value.problems) == 2
