"""Whatever bytes a reader gets, it reads them or says what is wrong: what fuzzing has found, and a little fuzzing every time.

Minutes of it, led by coverage: `make fuzz`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.targets import RECORDINGS, SEED_BYTES, Target, check, targets

FOUND = sorted(path for path in (Path(__file__).parent / "found").iterdir() if path.suffix != ".md")
TARGETS = {target.name: target for target in targets()}
EXAMPLES, EXAMPLES_OF_RECORDINGS = 60, 8
EDITS = st.lists(st.tuples(st.integers(0, SEED_BYTES), st.integers(0, 40), st.binary(max_size=12)), min_size=1, max_size=6)


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.name)
def test_what_was_found_once_is_read_or_refused_in_words(path):
    check(TARGETS[path.name.partition(".")[0]], path.read_bytes())


@pytest.mark.parametrize("target", TARGETS.values(), ids=lambda target: target.name)
def test_the_samples_of_a_reader_are_read(target):
    read = 0
    for seed in target.seeds:
        check(target, seed)
        target.run(seed)
        read += 1
    assert read


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS.values(), ids=lambda target: target.name)
def test_edited_samples_are_read_or_refused_in_words(target: Target):
    examples = EXAMPLES_OF_RECORDINGS if target.name in RECORDINGS else EXAMPLES

    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.sampled_from(range(len(target.seeds))), EDITS)
    def edited(seed: int, edits: list[tuple[int, int, bytes]]) -> None:
        data = target.seeds[seed]
        for place, num_removed, added in edits:
            at = place % (len(data) + 1)
            data = data[:at] + added + data[at + num_removed :]
        check(target, data)

    edited()
