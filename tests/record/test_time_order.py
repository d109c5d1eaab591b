"""Events come in order of time, in whatever order and in however many parts they were added."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfkit.record.tiles import time_order
from perfkit.record.tiles.time_order import TimeOrder

events = st.lists(st.tuples(st.integers(0, 2), st.integers(-20, 20), st.integers(0, 3)), min_size=1, max_size=60)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=events, size=st.integers(1, 20), limit=st.sampled_from(["1GiB", "2KiB", "1"]), step=st.integers(1, 9))
def test_the_longest_of_one_start_comes_first_and_the_rest_as_added(monkeypatch: pytest.MonkeyPatch, rows, size, limit, step):
    monkeypatch.setenv("PERFKIT_MEMORY_LIMIT", limit)
    monkeypatch.setattr(time_order, "STEP_ROWS", step)
    monkeypatch.setattr(time_order, "PART_ROWS", 2 * step)
    order = TimeOrder(3)
    table = np.array([(thread, start, duration, at) for at, (thread, start, duration) in enumerate(rows)], dtype=np.int64)
    for first in range(0, len(rows), size):
        threads, *columns = table[first : first + size].T
        order.add(threads, columns)
    for thread in range(3):
        wanted = sorted((start, -duration, at) for own, start, duration, at in table.tolist() if own == thread)
        for _ in range(2):
            blocks = list(order.blocks(thread))
            found = [row for block in blocks for row in zip(*block.tolist(), strict=True)]
            assert [(start, -duration, at) for start, duration, at in found] == wanted
            starts = [set(block[0].tolist()) for block in blocks]
            assert sum(map(len, starts)) == len(set().union(*starts))
