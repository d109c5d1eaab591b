"""One plan, one limit: whichever door is asked, it says the same number of bytes and who states it."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from perfkit import estimate, read_config
from perfkit.config.dialects.read import read_text
from perfkit.config.dialects.table import row_of
from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.spec.memory_limit import MemoryLimit
from perfkit.core.units import GIB, MIB
from perfkit.face.cli import main
from perfkit.predict.changes import changed_plan, limit_gib_of, on_device
from perfkit.predict.estimate import efficiency_of, estimate_table
from perfkit.predict.limits import with_limit
from perfkit.predict.memory.settings import PRESETS
from perfkit.predict.plans.balance.from_plan import balanced, problem_of_plan
from perfkit.predict.plans.search.search import search_plans
from perfkit.predict.simulate.run import prepare
from perfkit.predict.simulate.truth import truth
from perfkit.predict.unstated import read_table
from tests.predict.random_plans import random_plans

ROOT = Path(__file__).parents[2]
DEVICE = "Ascend-910B2"
CONFIGS = [
    *sorted((ROOT / "data" / "configs").glob("*.yaml")),
    *sorted((ROOT / "data" / "configs").glob("*.toml")),
    *sorted((ROOT / "data" / "configs").glob("*megatron.sh")),
    *sorted((ROOT / "data" / "case13b").glob("*.yaml")),
]
GUIDE = ROOT / "data" / "case13b" / "round4.yaml"


def plan_on(path, device=DEVICE):
    return replace(read_config(path), hardware=catalog.hardware_named(device))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
@pytest.mark.parametrize("own", [None, 31.5], ids=["own", "option"])
def test_every_door_gives_one_limit_and_one_source(path, own):
    plan = with_limit(plan_on(path), None if own is None else own * GIB, "--memory-limit-gib 31.5")
    found = estimate(plan).to_dict()
    answers = [found, search_plans(plan, top=1, choices={"mbs": (plan.workload.micro_batch_size,)}).to_dict()]
    if plan.parallel.pipeline_parallel_size > 1:
        problem = problem_of_plan(plan, efficiency_of(plan)).problem
        answers.append({name: getattr(problem, name) for name in ("memory_limit_bytes", "memory_limit_source")})
    assert len({(answer["memory_limit_bytes"], answer["memory_limit_source"]) for answer in answers}) == 1
    assert found["fits"] == (found["peak_memory_bytes"] <= found["memory_limit_bytes"])
    for best in answers[1]["plans"]:
        assert best["estimate"]["fits"]
        assert best["estimate"]["memory_limit_bytes"] == found["memory_limit_bytes"]
    stated = "max_device_memory" in path.read_text(encoding="utf-8")
    word = "--memory-limit-gib" if own else "max_device_memory" if stated else DEVICE
    assert word in found["memory_limit_source"]


def test_a_smaller_limit_fits_less_at_every_door():
    text = GUIDE.read_text(encoding="utf-8")
    counts = []
    for size in ("61GB", "58GB", "40GB", "20GB"):
        plan = replace(read_text(text.replace('"58GB"', f'"{size}"'), "x.yaml"), hardware=catalog.hardware_named(DEVICE))
        found = search_plans(plan, top=3)
        limit = int(size.removesuffix("GB")) * GIB
        assert found.memory_limit_bytes == limit
        assert all(item.estimate.peak_memory_bytes <= limit for item in found.plans)
        assert estimate(plan).fits == (estimate(plan).peak_memory_bytes <= limit)
        counts.append(found.feasible)
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[-1]


def test_the_13b_of_the_guides_is_split_into_two_stages_at_58gb():
    # The guide: without model slices, even Silu and Mul recomputed does not fit; the best is DP 8, PP 2 on two servers.
    for path in sorted((ROOT / "data" / "case13b").glob("round[1-5].yaml")):
        best = search_plans(plan_on(path), top=1).plans[0].plan.parallel
        assert (best.data_parallel_size, best.tensor_parallel_size, best.pipeline_parallel_size) == (8, 1, 2), path.name


def test_the_70b_stays_within_its_pool():
    plan = plan_on(ROOT / "data" / "configs" / "pretrain_llama2_70b_bf16_64p.yaml")
    found = search_plans(plan, top=5)
    assert found.memory_limit_bytes == 52 * 1024 * MIB
    assert found.plans
    for item in found.plans:
        parts = item.estimate.memory.parts
        assert item.estimate.memory.total - parts.get("reserved/context", 0) <= 52 * GIB


def test_commands_take_the_option_and_say_it(capsys):
    for words in (
        ["estimate", str(GUIDE), "--device", DEVICE, "--json"],
        ["plan", str(GUIDE), "--device", DEVICE, "--json"],
        ["balance", str(GUIDE), "--device", DEVICE, "--time-limit-s", "3", "--json"],
    ):
        for extra, limit, source in (
            ([], 58, "max_device_memory = 58GB"),
            (["--memory-limit-gib", "50"], 50, "--memory-limit-gib 50"),
        ):
            assert main([*words, *extra]) == 0
            found = json.loads(capsys.readouterr().out)
            assert found["memory_limit_bytes"] == limit * GIB
            assert source in found["memory_limit_source"]
            if words[0] == "balance":
                assert max(found["peak_bytes"]) <= limit * GIB


@pytest.mark.parametrize("limit", ["0", "-1", "70", "nan"])
@pytest.mark.parametrize("command", ["estimate", "plan", "balance"])
def test_a_limit_that_cannot_be_is_refused_with_the_option_and_its_value(command, limit, capsys):
    assert main([command, str(GUIDE), "--device", DEVICE, "--memory-limit-gib", limit]) == 2
    text = capsys.readouterr().err
    assert "--memory-limit-gib" in text
    assert "64" in text  # what the device has


def test_what_a_plan_leaves_open_is_listed_with_what_is_taken_for_it():
    plan = replace(plan_on(GUIDE), memory_limit=None)
    found = {entry["field"]: entry for entry in estimate(plan).to_dict()["assumed"]}
    assert found["memory_limit_bytes"]["value"] == 64 * GIB
    assert found["ffn_hidden_size"]["value"] == 13824
    assert found["parameter_dtype"]["value"] == "float16"
    assert all(entry["why"] for entry in found.values())
    stated = {entry["field"] for entry in estimate(plan_on(GUIDE)).to_dict()["assumed"]}
    assert "memory_limit_bytes" not in stated
    assert "framework" not in stated


def test_a_limit_above_another_device_is_told_with_file_and_line():
    with pytest.raises(InputError, match=r"round4.yaml, line 131, context.max_device_memory = 58GB"):
        plan_on(GUIDE, "A100-40GB-SXM")


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_what_lies_outside_of_the_pool_does_not_count_against_its_limit(path):
    plan = plan_on(path)
    whole, limited = estimate(replace(plan, memory_limit=None)), estimate(with_limit(plan, 60 * GIB))
    context = whole.memory.parts["reserved/context"]
    pool = limited.memory_limit.part == "pool"
    assert pool == (plan.software.framework != "megatron")
    assert limited.outside_pool_bytes == (context if pool else 0)
    assert limited.peak_memory_bytes == pytest.approx(whole.peak_memory_bytes - limited.outside_pool_bytes, abs=2)
    assert sum(limited.to_dict()["breakdown_bytes"].values()) == limited.peak_memory_bytes


def test_fragments_of_mindspore_are_the_mean_of_published_dry_runs():
    logs = ["guide.log", "sim_level1.log", "qwen2.5_7b/as_trained/rank_0.log", "qwen2.5_7b/full_recompute/rank_0.log"]
    shares = []
    for name in logs:
        text = (ROOT / "data" / "dryrun" / name).read_text(encoding="utf-8")
        without, whole = (int(re.search(rf"{words} fragments\): (\d+)M", text)[1]) for words in (r"\(without", r"\(with"))
        shares.append(whole / without - 1)
    assert PRESETS["mindspore"].fragmentation == pytest.approx(sum(shares) / len(shares), abs=0.002)


def test_an_optimum_of_the_balance_stays_within_the_pool_as_the_estimate_sees_it():
    plan = plan_on(GUIDE)
    found = problem_of_plan(plan, efficiency_of(plan))
    result = balanced(found, time_limit_s=5)
    assert max(result.peak_bytes) <= 58 * GIB
    predicted = estimate(found.plan_of(result.layout))
    assert predicted.fits
    assert predicted.peak_memory_bytes == max(result.peak_bytes)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_a_change_of_nothing_keeps_the_limit_of_the_configuration_and_its_answer(path):
    plan = plan_on(path)
    device = plan.hardware.name
    shown = changed_plan(read_config(path), device=device, limit_gib=limit_gib_of(plan))
    assert shown.usable_memory == plan_on(path, device).usable_memory
    assert shown.usable_memory.source == plan_on(path, device).usable_memory.source
    smaller = changed_plan(shown, limit_gib=20.0)
    assert smaller.usable_memory.limit_bytes == 20 * GIB
    assert smaller.usable_memory.source == "limit_gib = 20"


def test_another_device_drops_a_limit_that_it_cannot_hold():
    assert on_device(read_config(GUIDE), "A100-40GB-SXM").usable_memory.limit_bytes <= 40 * GIB
    assert on_device(read_config(GUIDE), "A100-80GB-SXM").usable_memory.limit_bytes == 58 * GIB


@pytest.mark.parametrize(
    ("line", "share", "limit_bytes"),
    [
        ("export PYTORCH_NPU_ALLOC_CONF=expandable_segments:True,per_process_memory_fraction:0.9", 0.9, None),
        ('export PYTORCH_CUDA_ALLOC_CONF="per_process_memory_fraction:0.8"', 0.8, None),
        ("export NPU_MEMORY_FRACTION=0.96", 0.96, None),
        ("export NPU_MEMORY=58GB", None, 58 * GIB),
    ],
)
def test_the_environment_of_a_launch_script_limits_the_pool(line, share, limit_bytes):
    script = (ROOT / "data" / "configs" / "pretrain_llama2_13b_megatron.sh").read_text(encoding="utf-8")
    plan = read_text(f"{line}\n{script}", "job.sh")
    assert (plan.memory_limit.device_share, plan.memory_limit.limit_bytes, plan.memory_limit.part) == (share, limit_bytes, "pool")
    assert plan.write().diff() == ""
    found = estimate(replace(plan, hardware=catalog.hardware_named("A100-80GB-SXM")))
    assert found.memory_limit.limit_bytes == (limit_bytes or int(share * 80 * GIB))
    assert "job.sh" in found.memory_limit.source
    assert "reserved/context" not in found.memory.parts


def test_limits_of_the_environment_that_are_wrong_or_contradict_are_told_together():
    script = (ROOT / "data" / "configs" / "pretrain_llama2_13b_megatron.sh").read_text(encoding="utf-8")
    with pytest.raises(InputError) as caught:
        read_text(f"export NPU_MEMORY_FRACTION=1.5\nexport NPU_MEMORY=58G\n{script}", "job.sh")
    assert [problem.split(":")[0] for problem in caught.value.problems] == ["NPU_MEMORY_FRACTION", "NPU_MEMORY"]
    with pytest.raises(InputError, match="contradict"):
        read_text(f"export NPU_MEMORY_FRACTION=0.9\nexport NPU_MEMORY=40GB\n{script}", "job.sh")


def test_a_simulation_says_the_same_limit_and_whether_it_would_run():
    plan = plan_on(GUIDE)
    for one in (plan, with_limit(plan, 20 * GIB, "an option")):
        document, predicted = truth(prepare(one, steps=1, ranks=(0,)), price=False), estimate(one)
        assert document["memory_limit_bytes"] == predicted.memory_limit.limit_bytes
        assert document["memory_limit_source"] == predicted.memory_limit.source
        assert document["fits"] == predicted.fits
        assert document["peak_memory_bytes"] == predicted.peak_memory_bytes


def test_a_table_takes_a_limit_as_the_option_does():
    frame = pd.read_csv(ROOT / "data" / "reference" / "step_time.csv", low_memory=False)
    frame = frame[frame["accelerator"].isin(["A100-80GB-SXM", "Ascend-910B2"])].groupby("accelerator").head(3)
    plans = read_table(frame.assign(memory_limit_bytes=40 * GIB)).plans
    assert len(plans)
    for row in range(len(plans)):
        plan = plans.plan(row)
        asked = with_limit(replace(plan, memory_limit=None), 40 * GIB)
        assert (plan.memory_limit.part, plan.memory_limit.limit_bytes) == (asked.memory_limit.part, 40 * GIB)


@pytest.mark.parametrize("framework", PRESETS)
@pytest.mark.parametrize("gib", [58, 61, 61.5, 64])
def test_a_pool_ends_where_what_lies_outside_of_it_begins(framework, gib):
    plan = plan_on(GUIDE)
    pool = MemoryLimit(limit_bytes=round(gib * GIB), part="pool", source="asked")
    plan = replace(plan, software=replace(plan.software, framework=framework), memory_limit=pool)
    found, outside = plan.usable_memory, PRESETS[framework].context_bytes
    assert found.limit_bytes == min(pool.limit_bytes, 64 * GIB - outside)
    assert found.source.startswith("asked")
    assert ("outside of the pool" in found.source) == (found.limit_bytes < pool.limit_bytes)
    predicted, problem = estimate(plan), problem_of_plan(plan, efficiency_of(plan)).problem
    assert predicted.memory_limit.limit_bytes == problem.memory_limit_bytes == found.limit_bytes
    assert not predicted.fits or predicted.peak_memory_bytes + predicted.outside_pool_bytes <= 64 * GIB


@pytest.mark.parametrize("part", ["pool", "device"])
def test_a_row_keeps_what_its_limit_counts(part):
    plans = []
    for index, plan in enumerate(random_plans(40, seed=11)):
        share = (0.3, 0.95, 1.0)[index % 3]
        limit = MemoryLimit(limit_bytes=int(share * plan.hardware.memory_bytes), part=part)
        limit = MemoryLimit(device_share=share, part=part) if index % 2 else limit
        plans.append(replace(plan, memory_limit=limit))
    frame = pd.read_csv(io.StringIO(pd.DataFrame(map(row_of, plans)).to_csv(index=False)))
    table, found = read_table(frame), estimate_table(frame)
    assert len(table.plans) == len(plans)
    assert found["note"].equals(estimate_table(frame.assign(memory_kind="static", memory_scope="first rank"))["note"])
    over = 0
    for row, plan in enumerate(plans):
        alone, again = estimate(plan), table.plans.plan(row)
        assert again.memory_limit == plan.memory_limit.of(plan.hardware.memory_bytes)
        assert again.usable_memory == plan.usable_memory
        assert found["peak_memory_bytes"][row] == pytest.approx(alone.peak_memory_bytes, abs=1)
        assert ("times its limit" in found["note"][row]) == (not alone.fits)
        over += not alone.fits
    assert 0 < over < len(plans)


def test_the_command_takes_its_options_for_tables_too(tmp_path, capsys):
    row = {
        "layers": 32,
        "hidden": 4096,
        "heads": 32,
        "ffn_hidden": 11008,
        "vocab": 32000,
        "seq_len": 4096,
        "dp": 8,
        "tp": 4,
        "pp": 2,
    }
    devices = ["", "A100-80GB-SXM"]
    path, target = tmp_path / "plans.csv", tmp_path / "found.jsonl"
    limits = {"memory_limit_bytes": 2 * GIB, "memory_limit_part": "pool"}
    pd.DataFrame([{**row, **limits, "accelerator": name} for name in devices]).to_csv(path, index=False)
    words = ["estimate", str(path), "--device", "ascend 910b2", "--memory-limit-gib"]
    assert main([*words, "10", "--json"]) == 0
    text = capsys.readouterr().out
    found = [json.loads(line) for line in text.splitlines()]
    assert main([*words, "10", "--json", "--out", str(target)]) == 0
    assert target.read_text(encoding="utf-8") == text
    for one, device, part in zip(found, [DEVICE, devices[1]], ["pool", "device"], strict=True):
        limited = {**row, "accelerator": device, "memory_limit_bytes": "10GB", "memory_limit_part": part}
        alone = estimate_table(pd.DataFrame([limited])).iloc[0]
        assert one["step_time_s"] == pytest.approx(alone["step_time_s"])
        assert one["peak_memory_bytes"] == alone["peak_memory_bytes"] > 10 * GIB
        assert re.search(r"needs \d\.\d\d times its limit \(--memory-limit-gib 10\)", one["note"])
    assert main([*words, "60"]) == 0
    assert "times its limit" not in capsys.readouterr().out
    assert main([*words, "70"]) == 0
    assert "--memory-limit-gib 70: a memory limit of 70.0 GiB is more than Ascend-910B2 has" in capsys.readouterr().out
    for wrong in ("0", "-1", "nan"):
        assert main([*words, wrong]) == 2
        assert "--memory-limit-gib" in capsys.readouterr().err
    assert main(["estimate", str(path), "--device", "Ascend-910B9"]) == 2


@pytest.mark.parametrize("limit", ["58G", "0GB", "many", [58], True, 0])
def test_a_search_refuses_what_can_be_no_limit(limit):
    with pytest.raises(InputError, match="memory_limit_bytes"):
        search_plans(plan_on(GUIDE), memory_limit_bytes=limit)


def test_a_search_takes_a_limit_as_a_size():
    assert search_plans(plan_on(GUIDE), memory_limit_bytes="50GB", top=1).memory_limit.limit_bytes == 50 * GIB
