"""The lesson: three hours without gaps, every exercise in one block, only pages that exist."""

from __future__ import annotations

from perfkit.core.resources import pages
from perfkit.teach import exercises, groups
from perfkit.teach.lesson import blocks


def test_blocks_follow_one_another_for_three_hours():
    assert [block.from_min for block in blocks()] == [0, *(block.to_min for block in blocks()[:-1])]
    assert blocks()[-1].to_min == 180
    assert all(block.minutes > 0 and block.say for block in blocks())


def test_every_exercise_is_in_one_block_and_in_that_of_its_group():
    named = [name for block in blocks() for name in (*block.exercises, *block.spare)]
    assert sorted(named) == list(exercises())
    for block in blocks():
        if block.group:
            assert {exercises()[name].group for name in (*block.exercises, *block.spare)} == {block.group}
    assert {block.group for block in blocks() if block.group} <= {group.title for group in groups()}


def test_pages_on_the_projector_exist():
    known = {page.number for page in pages()}
    assert {number for block in blocks() for number in block.pages} <= known
