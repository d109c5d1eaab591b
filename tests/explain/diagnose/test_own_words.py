"""What was not measured is told in the words of the program that was recorded, and in nobody else's."""

from __future__ import annotations

import pytest

from perfkit.core.resources import data_folder
from perfkit.explain.diagnose import diagnose
from perfkit.explain.diagnose.collecting import MEMORY_BY
from perfkit.explain.diagnose.own_words import OWN_WORDS
from perfkit.record.load import load
from tests.explain.diagnose.made import Training

TRACES = data_folder() / "traces"
OF_OTHERS = {
    "kineto_resnet": ("MindSpore", "MindFormers", "MS_", "msrun", "HCCL", "NPU"),
    "torch_npu_2rank": ("MindSpore", "MindFormers", "MS_", "msrun", "NCCL", "CUDA"),
    "logs/meg_gpt2_base_n4_dp1_tp4_pp4-1809579.log": ("MindSpore", "MindFormers", "MS_", "msrun", "HCCL", "NPU"),
    "mindinsight_feed": ("torch", "NCCL", "CUDA"),
}


@pytest.mark.parametrize("recording", OF_OTHERS)
def test_a_recording_is_told_how_to_collect_more_in_words_of_its_own(recording: str):
    told = {entry.how_to_collect for entry in diagnose(load(TRACES / recording)).not_measured}
    own = {text for words in OWN_WORDS.values() if not isinstance(words, str) for text in words.values()}
    assert told & own
    assert [text for text in told & own if any(word in text for word in OF_OTHERS[recording])] == []
    assert not told & set(OWN_WORDS)


def test_where_nothing_says_which_program_ran_all_are_named():
    assert MEMORY_BY in {entry.how_to_collect for entry in diagnose(Training().run()).not_measured}
