"""Sends and receives of a group of many ranks find each other by number, by name, or by ending together; else they stay alone."""

from __future__ import annotations

import pandas as pd

from perfkit.record.events.transfers import ALONE, TOGETHER_NS, partners


def _table(*rows: tuple[int, str, str, int, int], instance: list[int] | None = None) -> pd.DataFrame:
    """Rows of one group and step: rank, operation, name, start and duration in ns."""
    table = pd.DataFrame(rows, columns=["rank", "operation", "name", "moment_ns", "duration_ns"])
    return table.assign(step=1, members=0, instance=range(len(rows)) if instance is None else instance)


def test_one_send_and_one_receive_of_a_number_are_a_pair():
    table = _table((0, "send", "a", 0, 10), (1, "receive", "b", 0, 10), (2, "all_reduce", "c", 0, 10), instance=[7, 7, 8])
    assert partners(table).tolist() == [1, 0, ALONE]


def test_names_that_differ_in_the_word_for_the_operation_are_a_pair():
    table = _table(
        (1, "receive", "hcom_receive__4", 0, 90), (0, "send", "hcom_send__4", 50, 10), (0, "send", "hcom_send__5", 70, 10)
    )
    assert partners(table).tolist() == [1, 0, ALONE]


def test_what_ends_together_on_two_ranks_is_a_pair_and_each_is_used_once():
    far = 100 * TOGETHER_NS
    table = _table(
        (0, "send", "x", 0, far), (1, "receive", "y", 10, far), (2, "receive", "z", 20, far), (0, "receive", "w", 0, far)
    )  # fmt: skip
    assert partners(table).tolist() == [1, 0, ALONE, ALONE]


def test_nothing_pairs_with_its_own_rank_or_with_what_ended_long_before():
    table = _table((0, "send", "x", 0, 10), (0, "receive", "y", 0, 10), (1, "receive", "z", 10 * TOGETHER_NS, 10))
    assert partners(table).tolist() == [ALONE] * 3


def test_an_unknown_clock_leaves_names():
    table = _table((0, "send", "send 1", 0, 10), (1, "receive", "recv 1", 0, 10), (1, "receive", "recv 2", 0, 10))
    assert partners(table.assign(moment_ns=pd.array([None] * 3, dtype="Int64"))).tolist() == [1, 0, ALONE]


def test_a_table_without_transfers_has_no_pairs():
    assert partners(_table((0, "all_reduce", "a", 0, 10))).tolist() == [ALONE]


def _late(*, length: int, order: tuple[int, int]) -> list[int]:
    """Two ranks that talk (the first transfer ends together), and two sends whose receives come late, in that order."""
    gap = 1000 * TOGETHER_NS
    table = _table(
        (0, "send", "s0", 0, 40 * TOGETHER_NS), (1, "receive", "r0", 0, 40 * TOGETHER_NS),
        (0, "send", "s1", gap, 50 * TOGETHER_NS), (0, "send", "s2", 2 * gap, 60 * TOGETHER_NS),
        (1, "receive", "r1", 3 * gap, length * TOGETHER_NS), (1, "receive", "r2", 4 * gap, (110 - length) * TOGETHER_NS),
    )  # fmt: skip
    return partners(table.iloc[list(range(4)) + [4 + at for at in order]].reset_index(drop=True)).tolist()


def test_a_late_receive_lasts_as_long_as_its_send_between_ranks_that_talk():
    assert _late(length=50, order=(0, 1)) == [1, 0, 4, 5, 2, 3]
    assert _late(length=55, order=(0, 1)) == [1, 0, ALONE, ALONE, ALONE, ALONE], "neither lasts as long"


def test_receives_of_equal_length_do_not_pair_with_a_send_that_comes_later_or_ranks_that_never_talk():
    long, gap = 50 * TOGETHER_NS, 1000 * TOGETHER_NS
    early = _table(
        (0, "send", "a", 0, 9 * long), (1, "receive", "b", 0, 9 * long),
        (0, "send", "c", 2 * gap, long), (1, "receive", "d", gap, long),
    )  # fmt: skip
    assert partners(early).tolist() == [1, 0, ALONE, ALONE]
    strange = _table((0, "send", "a", 0, long), (1, "receive", "b", gap, long))
    assert partners(strange).tolist() == [ALONE, ALONE]
