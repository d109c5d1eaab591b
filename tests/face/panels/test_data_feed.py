"""Page 16 without a browser: the sample, a self-timed figure, a recording that cannot tell."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perfkit.core.errors import NotMeasuredError
from perfkit.core.resources import data_folder
from perfkit.face.panels import data_feed


def test_the_sample_is_slow_in_processing_and_names_the_source():
    answer = data_feed.view(data_feed.compute(data_feed.start()))
    assert answer.text.startswith("Processing the data is too slow: rank 0")
    assert "Start with TFReader 2." in answer.text
    assert set(answer.charts) == {"intervals", "queues", "usage"}
    assert answer.tables["path"].frame["answer"].tolist()[:2] == ["yes", "empty"]


def test_the_page_shows_how_to_time_own_code_until_its_time_is_entered():
    (code,) = data_feed.view(data_feed.compute(data_feed.start())).code
    compile(code.text, "shown", "exec")
    assert "perf_counter_ns" in code.text
    assert data_feed.view(data_feed.compute(replace(data_feed.start(), custom_ms=3.0))).code == ()


def test_steps_known_by_their_kernels_only_do_not_pass_for_a_good_feed():
    state = replace(data_feed.start(), run=str(data_folder() / "traces" / "torch_npu_2rank"))
    with pytest.raises(NotMeasuredError, match="steps are taken to begin with it") as raised:
        data_feed.compute(state)
    assert "step trace" in raised.value.how_to_collect


def test_ranks_can_be_chosen():
    assert [value for _, value in data_feed._ranks(data_feed.start())] == [-1, 0]
