"""Page 16 without a browser: the sample, a self-timed figure, a recording without queues."""

from __future__ import annotations

from dataclasses import replace

from perfkit._resources import data_folder
from perfkit.panels import data_feed


def test_the_sample_is_slow_in_processing_and_names_the_source():
    answer = data_feed.view(data_feed.compute(data_feed.start()))
    assert answer.text.startswith("Processing the data is too slow: rank 0")
    assert "Start with TFReader 2." in answer.text
    assert set(answer.charts) == {"intervals", "queues", "usage"}
    assert answer.tables["path"].frame["answer"].tolist()[:2] == ["yes", "empty"]


def test_a_recording_without_queues_says_what_would_tell_more():
    state = replace(data_feed.start(), run=str(data_folder() / "traces" / "torch_npu_2rank"))
    answer = data_feed.view(data_feed.compute(state))
    assert "queues" not in answer.charts
    assert answer.text.startswith("The device does not wait for data")


def test_ranks_can_be_chosen():
    assert [value for _, value in data_feed._ranks(data_feed.start())] == [-1, 0]
