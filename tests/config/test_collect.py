from __future__ import annotations

import ast
import shlex
import subprocess

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from perfkit.config.collect import (
    DEFAULT_PARTS,
    EXTRAS,
    FRAMEWORKS,
    PARTS,
    check_window,
    dryrun_commands,
    how_to_collect,
    profiling_config,
    save_graphs_config,
)
from perfkit.core.errors import InputError

SIX_KEYS = {
    "profile",
    "profile_start_step",
    "profile_stop_step",
    "init_start_profile",
    "profile_communication",
    "profile_memory",
}


def _profile_call(framework: str, **options: object) -> dict[str, ast.expr]:
    tree = ast.parse(profiling_config(framework, **options).text)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return {keyword.arg: keyword.value for call in calls for keyword in call.keywords if keyword.arg}


def _recorded_steps(framework: str, start: int, stop: int) -> list[int]:
    """Steps (from 1) that the written `schedule` records, by the profilers' own rule."""
    call = _profile_call(framework, start_step=start, stop_step=stop)
    wait, warmup, active = (ast.literal_eval(call[name]) for name in ("wait", "warmup", "active"))
    return [index + 1 for index in range(wait + warmup, wait + warmup + active)]


def test_the_mindformers_yaml_has_all_six_keys_the_level_and_nothing_else():
    values = yaml.safe_load(profiling_config("mindformers").text)
    assert set(values) == SIX_KEYS | {"profile_level"}
    assert values["profile"] is True
    assert (values["profile_start_step"], values["profile_stop_step"]) == (5, 7)
    assert values["init_start_profile"] is False
    assert values["profile_communication"] is True
    assert values["profile_memory"] is False
    assert values["profile_level"] == 1


def test_memory_and_stacks_are_recorded_only_when_asked_for():
    values = yaml.safe_load(profiling_config("mindformers", missing=["memory curve", "host calls"]).text)
    assert values["profile_memory"] is True
    assert values["with_stack"] is True
    assert values["profile_communication"] is False
    assert yaml.safe_load(profiling_config("mindformers", missing=["timeline"]).text)["profile_level"] == 0


def test_steps_1_to_10_have_two_problems_and_the_default_window_none():
    assert [advice.rule for advice in check_window(1, 10)] == ["profile-start-compile", "profile-window-long"]
    assert check_window(5, 7) == ()
    assert check_window(5, 6) == ()
    assert [advice.rule for advice in check_window(3, 6)] == ["profile-start-compile"]
    assert [advice.rule for advice in check_window(4, 8)] == ["profile-window-long"]


@pytest.mark.parametrize(("start", "stop"), [(0, 3), (-1, 3), (6, 5)])
def test_a_window_without_a_step_is_refused_with_both_numbers(start: int, stop: int):
    assert [advice.rule for advice in check_window(start, stop)] == ["profile-window-empty"]
    with pytest.raises(InputError, match=f"steps {start} to {stop}"):
        profiling_config("pytorch", start_step=start, stop_step=stop)


def test_a_bad_window_is_written_but_said_first():
    notes = profiling_config("mindformers", start_step=1, stop_step=10).notes
    assert "step 1 compiles" in notes[0]
    assert "10 steps" in notes[1]


@pytest.mark.parametrize("framework", ["pytorch", "torch_npu", "mindspore"])
@given(start=st.integers(1, 50), length=st.integers(1, 20))
def test_the_python_schedules_record_exactly_the_window(framework: str, start: int, length: int):
    assert _recorded_steps(framework, start, start + length - 1) == list(range(start, start + length))


@pytest.mark.parametrize("framework", ["pytorch", "torch_npu", "mindspore"])
def test_the_python_lines_switch_on_what_is_missing_and_nothing_more(framework: str):
    with_memory = _profile_call(framework, missing=["memory curve"])
    assert ast.literal_eval(with_memory["profile_memory"]) is True
    assert ast.literal_eval(with_memory["with_stack"]) is False
    without = _profile_call(framework, missing=["host calls"])
    assert ast.literal_eval(without["profile_memory"]) is False
    assert ast.literal_eval(without["with_stack"]) is True


@pytest.mark.parametrize("framework", ["megatron", "mindspeed"])
def test_the_end_step_of_megatron_is_the_first_that_is_not_recorded(framework: str):
    words = shlex.split(profiling_config(framework, start_step=5, stop_step=7).text.replace("\\\n", " "))
    assert words[words.index("--profile-step-start") + 1] == "5"
    assert words[words.index("--profile-step-end") + 1] == "8"
    assert "--profile" in words


