"""Changes are read as documented, and everything that is wrong with any of them is said at once."""

from __future__ import annotations

import pytest

from perfkit.core.errors import InputError
from perfkit.explain.what_if import parse_changes


def test_names_of_operators_may_hold_colons():
    (change,) = parse_changes("operator:void at::native::add_kernel:2.5")
    assert (change.name, change.factor) == ("void at::native::add_kernel", 2.5)


def test_links_ranks_sizes_and_batches_are_read():
    link, rank, size, short, more = parse_changes(["link:7-3", "rank:5", "tensor_parallel_size:4", "tp:4", "micro_batches:+1"])
    assert (link.link, rank.rank, more.amount) == ((3, 7), 5, 1)
    assert (size.name, size.amount) == (short.name, short.amount) == ("tensor_parallel_size", 4)
    assert size.planned
    assert not link.planned


def test_all_problems_are_told_at_once():
    wrong = ["operator:MatMul", "operator:MatMul:0", "link:3-3", "rank:-1", "micro-batches:0", "recompute:half", "tp:0", "magic"]
    with pytest.raises(InputError) as caught:
        parse_changes(wrong)
    assert len(caught.value.problems) == len(wrong)
    assert "magic" in caught.value.problems[-1]
    assert "overlap" in caught.value.problems[-1]


def test_no_change_is_refused():
    with pytest.raises(InputError, match="no change is named"):
        parse_changes([])
