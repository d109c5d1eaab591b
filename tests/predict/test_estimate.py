"""Estimates of plans and tables: the same number both ways, every bad row explained, nothing infinite."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfkit.config.dialects import read_config
from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.recompute import RecomputePlan
from perfkit.core.spec.workload import Workload
from perfkit.face import cli
from perfkit.predict.estimate import COLUMNS, estimate, estimate_table, estimates

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "data" / "reference" / "step_time.csv"
CONFIG = ROOT / "data" / "configs" / "pretrain_llama2_7b.yaml"
NUMBERS = ["step_time_s", "tokens_per_s_per_device", "mfu", "hfu", "peak_memory_bytes"]
ROW = {
    "row_id": "mine",
    "layers": 32,
    "hidden": 4096,
    "heads": 32,
    "ffn_hidden": 11008,
    "vocab": 32000,
    "activation": "swiglu",
    "accelerator": "A100-80GB-SXM",
    "n_devices": 64,
    "dp": 8,
    "tp": 4,
    "pp": 2,
    "micro_batch": 1,
    "global_batch": 256,
    "seq_len": 4096,
    "precision": "bf16",
    "recompute": "none",
    "attention_kernel": "flash",
}


def one(**changes):
    return estimate_table(pd.DataFrame([{**ROW, **changes}]), memory=False).iloc[0]


@pytest.fixture(scope="module")
def plan():
    return replace(read_config(CONFIG), hardware=catalog.hardware_named("Ascend-910B2"))


def test_a_table_comes_back_in_its_order_with_the_fixed_columns():
    frame = pd.read_csv(TABLE).sample(40, random_state=1)
    found = estimate_table(frame, memory=False)
    assert list(found.columns) == list(COLUMNS)
    assert found["row_id"].tolist() == frame["row_id"].tolist()


def test_column_order_and_extra_columns_do_not_matter():
    frame = pd.read_csv(TABLE).head(30)
    mixed = frame[sorted(frame.columns, reverse=True)].assign(extra="<img src=x onerror=alert(1)>")
    pd.testing.assert_frame_equal(estimate_table(frame, memory=False), estimate_table(mixed, memory=False))


def test_numbers_are_finite_or_empty_with_a_reason():
    found = estimate_table(pd.read_csv(TABLE), memory=False)
    numbers = found[NUMBERS[:4]].to_numpy(dtype=float)
    assert not np.isinf(numbers).any()
    empty = np.isnan(numbers).any(axis=1)
    assert (found["note"][empty].str.len() > 0).all()
    assert (numbers[~empty] > 0).all()


def test_a_row_has_the_memory_of_its_plan():
    found = estimate_table(pd.read_csv(TABLE).head(2))
    assert (found["peak_memory_bytes"] > 1e9).all()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"heads": 30}, "heads = 30 is not divisible by tp = 4; nearest is 3 or 5"),
        ({"layers": 1}, "2 pipeline chunks for 1 layers leave chunks empty; stages x chunks can be 1 at most"),
        ({"n_devices": 48}, "n_devices = 48 is not dp 8 x tp 4 x pp 2 x cp 1 = 64; nearest is dp = 6"),
        ({"n_devices": 63}, "tp x pp x cp = 8 must divide 63; nearest is n_devices = 56 or 64"),
        ({"global_batch": 250}, "global_batch = 250 is not divisible by"),
        ({"experts": 8, "experts_per_token": 2, "ep": 3}, "ep = 3 does not divide dp x cp = 8; nearest is 2 or 4"),
        ({"accelerator": "A100-80GB-SXN"}, "nearest are A100-80GB-SXM"),
        ({"accelerator": ""}, "accelerator is not stated"),
        ({"precision": "fp8"}, "has no peak for dtype 'float8'; known are bfloat16, float16"),
        ({"hidden": None}, "hidden is not stated"),
        ({"hidden": "wide"}, "hidden = 'wide' is not a number"),
        ({"tp": 0}, "tp = 0 must be a whole number"),
        ({"layers": 1e300}, "must be a whole number from 1"),
        ({"layers": 10**6, "vpp": 1000}, "layers = 1000000 must be at most 10000"),
        ({"layers": None, "pp": 10**12, "dp": 10**6}, "pp x vpp = 1000000000000 must be at most 10000"),
        ({"seq_len": float("inf")}, "seq_len = inf must be finite"),
        ({"attention_kernel": "fast"}, "attention_kernel = 'fast' must be one of flash, unfused; nearest is flash"),
        ({"memory_kind": "alocated"}, "memory_kind = 'alocated' must name one of"),
        ({"memory_kind": "alocated"}, "nearest is allocated"),
        ({"memory_scope": "frist stage"}, "memory_scope = 'frist stage' must name one of"),
        ({"accelerator": "TPU-v3", "n_devices": 2048, "dp": 256}, "links.inter_node is not stated"),
    ],
)
def test_an_impossible_row_is_empty_and_says_why(changes, reason):
    found = one(**changes)
    assert found[NUMBERS].isna().all()
    assert reason in found["note"]


def test_experts_spread_over_the_tensor_group_that_does_not_split_them():
    mixed = {"experts": 8, "experts_per_token": 2, "dp": 1, "tp": 4, "n_devices": 8, "ep": 2}
    assert one(**mixed)["step_time_s"] == one(**mixed, expert_tensor_parallel=2)["step_time_s"] > 0
    assert "ep = 2 does not divide dp x cp x tp / expert_tensor_parallel = 4 / 4" in one(**mixed, expert_tensor_parallel=4)["note"]


def test_all_reasons_are_given_at_once():
    note = one(heads=30, layers=1, global_batch=250, accelerator="none")["note"]
    assert [part in note for part in ("heads = 30", "for 1 layers", "global_batch = 250", "accelerator = 'none'")] == [True] * 4


def test_a_precision_that_the_device_lacks_is_told_beside_missing_sizes():
    note = one(layers=None, accelerator="V100-32GB-SXM", precision="bf16", heads=30)["note"]
    parts = ("layers is not stated", "heads = 30", "V100-32GB-SXM has no peak for dtype 'bfloat16'; known are float16")
    assert [part in note for part in parts] == [True] * 3
    assert "hardware is not named" not in one(layers=None, accelerator="X900", precision="fp6")["note"]


def test_what_is_not_stated_is_assumed_and_told():
    found = one(tp=None, pp=None, dp=None, micro_batch=None)
    assert found["step_time_s"] > 0
    assert "assumed: tp = 1; pp = 1; " in found["note"]
    assert "micro_batch = 1, as nothing fits" in found["note"]


def test_a_table_without_a_needed_column_is_refused_with_all_of_them():
    with pytest.raises(InputError) as caught:
        estimate_table(pd.DataFrame({"row_id": ["a"]}))
    assert len(caught.value.problems) == 7


SIZES = st.one_of(
    st.integers(-1, 8), st.sampled_from([16, 64, 96, 128, 1000, 4096, 10**6, 10**12, 0.5, None, "many", np.nan, np.inf])
)
KEPT = ("row_id", "accelerator", "activation", "precision", "recompute", "attention_kernel")


@settings(max_examples=40, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from([*(set(ROW) - set(KEPT)), "cp", "vpp", "ep", "experts"]), SIZES), min_size=8))
def test_whatever_a_row_states_its_numbers_are_finite_or_empty_with_a_reason(changes):
    found = estimate_table(pd.DataFrame([{**ROW, **change} for change in changes], dtype=object))
    numbers = found[NUMBERS].to_numpy(dtype=float)
    assert not np.isinf(numbers).any()
    step = numbers[:, :4]
    assert (np.isnan(step).all(axis=1) | (step > 0).all(axis=1)).all()
    assert (found["note"][np.isnan(numbers).any(axis=1)].str.len() > 0).all()


def test_case_and_spaces_of_what_is_counted_do_not_matter():
    words = [("static", "last rank"), (" STATIC ", " Last Rank "), ("", "")]
    rows = [{**ROW, "memory_kind": kind, "memory_scope": scope} for kind, scope in words]
    first, same, usual = estimate_table(pd.DataFrame(rows))["peak_memory_bytes"]
    assert first == same < usual


def test_a_column_that_nearly_has_a_known_name_is_told_once():
    notes = estimate_table(pd.DataFrame([{**ROW, "zero_stge": 3}] * 2), memory=False)["note"]
    assert list(notes.str.contains("column 'zero_stge' is not read; did you mean 'zero_stage'?", regex=False)) == [True, False]


def test_two_columns_of_row_names_are_refused():
    frame = pd.DataFrame([[*ROW.values(), "other"]], columns=[*ROW, "row_id"])
    with pytest.raises(InputError, match="2 columns are named 'row_id'"):
        estimate_table(frame)


def test_no_plans_have_no_estimates():
    assert estimates([]) == []


def test_an_empty_table_gives_an_empty_table():
    assert estimate_table(pd.DataFrame([ROW]).head(0), memory=False).empty


def test_more_devices_with_the_same_work_each_are_never_faster():
    speeds = [one(n_devices=8 * n, dp=n, global_batch=32 * n)["tokens_per_s_per_device"] for n in (1, 8, 64, 512)]
    assert speeds == sorted(speeds, reverse=True)


def test_an_estimate_states_its_parts_interval_and_sources(plan):
    found = estimate(plan)
    assert found.breakdown.total == pytest.approx(found.step_time_s)
    assert found.interval_s[0] < found.step_time_s < found.interval_s[1]
    document = json.loads(json.dumps(found.to_dict()))
    assert sum(document["breakdown_bytes"].values()) == pytest.approx(document["peak_memory_bytes"], rel=1e-6)
    quantities = {entry["quantity"] for entry in document["sources"]}
    assert quantities >= {"step_time_s", "efficiencies", "peak_memory_bytes", "memory_bytes_per_s", "links.intra_node"}


def test_a_calibration_changes_the_estimate(plan):
    assert estimate(plan, calibration="mindformers").step_time_s != estimate(plan).step_time_s


def test_command_predicts_configurations(capsys):
    assert cli.main(["estimate", str(CONFIG), "--device", "Ascend-910B2"]) == 0
    assert "a step (80 % between" in capsys.readouterr().out
    assert cli.main(["estimate", str(CONFIG), "--device", "Ascend-910B2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["step_time_s"] > 0


def test_command_predicts_a_table(tmp_path, capsys):
    out = tmp_path / "pred.csv"
    table = tmp_path / "table.csv"
    pd.read_csv(TABLE).head(5).to_csv(table, index=False)
    assert cli.main(["estimate", str(table), "--out", str(out)]) == 0
    assert list(pd.read_csv(out).columns) == list(COLUMNS)
    assert cli.main(["estimate", str(table)]) == 0
    assert len(pd.read_csv(io.StringIO(capsys.readouterr().out.split("\n", 1)[1]))) == 5


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [("missing.csv", None, "does not exist"), ("empty.csv", "", "not a table"), ("latin.csv", b"row_id,\xe9\n1,2\n", "not UTF-8")],
)
def test_command_names_what_is_wrong_with_a_table(tmp_path, capsys, name, content, reason):
    if content is not None:
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    assert cli.main(["estimate", str(tmp_path / name)]) == 2
    assert reason in capsys.readouterr().err


def test_command_never_writes_over_its_input(tmp_path, capsys):
    table = tmp_path / "table.csv"
    pd.DataFrame([ROW]).to_csv(table, index=False)
    before = table.read_bytes()
    assert cli.main(["estimate", str(table), "--out", str(table)]) == 2
    assert table.read_bytes() == before
    assert "names the input itself" in capsys.readouterr().err


def test_command_without_a_device_asks_for_one(capsys):
    assert cli.main(["estimate", str(CONFIG)]) == 2
    assert "hardware is not named" in capsys.readouterr().err


OWN_DEVICE = """
[Mine]
peak_flops_per_s = { bfloat16 = 500e12, float16 = 500e12 }
memory_bytes = 80_000_000_000
memory_bytes_per_s = 3e12
links.intra_node = { bytes_per_s = 300e9, topology = "switch" }
links.inter_node = { bytes_per_s = 50e9, topology = "network" }
"""


def test_command_takes_devices_of_the_users_own(tmp_path, capsys):
    own = tmp_path / "hardware.toml"
    own.write_text(OWN_DEVICE, encoding="utf-8")
    assert cli.main(["estimate", str(CONFIG), "--device", "Mine", "--hardware", str(own), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["step_time_s"] > 0
    table = tmp_path / "table.csv"
    pd.DataFrame([{**ROW, "accelerator": "mine"}]).to_csv(table, index=False)
    assert cli.main(["estimate", str(table), "--hardware", str(own)]) == 0
    assert "not in the catalogue" not in capsys.readouterr().out


def test_a_file_of_devices_names_the_table_that_lacks_numbers(tmp_path, capsys):
    own = tmp_path / "hardware.toml"
    own.write_text("[Mine]\nmemory_bytes = 1\n", encoding="utf-8")
    assert cli.main(["estimate", str(CONFIG), "--device", "Mine", "--hardware", str(own)]) == 2
    assert "Mine: needs peak_flops_per_s" in capsys.readouterr().err


LONG = {"seq_len": 32768, "dp": 2, "cp": 4, "kv_heads": 8, "tp": 2, "pp": 4, "sequence_parallel": 1}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"cp_algorithm": "ulysses"}, "kv_heads = 8 is not divisible by tp 4 x 4 ranks"),
        ({"cp_algorithm": "hybrid", "ulysses_size": 3}, "ulysses_size = 3 does not divide cp = 4; nearest is 2 or 4"),
        ({"cp_algorithm": "zigzag"}, "cp_algorithm = 'zigzag' must be one of ring, ulysses, hybrid"),
        (
            {"sequence_chunks": 3},
            "seq_len = 32768 is not divisible by sequence_chunks = 3; nearest is 2 or 4",
        ),
        ({"zero_stage": 1, "optimizer_shard_size": 3}, "optimizer_shard_size = 3 does not divide dp x cp = 8; nearest is 2 or 4"),
        ({"optimizer": "lion"}, "optimizer = 'lion' must be one of"),
    ],
)
def test_an_impossible_setting_of_a_long_sequence_says_why(changes, reason):
    found = one(**{**LONG, **({"tp": 4, "pp": 2} if changes.get("cp_algorithm") == "ulysses" else {}), **changes})
    assert found[NUMBERS].isna().all()
    assert reason in found["note"]


def test_columns_may_have_the_names_that_configurations_use():
    names = {"layers": "num_layers", "hidden": "Hidden Size", "heads": "num_attention_heads", "tp": "tensor_model_parallel_size"}
    names |= {"micro_batch": "micro-batch-size", "n_devices": "world_size", "seq_len": "seq_length", "accelerator": "device"}
    usual = pd.DataFrame([ROW])
    pd.testing.assert_frame_equal(estimate_table(usual), estimate_table(usual.rename(columns=names)))


def test_memory_is_of_the_plan_whose_step_was_predicted():
    stated, left_out = pd.DataFrame([ROW]), pd.DataFrame([{**ROW, "dp": None}])
    assert estimate_table(left_out)["peak_memory_bytes"].iloc[0] == estimate_table(stated)["peak_memory_bytes"].iloc[0]


SIZE = st.sampled_from([1, 2, 4, 8])
SEARCHED = {
    "data_parallel_size": SIZE,
    "tensor_parallel_size": SIZE,
    "pipeline_parallel_size": SIZE,
    "virtual_pipeline_parallel_size": st.sampled_from([1, 1, 2]),
    "context_parallel_size": st.sampled_from([1, 1, 2, 4]),
    "expert_parallel_size": SIZE,
    "sequence_parallel": st.booleans(),
    "optimizer_shard_size": SIZE,
    "optimizer_shard_level": st.sampled_from([1, 2, 3]),
    "context_parallel_algorithm": st.sampled_from(["ring", "ulysses", "hybrid"]),
    "ulysses_size": st.sampled_from([0, 1, 2]),
    "sequence_chunks": st.sampled_from([1, 1, 2]),
}
RECOMPUTED = st.sampled_from(["none", "all", "core", "lists", "swap"])


@settings(max_examples=150, deadline=None)
@given(
    st.data(),
    st.fixed_dictionaries(SEARCHED),
    RECOMPUTED,
    st.sampled_from(["llama2-7b", "mixtral-8x7b", "deepseek-v2", "gpt-1.7b"]),
)
def test_whatever_a_plan_says_its_estimate_is_finite_or_refused_with_reasons(data, sizes, kind, model):
    micro_batch = data.draw(SIZE)
    batch = micro_batch * sizes["data_parallel_size"] * data.draw(SIZE)
    try:
        work = Workload(
            seq_length=data.draw(st.sampled_from([7, 512, 131072])), micro_batch_size=micro_batch, global_batch_size=batch
        )
        plan = Plan(
            model=catalog.model(model),
            workload=work,
            parallel=ParallelPlan(**sizes),
            hardware=catalog.hardware_named("H100-80GB-SXM"),
        )
        counts = tuple(tuple(data.draw(st.integers(0, layers + 1)) for layers in row) for row in plan.stage_layers)
        recompute = {
            "none": RecomputePlan(),
            "all": RecomputePlan(all_layers=True),
            "core": RecomputePlan(attention_core=True),
            "lists": RecomputePlan(full_layers=counts, operators={r"feed_forward\.mul": plan.stage_layers}, communication=counts),
            "swap": RecomputePlan(swapped_layers=counts),
        }
        found = estimate(replace(plan, recompute=recompute[kind]))
    except InputError:
        return
    document = found.to_dict()
    assert all(0 < document[name] < np.inf for name in ("step_time_s", "step_time_high_s", "mfu", "hfu", "peak_memory_bytes"))
    assert all(0 <= amount < np.inf for part in ("breakdown_s", "breakdown_bytes") for amount in document[part].values())
    assert found.hfu >= found.mfu * (1 - 1e-9)
