"""A plan written into any dialect means the same: what cannot be said is listed, all else comes back."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from perfkit import estimate, read_config
from perfkit.config.dialects import edit_config, write_config
from perfkit.config.dialects.compare import differences, meaning
from perfkit.config.dialects.read import read_text
from perfkit.config.export_text import export_text
from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.recompute import RecomputePlan
from perfkit.core.spec.software import SoftwareSpec

ROOT = Path(__file__).parents[3]
BUNDLED = sorted((ROOT / "data" / "configs").glob("*.[tsy][oha]*"))
RELEASED = sorted((ROOT / "tests" / "data" / "configs" / "mindformers").rglob("*.yaml"))
DIALECTS = ("mindformers", "mindspeed-core", "megatron", "megatron-bridge", "perfkit")


@cache
def readable() -> tuple[Plan, ...]:
    plans = []
    for path in [*BUNDLED, *RELEASED]:
        try:
            plans.append(read_config(path))
        except InputError:
            continue
    return tuple(plans)


def config(name: str) -> Plan:
    return read_config(ROOT / "data" / "configs" / name)


def test_every_readable_file_is_written_back_byte_for_byte():
    plans = readable()
    assert len(plans) > 60
    for plan in plans:
        written = plan.write()
        assert written.to_bytes() == plan.document.path.read_bytes(), plan.document.name
        assert written.diff() == ""


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_converted_plan_reads_back_as_it_was_but_for_what_is_listed(dialect):
    for plan in readable():
        written = write_config(replace(plan, document=None), dialect=dialect)
        back = read_text(written.text, written.name)
        assert tuple(differences(plan, back)) == written.lost, plan.document.name
        assert back.document.dialect == dialect
        assert (back.document.unknown, back.document.unread) == ((), ()), "what perfkit writes it reads, and says so"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_where_nothing_is_lost_the_prediction_is_the_same(dialect):
    device, compared = catalog.hardware_named("Ascend 376"), 0
    for plan in readable()[::2]:
        plain = replace(plan, document=None, hardware=None, memory_limit=None, software=SoftwareSpec(framework="megatron"))
        written = write_config(plain, dialect=dialect)
        if not written.lost:
            found = replace(read_text(written.text, written.name), software=plain.software)
            one, other = (estimate(replace(which, hardware=device, document=None)) for which in (plain, found))
            assert (one.step_time_s, one.memory.total) == (other.step_time_s, other.memory.total), plan.document.name
            compared += 1
    assert compared > 4


def test_perfkits_own_dialect_loses_nothing():
    for plan in readable():
        written = write_config(plan, dialect="perfkit")
        assert written.lost == ()
        assert meaning(read_text(written.text, "x.toml")) == meaning(plan)


def test_mindformers_loses_nothing_of_its_own_files():
    for plan in readable():
        if plan.document.dialect == "mindformers":
            assert write_config(replace(plan, document=None), dialect="mindformers").lost == (), plan.document.name


def test_what_differs_is_all_that_changes():
    plan = config("pretrain_llama2_13b.yaml")
    parallel = replace(plan.parallel, pipeline_parallel_size=2, data_parallel_size=4, optimizer_shard_size=4)
    recompute = RecomputePlan(full_layers=((4, 0),), operators={r"feed_forward\.mul": ((20, 20),)})
    wanted = replace(plan, parallel=parallel, recompute=recompute)
    written = wanted.write()
    assert written.lost == ()
    removed = [line for line in written.diff().splitlines() if line.startswith("-") and not line.startswith("---")]
    assert {line.split(":")[0].strip("- ") for line in removed} <= {
        "data_parallel", "pipeline_stage", "micro_batch_num", "recompute", "select_recompute",
    }  # fmt: skip
    assert "  recompute: [4, 0]\n" in written.text
    assert "  select_recompute: ['feed_forward\\.mul']\n" in written.text


def test_a_script_changes_in_place():
    plan = config("pretrain_llama2_13b_megatron.sh")
    parallel = replace(
        plan.parallel, tensor_parallel_size=4, pipeline_parallel_size=4, data_parallel_size=2, optimizer_shard_size=1
    )
    written = replace(plan, parallel=parallel, recompute=RecomputePlan(all_layers=True)).write()
    assert written.lost == ()
    assert "NODES=4\n" in written.text
    assert "--tensor-model-parallel-size 4 \\\n" in written.text
    assert "--use-distributed-optimizer" not in written.text
    assert "--recompute-granularity full   # the attention core only" in written.text
    assert "DATA=${DATA:-./data/text_document}" in written.text


def test_toml_keeps_its_comments():
    plan = config("llama2_13b.toml")
    written = replace(plan, recompute=RecomputePlan(full_layers=((2, 0),))).write()
    assert written.lost == ()
    assert "# 4 layers of stage 0 in full" in written.text
    assert "full_layers = [[2, 0]]" in written.text
    assert "operators = {}" in written.text


def test_a_list_of_one_number_for_all_stages_says_what_it_costs():
    plan = config("llama2_13b.toml")
    written = write_config(plan, dialect="megatron")
    assert "--recompute-num-layers 4" in written.text
    assert any(line.startswith("recompute.full_layers: [[4, 0]], here [[4, 4]]") for line in written.lost)


def test_single_values_change_by_key_and_say_what_follows():
    plan = config("pretrain_llama2_13b.yaml")
    written = edit_config(plan.document, {"parallel_config.data_parallel": 4})
    assert len([line for line in written.diff().splitlines() if line.startswith("+ ")]) == 1
    assert any(note.startswith("the plan now needs 4 devices") for note in written.notes)
    with pytest.raises(InputError, match="pipeline_stage"):
        edit_config(plan.document, {"parallel_config.pipeline_stage": "two"})


def test_an_input_is_never_overwritten(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_bytes((ROOT / "data" / "configs" / "pretrain_llama2_13b.yaml").read_bytes())
    plan = read_config(path)
    with pytest.raises(InputError, match="never changed"):
        plan.write(path)
    plan.write(tmp_path / "b.toml", dialect="perfkit")
    assert meaning(read_config(tmp_path / "b.toml")) == meaning(plan)


def test_a_byte_order_mark_stays(tmp_path):
    path = tmp_path / "marked.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + (ROOT / "data" / "configs" / "pretrain_llama2_13b.yaml").read_bytes())
    assert read_config(path).write().to_bytes() == path.read_bytes()


def test_an_unknown_dialect_is_named_with_those_there_are():
    with pytest.raises(InputError, match=r"no dialect is called 'json'; there are .*mindformers"):
        write_config(config("llama2_13b.toml"), dialect="json")


@pytest.mark.parametrize("named", [True, False])
def test_an_export_keeps_the_device_that_its_file_names_and_adds_none_that_was_chosen_beside_it(named):
    device = catalog.hardware_named("Ascend-910B2")
    plan = replace(config("pretrain_llama2_13b.yaml"), hardware=device if named else None)
    again = read_text(write_config(plan, dialect="perfkit").text, "plan.toml")
    assert export_text(replace(again, hardware=device), "perfkit").text == "nothing changes"