def test_megatron_asks_for_the_profiler_that_perfkit_reads():
    assert "--use-pytorch-profiler" in profiling_config("megatron").text
    assert "pickle" in " ".join(profiling_config("megatron", missing=["memory curve"]).notes)


def test_mindspeed_core_ms_keys_stand_under_training_config():
    values = yaml.safe_load(profiling_config("mindspeed-core-ms", missing=["links", "layout"]).text)
    assert set(values) == {"training_config"}
    inner = values["training_config"]
    assert (inner["profile_step_start"], inner["profile_step_end"]) == (5, 7)
    assert inner["profile_communication"] is True
    assert inner["profile_parallel_strategy"] is True
    assert inner["profile_memory"] is False
    assert inner["profile_level"] == "level1"


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_reduced_model_is_marked_in_every_framework(framework: str):
    snippet = profiling_config(framework, num_layers=2)
    assert any("Reduced model (2 layers)" in note for note in snippet.notes)
    assert "2" in snippet.text or "2 layers" in " ".join(snippet.notes)
    assert not any("Reduced" in note for note in profiling_config(framework).notes)


def test_the_reduced_mindformers_model_sets_num_layers_where_the_model_has_it():
    values = yaml.safe_load(profiling_config("mindformers", num_layers=2).text)
    assert values["model"]["model_config"]["num_layers"] == 2


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("part", PARTS)
def test_every_part_has_lines_and_a_sentence_in_every_framework(framework: str, part: str):
    snippet = profiling_config(framework, missing=[part])
    if snippet.language == "yaml":
        assert yaml.safe_load(snippet.text)
    elif snippet.language == "python":
        ast.parse(snippet.text)
    else:
        assert shlex.split(snippet.text)
    sentence = how_to_collect(part, framework)
    assert snippet.file_hint in sentence
    assert "steps 5 to 7" in sentence


def test_the_yaml_switches_in_a_sentence_are_those_that_the_lines_set():
    for part in PARTS:
        values = yaml.safe_load(profiling_config("mindformers", missing=[part]).text)
        sentence = how_to_collect(part, "mindformers")
        for key, value in values.items():
            if f"{key}: " in sentence:
                assert f"{key}: {value}" in sentence


def test_every_problem_of_a_request_is_named_at_once():
    with pytest.raises(InputError) as error:
        profiling_config("tensorflow", missing=["colour"], start_step=9, stop_step=2, num_layers=0)
    assert len(error.value.problems) == 4
    assert "'tensorflow'" in str(error.value)
    assert "'colour'" in str(error.value)


def test_an_unknown_part_or_framework_of_a_sentence_is_refused():
    with pytest.raises(InputError, match="'colour' is unknown"):
        how_to_collect("colour")
    with pytest.raises(InputError, match="'jax'"):
        how_to_collect("kernels", "jax")
    assert "page 10" in how_to_collect("kernels")


def test_frameworks_are_found_however_they_are_spelled():
    assert profiling_config("Torch_NPU") == profiling_config("torch-npu")
    assert profiling_config("MindSpeed Core MS") == profiling_config("mindspeed-core-ms")
    assert set(DEFAULT_PARTS) <= set(PARTS)


def test_saving_graphs_of_40_layers_suggests_two():
    snippet = save_graphs_config("mindformers", 40)
    assert yaml.safe_load(snippet.text) == {"context": {"save_graphs": True, "save_graphs_path": "./graph"}}
    assert "40 layers" in snippet.notes[0]
    assert "num_layers to 2" in snippet.notes[0]


def test_saving_graphs_of_two_layers_suggests_nothing():
    assert save_graphs_config("mindformers", 2).notes == save_graphs_config("mindformers").notes
    ast.parse(save_graphs_config("mindspore").text)


def test_saving_graphs_of_pytorch_is_refused_with_what_would_work():
    with pytest.raises(InputError, match="mindformers, mindspore"):
        save_graphs_config("pytorch")


def test_a_dry_run_of_16_devices_on_two_stages_compiles_ranks_0_and_8_with_both_sets():
    newer, older = dryrun_commands(16, 2)
    assert newer.text.count("RANK_SIZE=16") == 2
    for snippet in (newer, older):
        ranks = [word for word in shlex.split(snippet.text.replace("\\\n", "")) if word.startswith("RANK_ID=")]
        assert ranks == ["RANK_ID=0", "RANK_ID=8"]
    assert "MS_KERNEL_LAUNCH_SKIP=all" in newer.text
    assert "ENABLE_CELL_REUSE=1" in older.text


