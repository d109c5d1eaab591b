"""What a row leaves open is solved as the strategy search would, and is the same through every door."""

import io
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest

import perfkit
from perfkit.config.dialects.table import OPEN, row_of, with_options
from perfkit.core.errors import InputError
from perfkit.core.spec.recompute import RecomputePlan
from perfkit.face.cli._asked import asked_plan
from perfkit.predict.memory.memory import peak_memory
from perfkit.predict.reading import read_text
from perfkit.predict.unstated import read_table

ROW = {"layers": 32, "hidden": 4096, "heads": 32, "ffn_hidden": 11008, "vocab": 32000, "seq_len": 4096, "n_devices": 16}
ROW |= {"dp": 4, "tp": 2, "pp": 2, "global_batch": 128, "accelerator": "H100-80GB-SXM", "framework": "megatron-core"}
COLUMNS = {"micro_batch_size": "micro_batch", "virtual_pipeline_parallel_size": "vpp", "recompute": "recompute"}
STATED = {"micro_batch": 1, "vpp": 1, "recompute": "none"}


def variants():
    """Rows that leave one, two or three fields open, on devices on which all, some and none of the ways fit."""
    for device in ("H100-80GB-SXM", "A100-40GB-SXM", "V100-32GB-SXM", "V100-16GB-SXM"):
        precision = "fp16" if device.startswith("V100") else "bf16"
        for left in (OPEN, OPEN[:1], OPEN[1:2], OPEN[2:], OPEN[1:]):
            stated = {name: value for name, value in STATED.items() if name not in {COLUMNS[one] for one in left}}
            yield ROW | stated | {"accelerator": device, "precision": precision}


@cache
def solved():
    rows = list(variants())
    return rows, read_table(pd.DataFrame(rows))


def test_a_row_that_states_everything_leaves_nothing_open():
    table = read_table(pd.DataFrame([ROW | STATED]))
    assert not any(flags.any() for flags in table.is_open.values())
    assert table.plans.plan(0).workload.micro_batch_size == 1


def test_no_combination_of_what_a_search_tries_is_faster_and_fits():
    rows, table = solved()
    beaten = 0
    for place, row in enumerate(rows):
        plan = table.plans.plan(place)
        own = perfkit.estimate(plan)
        if not own.fits:
            continue
        choices = {"tp": (2,), "cp": (1,), "pp": (2,), "zero": (0,), "sp": (0,)}
        choices |= {"mbs": (1,) if "micro_batch" in row else (1, 2, 4, 8), "vpp": (1,) if "vpp" in row else (1, 2, 4, 8)}
        choices |= {"recompute": ("none",) if "recompute" in row else ("none", "full")}
        found = perfkit.search_plans(plan, choices=choices, top=1).plans[0].estimate
        assert own.step_time_s <= found.step_time_s * (1 + 1e-9), row
        beaten += own.step_time_s < perfkit.estimate_table(pd.DataFrame([STATED | row])).step_time_s[0]
    assert beaten >= 4


def test_one_layer_less_in_full_does_not_fit():
    rows, table = solved()
    tried = 0
    for place, row in enumerate(rows):
        plan = table.plans.plan(place)
        full = max(map(max, plan.recompute.full_layers)) if plan.recompute.full_layers else 0
        if full < 1 or not perfkit.estimate(plan).fits:
            continue
        tried += 1
        fewer = tuple(tuple(min(full - 1, count) for count in counts) for counts in plan.stage_layers)
        less = RecomputePlan(full_layers=fewer if full > 1 else ())
        assert peak_memory(replace(plan, recompute=less)).peak.total > plan.usable_memory.limit_bytes, row
    assert tried >= 2


