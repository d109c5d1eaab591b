"""The fault game on paper: truths that are known, conservation, and nothing true on a sheet."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from perfkit.face.report import paper_game
from perfkit.teach.paper import KINDS, NUM_STEPS, paper_round

# What is true in round G01 of the class 2024.
KNOWN = [
    ("s01", "jitter", (), "12.60"),
    ("s02", "excess_casts", (), "75"),
    ("s03", "no_overlap", (), "60"),
    ("s05", "none", (), "0"),
    ("s06", "data_stall", (), "250"),
    ("s09", "data_stall", (), "120"),
    ("s10", "gc_pause", (0,), "179.50"),
    ("s12", "host_bound", (), "90"),
    ("s13", "slow_rank", (2,), "54.30"),
    ("s15", "imbalanced_pp_stage", (4, 5, 6, 7), "139.65"),
    ("s17", "memory_fragmentation", (), "8704"),
    ("s20", "small_messages", (), "120"),
]


@pytest.mark.parametrize(("student", "kind", "ranks", "cost"), KNOWN)
def test_known_rounds_are_what_they_are(student, kind, ranks, cost):
    found = paper_round(2024, student, "G01")
    assert (found.kind, found.ranks, found.cost) == (kind, ranks, Fraction(cost))


def test_every_kind_is_drawn_and_only_a_fault_changes_a_run():
    seen = set()
    for number in range(1, 120):
        found = paper_round(1, "x", f"G{number:02}")
        seen.add(found.kind)
        same = all(
            np.array_equal(getattr(found.today, part), getattr(found.last_week, part)) for part in ("step", "free", "transit")
        )
        counts = found.today.casts, found.today.messages, found.today.peak_with_fragments_mb
        fine = found.last_week.casts, found.last_week.messages, found.last_week.peak_with_fragments_mb
        assert (same and counts == fine) == (found.kind == "none")
    assert seen == set(KINDS)


def test_a_link_has_two_ends_in_one_stage():
    links = [found.ranks for number in range(200) if (found := paper_round(3, "y", f"G{number}")).kind == "slow_link"]
    assert links
    assert all(len(ends) == 2 and ends[0] // 4 == ends[1] // 4 for ends in links)


def test_waiting_and_work_of_every_rank_fill_the_step():
    for student in ("s01", "s10", "s13", "s15"):
        today = paper_round(2024, student, "G01").today
        filled = today.data + today.busy + today.transit + today.wait - today.hidden
        assert (filled == today.step).all()
        assert today.step.shape == (NUM_STEPS,)


def test_a_sheet_has_the_numbers_and_not_the_truth():
    sheet = paper_game(2024, ["s13", "<b>"], ["G01"])
    assert "s13, round G01" in sheet
    assert "&lt;b&gt;" in sheet
    assert "54.3" not in sheet
    solutions = paper_game(2024, ["s13"], ["G01"], solutions=True)
    assert "54.3 ms a step" in solutions
    assert "swap it" in solutions
