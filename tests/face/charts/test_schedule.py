"""The schedule picture: every nanosecond of work is drawn once, on its stage."""

from __future__ import annotations

from itertools import pairwise

import pytest

from perfkit.face.charts import schedule, spec, theme
from perfkit.predict.plans.schedule.schedule import ScheduleCase, simulate_schedule


def simulated(microbatches=8, mode="overlap", backward=20, stages=4):
    case = ScheduleCase(
        schedule="1f1b",
        num_stages=stages,
        num_microbatches=microbatches,
        fwd_ns=(tuple(10 + stage % 4 for stage in range(stages)),),
        bwd_ns=((backward,) * stages,),
        p2p_ns=3,
        p2p_mode=mode,
    )
    return simulate_schedule(case)


def drawn_ms(rows, stage, *activities):
    bars = rows["operations"]
    columns = (bars["stage"], bars["activity"], bars["start_ms"], bars["end_ms"])
    return sum(end - start for own, activity, start, end in zip(*columns, strict=True) if own == stage and activity in activities)


def test_bars_of_a_stage_sum_to_its_work_and_lanes_to_the_step():
    result = simulated()
    rows = schedule.schedule_rows(result.frame())
    for stage, busy_ns in enumerate(result.stage_busy_ns):
        assert drawn_ms(rows, stage, "forward", "backward") == pytest.approx(busy_ns / 1e6)
    assert set(rows["lanes"]["end_ms"]) == {result.makespan_ns / 1e6}


def test_recomputation_is_drawn_as_a_part_of_the_backward():
    result = simulated()
    rows = schedule.schedule_rows(result.frame(), [[5, 0, 0, 0]])
    assert drawn_ms(rows, 0, "recompute") == pytest.approx(8 * 5 / 1e6)
    assert drawn_ms(rows, 0, "backward") == pytest.approx(8 * 15 / 1e6)
    assert drawn_ms(rows, 1, "recompute") == 0


def test_blocking_transfers_are_drawn_on_both_stages():
    rows = schedule.schedule_rows(simulated(mode="rendezvous").frame())
    assert drawn_ms(rows, 0, "transfer") > 0
    assert drawn_ms(rows, 3, "transfer") > 0


def test_many_operations_are_reduced_and_keep_their_shares():
    result = simulated(microbatches=2_000)
    rows = {"operations": schedule.schedule_table(result.frame())}
    assert len(rows["operations"]["stage"]) <= schedule.MOST_BARS
    total = drawn_ms(rows, 3, "forward", "backward")
    assert total == pytest.approx(result.stage_busy_ns[3] / 1e6, rel=1e-6)


def test_a_picture_of_too_many_bars_is_that_of_the_slices():
    result = simulated(microbatches=200, stages=40)
    rows = schedule.schedule_rows(result.frame())
    assert rows["operations"] == schedule.schedule_table(result.frame())
    assert len(rows["operations"]["stage"]) <= schedule.MOST_BARS
    assert drawn_ms(rows, 3, "forward", "backward") == pytest.approx(result.stage_busy_ns[3] / 1e6, rel=1e-6)
    assert rows["cut"]["label"] == [""]


def test_a_longer_backward_changes_rows_and_no_structure():
    first, second = (
        spec.split(schedule.schedule_picture(schedule.schedule_rows(simulated(backward=time).frame()))) for time in (20, 40)
    )
    assert first.digest == second.digest
    assert first.datasets != second.datasets


def test_the_legend_names_what_is_drawn_and_another_activity_is_no_other_structure():
    operations = simulated().columns()
    again = [[5] * len(set(operations["stage"]))]
    first, second = (
        spec.split(schedule.schedule_picture(schedule.schedule_rows(operations, repeats))) for repeats in (None, again)
    )
    assert first.params["present"] == ["forward", "backward"]
    assert second.params["present"] == ["forward", "backward", "recompute"]
    assert first.digest == second.digest


def test_memory_is_stacked_in_gib_beside_its_limit():
    rows = schedule.memory_rows({"constant": [0, 0], "parameters": [2**30, 2**31], "activations": [2**30, 0]}, 3 * 2**30)
    assert rows["limit"] == [{"limit": 3.0, "label": "limit 3.00 GiB"}]
    assert sum(row["gib"] for row in rows["memory"] if row["stage"] == "0") == 2.0
    assert schedule.memory_rows({"constant": [0]}, None)["limit"] == []
    chart = spec.split(schedule.memory_bars(rows))
    assert set(chart.datasets) == {"memory", "limit"}


def test_numbers_of_micro_batches_are_dark_on_light_bars_and_light_on_dark_ones():
    rows = schedule.schedule_rows(simulated().frame())
    assert set(rows["labels"]["activity"]) == {"forward", "backward"}
    for activity in ("forward", "backward"):
        written = 0.0 if theme.is_light(schedule.ACTIVITIES[activity]) else 1.0
        low, high = sorted((written, theme.luminance(schedule.ACTIVITIES[activity])))
        assert (high + 0.05) / (low + 0.05) >= 4.5


def test_lanes_are_of_one_height_until_there_are_many():
    assert [schedule.picture_height(stages) for stages in (1, 4, 16, 64)] == [34, 136, 416, 640]


def drawn_bars(rows):
    """The bars that are drawn: stage, micro batch, and from where to where in ms, as the picture computes it."""
    cut = {column: values[0] for column, values in rows["cut"].items()}
    bars = []
    for stage, what, start, end in zip(
        *(rows["operations"][name] for name in ("stage", "what", "start_ms", "end_ms")), strict=True
    ):
        if start < cut["start_ms"] or end > cut["end_ms"]:
            begin = start if start <= cut["start_ms"] else max(start, cut["end_ms"]) - cut["duration_ms"]
            bars.append((stage, int(what), begin, end - cut["duration_ms"] if end >= cut["end_ms"] else min(end, cut["start_ms"])))
    return bars


@pytest.mark.parametrize("microbatches", [8, 17, 40, 128])
def test_of_many_micro_batches_the_first_and_the_last_are_drawn(microbatches):
    result = simulated(microbatches)
    rows = schedule.schedule_rows(result.frame())
    bars, (skipped_ms,), (left_out,) = drawn_bars(rows), rows["cut"]["duration_ms"], rows["cut"]["label"]
    assert len(schedule.schedule_table(result.frame())["stage"]) == len(result.frame()), "the table of the picture has them all"
    assert len(bars) == len(rows["operations"]["stage"]), "the browser is sent what is drawn"
    assert (skipped_ms > 0) == (microbatches > 17)
    assert int(left_out or 0) == microbatches - len({number for _, number, _, _ in bars})
    assert max(end for *_, end in bars) == pytest.approx(result.makespan_ns / 1e6 - skipped_ms)


def test_nothing_is_drawn_over_another_where_the_middle_is_left_out():
    by_stage = {}
    for stage, _, start, end in drawn_bars(schedule.schedule_rows(simulated(128).frame())):
        assert start < end
        by_stage.setdefault(stage, []).append((start, end))
    for spans in map(sorted, by_stage.values()):
        assert all(earlier[1] <= later[0] + 1e-9 for earlier, later in pairwise(spans))