def test_every_door_gives_the_same_plan_time_and_memory():
    rows, table = solved()
    for place, row in enumerate(rows):
        frame = pd.DataFrame([row])
        text = frame.to_csv(index=False)
        plan = read_text(text, "row.csv")
        one, many = perfkit.estimate(plan), perfkit.estimate_table(pd.read_csv(io.StringIO(text)))
        stated = perfkit.estimate_table(pd.DataFrame([row_of(table.plans.plan(place))]))
        for times in (many, stated):
            assert times.step_time_s[0] == pytest.approx(one.step_time_s, rel=1e-9)
            assert times.peak_memory_bytes[0] == pytest.approx(one.peak_memory_bytes, rel=1e-9)
        told = {item.field: item.why for item in one.assumed}
        for name, column in COLUMNS.items():
            said = [field for field in told if field == column or (column == "recompute" and field == "full_layers")]
            assert (column not in row) == (len(said) == 1 and told[said[0]] in ("the fastest that fits", "as nothing fits")), name
            assert all(f"{field} = " in many.note[0] for field in said)


def test_the_calibration_does_not_change_the_plan():
    row = pd.DataFrame([ROW])
    default, other = (perfkit.estimate_table(row, calibration=name) for name in ("default", "bigscience"))
    assert default.peak_memory_bytes[0] == other.peak_memory_bytes[0]
    assert default.step_time_s[0] != other.step_time_s[0]


def test_programs_without_chunks_have_one():
    rows = pd.DataFrame([ROW | {"framework": name} for name in ("megatron-deepspeed", "megatron-core")])
    table = read_table(rows)
    assert table.plans.virtual_pipeline_parallel_size.tolist() == [1.0, 8.0]
    assert not any("vpp" in note for note in table.assumed[0])


def test_a_row_that_cannot_be_priced_says_why_as_before():
    table = perfkit.estimate_table(pd.DataFrame([ROW | {"accelerator": "V100-32GB-SXM", "precision": "bf16"}]))
    assert np.isnan(table.step_time_s[0])
    assert "bfloat16" in table.note[0]


def test_what_contradicts_itself_is_told_by_every_door():
    text = pd.DataFrame([ROW | {"global_batch": 6}]).to_csv(index=False)
    with pytest.raises(InputError, match="global_batch"):
        read_text(text, "row.csv")


def test_a_pasted_row_has_the_peak_of_its_estimate():
    text = pd.DataFrame([ROW]).to_csv(index=False)
    found = perfkit.explain_fragment(text)
    (peak,) = [one.value for part in found.parts for one in part.figures if one.name == "peak memory of a device"]
    assert peak == perfkit.estimate(read_text(text, "row.csv")).peak_memory_bytes


def test_a_limit_beside_the_row_is_the_one_that_is_kept(tmp_path):
    frame = pd.DataFrame([ROW])
    frame.to_csv(tmp_path / "row.csv", index=False)
    plans = [asked_plan(str(tmp_path / "row.csv"), [], limit) for limit in (None, "60")]
    table = perfkit.estimate_table(with_options(frame, limit_bytes=60 * 2**30))
    found = [perfkit.estimate(plan) for plan in plans]
    assert found[1].peak_memory_bytes == table.peak_memory_bytes[0] < found[0].peak_memory_bytes
    assert found[1].step_time_s == pytest.approx(table.step_time_s[0], rel=1e-9)
    assert len({item.field for item in found[1].assumed}) == len(found[1].assumed)


def test_rows_that_state_the_same_are_solved_as_each_alone():
    rows, table = solved()
    many = read_table(pd.DataFrame([*rows, *reversed(rows), *({"model": "another name"} | row for row in rows)]))
    numbers = range(len(rows))
    for place, row in enumerate((*numbers, *reversed(numbers), *numbers)):
        found, alone = many.plans.plan(place), table.plans.plan(row)
        assert replace(found, model=alone.model) == alone
        assert many.assumed[place] == table.assumed[row]
    assert {one.micro_batch_size for one in (many.plans.plan(place).workload for place in numbers)} > {1}, "they do not all agree"
