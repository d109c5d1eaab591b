"""What a finding tells to do is in the words of the program and the device that were recorded."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from perfkit.core.resources import data_folder
from perfkit.core.run import Fact, Run
from perfkit.core.source import Source
from perfkit.core.texts import told
from perfkit.explain.diagnose import advice, diagnose
from perfkit.explain.diagnose.case import Case
from perfkit.record.load import load

TRACES = Path(__file__).parents[2] / "data" / "traces"
OWN = data_folder() / "traces"
RECORDED = {
    "mindspore": (TRACES / "synthetic_ms", OWN / "logs" / "llama2_13b_8card_worker_0.log", TRACES / "mindinsight" / "mixed"),
    "torch_npu": (OWN / "torch_npu_2rank", TRACES / "torch_npu_pp2dp2", TRACES / "torch_npu_db" / "level1"),
    "torch": (OWN / "kineto_resnet", TRACES / "dlrm_8xV100", TRACES / "kineto_h100"),
}
STRANGE = {
    "mindspore": re.compile(r"torch|\s--[a-z]|CUDA|NCCL|nvidia"),
    "torch_npu": re.compile(r"mindspore|MS_|CUDA|NCCL|nvidia|comm_fusion"),
    "torch": re.compile(r"mindspore|MS_|NPU|ASCEND|HCCL|npu|comm_fusion"),
}
"""Words that say nothing to whoever runs the other."""


def told_to(framework: str, *more: str) -> Case:
    facts = {"profiler": Fact(value=framework, source=Source("measured", "made up"))} if framework else {}
    if more:
        facts["tensor_parallel_size"] = Fact(value=2, source=Source("measured", more[0]))
    return Case(Run(name="made up", kind="measured", format="ascend-text", tables={}, facts=facts))


@pytest.mark.parametrize(("framework", "place"), [(name, place) for name, places in RECORDED.items() for place in places])
def test_a_recording_is_told_what_its_own_framework_understands(framework: str, place: Path):
    run = load(place)
    assert next(one for one in advice.speakers(Case(run)) if one in advice.BELOW) == framework
    for finding in diagnose(run).findings:
        for action in finding.actions:
            assert not STRANGE[framework].search(action), (finding.rule, action)
        assert finding.actions, finding.rule


def test_an_action_is_told_by_the_trainer_then_the_framework_then_the_device():
    action: advice.Action = {"mindspore": "a", "megatron": "b", "torch": "c", "ascend": "d"}
    assert advice.fitting(told_to("mindspore"), (action,)) == ("a",)
    assert advice.fitting(told_to("torch_npu 2.7.1"), (action,)) == ("c",)
    assert advice.fitting(told_to("torch_npu", "profiler_metadata.json: distributed_args.tensor"), (action, "e")) == ("b", "e")
    assert advice.fitting(told_to("torch_npu"), ({"ascend": "d", "nvidia": "f"},)) == ("d",)


def test_what_nothing_recorded_understands_is_left_out_and_what_may_run_on_it_has_its_name():
    assert advice.fitting(told_to("mindspore"), ({"torch": "c"}, {"megatron": "b"})) == ()
    (text,) = advice.fitting(told_to("torch_npu"), ({"mindspore": "a", "megatron": "b"},))
    assert text == "Megatron-LM and MindSpeed: b"


def test_where_nothing_says_which_program_ran_each_is_told_by_name_in_both_languages():
    texts = advice.fitting(told_to(""), (advice.EXPANDABLE,))
    assert [text.split(": ")[0] for text in texts] == [advice.NAMES[one] for one in ("mindspore", "torch_npu", "torch")]
    assert "让内存池" in told(texts[0], "zh")


def test_a_device_of_another_vendor_is_not_asked_with_the_tool_of_the_first():
    run = load(OWN / "kineto_resnet")
    named = {**run.facts, "device_name": Fact(value="AMD Instinct MI300X", source=Source("measured", "made up"))}
    (text,) = advice.fitting(Case(replace(run, facts=named)), (advice.HEALTH,))
    assert "amd-smi" in text