def test_a_version_gets_its_own_set_alone():
    (older,), (newer,) = (dryrun_commands(8, 1, version=version) for version in ("2.4.10", "2.10.0"))
    assert "ENABLE_CELL_REUSE" in older.text
    assert "MS_KERNEL_LAUNCH_SKIP" in newer.text
    with pytest.raises(InputError, match="'nightly'"):
        dryrun_commands(8, 1, version="nightly")


COMMANDS = (
    "python run_mindformer.py --config config.yaml --run_mode train",
    "bash scripts/msrun_launcher.sh \"run_mindformer.py --config 'a b.yaml' --run_mode train --use_parallel True\" 8 "
    + "--x 1 " * 30,
    "python train.py --note 'two  spaces' --path a\\ b " + " ".join(f"--option_{number}=value" for number in range(20)),
)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_dry_run_is_a_command_of_short_lines_and_of_the_words_that_it_was_given(command: str):
    (snippet,) = dryrun_commands(8, 2, version="2.7", command=command)
    assert max(map(len, snippet.text.splitlines())) <= 90
    assert shlex.join(shlex.split(command)) in shlex.join(shlex.split(snippet.text.replace("\\\n", "")))
    subprocess.run(["bash", "-n"], input=snippet.text, text=True, check=True)


def test_a_command_of_which_a_quote_is_not_closed_is_left_as_it_is():
    command = "python train.py --note 'not closed " + "and long " * 20
    assert command in dryrun_commands(8, 2, version="2.7", command=command)[0].text


@pytest.mark.parametrize(("devices", "stages"), [(16, 3), (0, 1), (8, 0)])
def test_devices_that_do_not_split_into_stages_are_refused(devices: int, stages: int):
    with pytest.raises(InputError, match=f"{devices} devices"):
        dryrun_commands(devices, stages)


def test_torch_npu_records_garbage_collections_with_the_calls_of_the_host():
    assert ast.literal_eval(_profile_call("torch-npu", missing=["host calls"])["gc_detect_threshold"]) == 1.0
    assert "gc_detect_threshold" not in _profile_call("torch-npu")


def test_the_trainer_for_pynative_has_a_section_of_its_own_with_both_ends_of_the_window():
    text = profiling_config("mindformers-pynative", missing=["memory curve", "links"], start_step=6, stop_step=8, num_layers=2).text
    values = yaml.safe_load(text)
    assert values["profiler"] == {
        "enable_profiling": True,
        "start_step": 6,
        "end_step": 8,
        "output_path": "./profile",
        "profiler_level": 1,
        "profile_memory": True,
        "profile_cpu": True,
        "with_stack": False,
    }
    assert values["model"] == {"num_hidden_layers": 2}


@pytest.mark.parametrize(
    ("framework", "release", "arguments"),
    [
        ("mindspore", "", {"mstx", "sys_io", "sys_interconnection", "host_sys"}),
        ("mindspore", "2.7.1", {"mstx", "sys_io", "sys_interconnection", "host_sys"}),
        ("mindspore", "2.6.0", {"mstx"}),
        ("torch-npu", "7.2.0", {"mstx", "sys_io", "sys_interconnection", "host_sys"}),
        ("torch-npu", "6.0.0", {"msprof_tx"}),
    ],
)
def test_a_release_gets_the_options_that_its_profiler_has(framework, release, arguments):
    asked = {"mstx", "msprof_tx", "sys_io", "sys_interconnection", "host_sys"}
    assert set(_profile_call(framework, extras=EXTRAS, release=release)) & asked == arguments
    assert set(_profile_call(framework)) & asked == set()
    notes = profiling_config(framework, extras=EXTRAS, release=release).notes
    assert sum("is the first" in note for note in notes) == (0 if "host_sys" in arguments else 2)


def test_what_a_framework_cannot_record_is_said_and_what_nobody_records_refused():
    assert any("network" in note for note in profiling_config("pytorch", extras=["network"]).notes)
    with pytest.raises(InputError, match="extras are marks, network, host load"):
        profiling_config("mindspore", extras=["weather"])
    with pytest.raises(InputError, match=r"2\.5 or 2\.5\.0"):
        profiling_config("mindspore", extras=["marks"], release="newest")
