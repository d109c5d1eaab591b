"""The states of a device are those of its kernels at every moment, in however many pieces both come."""

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from perfkit.face.widgets.timelines._overlap import states


def test_without_communication_there_are_two_states():
    kernels = np.array([[0, 100], [50, 50], [0, 0]])
    assert [(name, spans.total_ns) for name, spans in states([kernels]) if len(spans.starts)] == [
        ("computing alone", 50),
        ("computing alone", 50),
        ("free", 50),
    ]


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 4) | st.integers(0, 60), st.integers(-1, 1)), min_size=1),
    st.integers(1, 9),
)
def test_the_states_of_every_moment_are_those_of_the_kernels_wherever_a_block_ends(rows, size):
    kernels = np.array(sorted(rows, key=lambda row: (row[0], -row[1]))).T
    cuts = [at for at in range(size, len(rows), size) if kernels[0, at] != kernels[0, at - 1]]
    found: dict[str, list[tuple[int, int]]] = {}
    for name, spans in states(np.split(kernels, cuts, axis=1)):
        found.setdefault(name, []).extend(zip(spans.starts.tolist(), spans.ends.tolist(), strict=True))
    for spans in found.values():
        assert all(before[1] < after[0] for before, after in pairwise(spans))
    for moment in range(int(kernels[0, 0]), int((kernels[0] + kernels[1]).max())):
        running = {kind for start, duration, kind in rows if start <= moment < start + duration}
        state = {(): "free", (0,): "computing alone", (1,): "communication exposed"}.get(
            tuple(sorted(running - {-1})), "communication hidden"
        )
        assert [name for name, spans in found.items() if any(start <= moment < end for start, end in spans)] == [state]
