"""What a plan may fill of a device, and the stack that it runs on: typed, checked, seen, and the same after a round trip."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from perfkit import read_config
from perfkit.config.dialects import write_config
from perfkit.config.dialects.memory_text import size_of, size_text
from perfkit.config.dialects.read import read_text
from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.spec import MemoryLimit, OptimizerSpec, Plan, SoftwareSpec
from perfkit.core.units import GIB, MIB

ROOT = Path(__file__).parents[3]
CONFIGS = sorted((ROOT / "data" / "configs").glob("*.[tsy][oha]*")) + sorted((ROOT / "data" / "case13b").glob("*.yaml"))
LLAMA_13B = ROOT / "data" / "configs" / "pretrain_llama2_13b.yaml"


def on(plan: Plan, device: str = "Ascend-910B2") -> Plan:
    return replace(plan, hardware=catalog.hardware_named(device))


def test_a_gigabyte_of_mindspore_is_1024_cubed_bytes():
    # MindSpore multiplies by kGBToByte = 1024^3 (ascend_memory_adapter.cc); its log of the guides shows 59392M for 58GB.
    limit = read_config(LLAMA_13B).memory_limit
    assert (limit.limit_bytes, limit.part) == (59392 * MIB, "pool")
    assert limit.source == "pretrain_llama2_13b.yaml, line 125, context.max_device_memory = 58GB"


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_what_counts_is_the_limit_that_is_stated_else_the_device(path):
    plan = on(read_config(path))
    stated = "max_device_memory" in path.read_text(encoding="utf-8")
    assert (plan.memory_limit is not None) == stated
    usable = plan.usable_memory
    assert usable.part == ("pool" if stated else "device")
    assert usable.limit_bytes <= plan.hardware.memory_bytes
    assert ("max_device_memory" if stated else plan.hardware.name) in usable.source


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
@pytest.mark.parametrize("limit_gib", [57.2, 31, 0.5])
def test_a_limit_of_the_pool_comes_back_from_the_dialects_that_know_one(path, limit_gib):
    limit = MemoryLimit(limit_bytes=size_of(f"{limit_gib}GB"))
    plan = replace(read_config(path), memory_limit=limit)
    for dialect in ("mindformers", "perfkit"):
        written = write_config(plan, dialect=dialect)
        assert read_text(written.text, written.name).memory_limit == limit
        assert not any(lost.startswith("memory_limit") for lost in written.lost)
    assert any(lost.startswith("memory_limit") for lost in write_config(plan, dialect="mindspeed-core").lost)


def test_the_stack_and_the_precision_of_every_state_are_seen_and_come_back():
    plan = replace(
        read_config(LLAMA_13B),
        software=SoftwareSpec(
            framework="mindspore", release="1.3.2", overlap_dp=True, overlap_tp=False, overlap_pp=True, overlap_ep=False
        ),
        optimizer=OptimizerSpec(gradient_dtype="bfloat16", parameter_dtype="float16", moment_dtype="bfloat16"),
    )
    text = repr(plan)
    for word in (
        "framework='mindspore'", "release='1.3.2'", "overlap_dp=True", "overlap_tp=False", "overlap_pp=True",
        "parameter_dtype='float16'", "gradient_dtype='bfloat16'", "master_dtype='float32'", "moment_dtype='bfloat16'",
        "limit_bytes=62277025792", "part='pool'",
    ):  # fmt: skip
        assert word in text
    written = write_config(plan, dialect="perfkit")
    found = read_text(written.text, written.name)
    assert (found.software, found.optimizer, found.memory_limit) == (plan.software, plan.optimizer, plan.memory_limit)
    assert written.lost == ()


@pytest.mark.parametrize(
    ("bad", "nearest"),
    [
        ("'58G'", "58GB"),
        ("'0GB'", "58GB"),
        ("'-1'", "58GB"),
        ("-1", "58GB"),
        ("58", "58GB"),
        ("'58 GiB'", "58GB"),
        ("'512MB'", "0.5GB"),
    ],
)
def test_a_limit_that_mindspore_refuses_is_named_with_its_place_and_the_nearest_one(bad, nearest):
    text = LLAMA_13B.read_text(encoding="utf-8").replace('max_device_memory: "58GB"', f"max_device_memory: {bad}")
    with pytest.raises(InputError) as caught:
        read_text(text.replace("num_layers: 40", "num_layers: forty"), "mine.yaml")
    assert caught.value.subject == "mine.yaml"
    limit, layers = sorted(caught.value.problems)
    assert limit.startswith("line 125, context.max_device_memory: ")
    assert f"nearest is '{nearest}'" in limit
    assert "num_layers" in layers


def test_a_limit_above_the_device_is_refused_with_what_the_device_has():
    plan = read_config(LLAMA_13B)
    with pytest.raises(
        InputError, match=r"line 125, context.max_device_memory = 58GB: .* more than A100-40GB-SXM has.*nearest is 40GB"
    ):
        on(plan, "A100-40GB-SXM")
    text = LLAMA_13B.read_text(encoding="utf-8").replace('"58GB"', '"1024GB"')  # MindSpore's default: all of the device
    assert read_text(text, "x.yaml").memory_limit is None


def test_shares_and_sizes_are_checked():
    for wrong in (
        {"device_share": 1.5},
        {"device_share": 0.0},
        {"limit_bytes": 0},
        {"limit_bytes": -1},
        {},
        {"limit_bytes": 1, "device_share": 0.5},
    ):
        with pytest.raises(InputError):
            MemoryLimit(**wrong)
    assert MemoryLimit(device_share=0.9).of(100 * GIB).limit_bytes == 90 * GIB
    with pytest.raises(InputError, match=r"'58G' must be a size .* nearest is '58GB'"):
        read_text(write_config(read_config(LLAMA_13B), dialect="perfkit").text.replace("62277025792", '"58G"'), "x.toml")


def test_sizes_are_written_as_they_were():
    for text in ("58GB", "57.2GB", "0.5GB", "59.5GB", "30GB"):
        assert size_text(size_of(text)) == text


def test_states_that_contradict_one_another_are_refused():
    assert OptimizerSpec(moment_dtype="bfloat16").state_bytes_per_parameter == 4
    assert OptimizerSpec(state_bytes_per_parameter=4).moment_dtype == "bfloat16"
    assert OptimizerSpec(state_bytes_per_parameter=6, moment_dtype="bfloat16").moment_dtype == "bfloat16"  # one of two in fp32
    with pytest.raises(InputError, match="two such moments have 4"):
        OptimizerSpec(state_bytes_per_parameter=8, moment_dtype="bfloat16")
    with pytest.raises(InputError, match=r"framework = 'torch' must be one of.*\n.*release = 'newest'.*\n.*overlap_dp = 'yes'"):
        SoftwareSpec(framework="torch", release="newest", overlap_dp="yes")
