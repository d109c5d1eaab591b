"""Which ranks a person means, and which are shown first."""

from __future__ import annotations

import pandas as pd
import pytest

from perfkit.core.errors import InputError
from perfkit.explain.ranks import parse_ranks, worth_showing


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("", (0, 1, 2, 5)),
        ("all", (0, 1, 2, 5)),
        ("1", (1,)),
        ("0-2", (0, 1, 2)),
        (" 0 - 1 , 5", (0, 1, 5)),
        ("2,2,0-5", (2, 0, 1, 5)),
    ],
)
def test_a_text_names_ranks(text, ranks):
    assert parse_ranks(text, [0, 1, 2, 5]) == ranks


def test_every_piece_that_is_no_rank_is_listed_at_once():
    with pytest.raises(InputError) as error:
        parse_ranks("a, 3-1, 99, -4", [0, 1, 2, 5])
    assert [problem.split(";")[0] for problem in error.value.problems] == [
        "'a' is no rank or range",
        "'3-1' runs backwards",
        "'99' asks for rank 99",
        "'-4' is no rank or range",
    ]
    assert "the run has ranks 0-2, 5" in error.value.problems[2]


def test_few_ranks_are_all_shown():
    assert worth_showing(pd.Series({3: 10, 1: 20, 2: 5})) == (1, 2, 3)


def test_of_many_ranks_the_slowest_the_fastest_and_the_middle_are_shown():
    durations = pd.Series({rank: 1000 - rank for rank in range(100)})
    assert worth_showing(durations) == (0, 1, 2, 3, 48, 49, 50, 51, 96, 97, 98, 99)
