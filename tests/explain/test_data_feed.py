"""The tree of the data feed: the guide's four examples, what is not measured, and a real folder of MindSpore Insight."""

from __future__ import annotations

import pytest

from perfkit.core.errors import InputError, NotMeasuredError
from perfkit.core.resources import data_folder
from perfkit.core.run import Run
from perfkit.explain.data_feed import TIMER, judge_feed, longest_wait, operator_usage, step_intervals, usage_told
from perfkit.record.format import Sink
from perfkit.record.load import load

MS = 1_000_000
STEPS = 102


def made(
    *, interval_ms: float = 15, host: list[int] | None = None, device: list[int] | None = None, getnext_ms: float = 0, operators=()
) -> Run:
    sink = Sink()
    steps = list(range(1, STEPS + 1))
    count = len(steps)
    sink.add("steps", rank=[0] * count, step=steps, duration_ns=[100 * MS] * count, start_ns=[n * 100 * MS for n in steps])
    sink.add("step_parts", rank=[0] * count, step=steps, path=["free/data"] * count, amount_ns=[int(interval_ms * MS)] * count)
    sink.add(
        "step_parts", rank=[0] * count, step=steps, path=["computing"] * count, amount_ns=[int((100 - interval_ms) * MS)] * count
    )
    if getnext_ms:
        sink.add(
            "kernels",
            rank=[0] * count,
            step=steps,
            name=["GetNext"] * count,
            kind=["computing"] * count,
            duration_ns=[int(getnext_ms * MS)] * count,
        )
    for name, sizes in (("host", host), ("device", device)):
        if sizes is not None:
            sink.add(
                "queues",
                rank=[0] * len(sizes),
                step=steps[: len(sizes)],
                queue=[name] * len(sizes),
                size=sizes,
                capacity=[16] * len(sizes),
            )
    for operator, parent, size, capacity in operators:
        sink.add("queues", rank=[0], queue=["operator"], operator=[operator], parent=[parent], size=[size], capacity=[capacity])
    return Run(name="made", kind="measured", format="made", tables=sink.tables())


def sizes(empty: int, filled: int) -> list[int]:
    """Two steps that fill the pipeline, then `empty` steps that find nothing of 100."""
    return [0, 0, *([0] * empty), *([filled] * (100 - empty))]


def test_both_queues_empty_is_slow_processing():
    feed = judge_feed(made(host=sizes(90, 8), device=sizes(95, 8)), 0)
    assert (feed.cause, feed.queues) == ("processing", {"host": 0.9, "device": 0.95})
    assert any("between the operators" in text for text in feed.missing)


def test_a_full_host_queue_before_an_empty_device_is_slow_transfer():
    feed = judge_feed(made(host=sizes(0, 8), device=sizes(80, 8)), 0)
    assert feed.cause == "transfer"
    assert [branch.answer for branch in feed.path] == ["yes", "no", "no"]


def test_data_that_waits_and_a_long_getnext_blame_getnext():
    assert judge_feed(made(device=sizes(0, 16), getnext_ms=3), 0).cause == "getnext"
    assert judge_feed(made(device=sizes(0, 16), getnext_ms=0.5), 0).cause == "host"


def test_self_timed_code_of_12_of_15_ms_explains_the_interval():
    run = made(host=sizes(0, 8))
    feed = judge_feed(run, 0, custom_ns=12 * MS)
    assert feed.cause == "custom-code"
    assert "80" in feed.path[-1].measured
    assert judge_feed(run, 0, custom_ns=1 * MS).cause == "transfer"
    unknown = judge_feed(run, 0)
    assert (unknown.cause, len(unknown.missing)) == ("unknown", 1)


def test_short_intervals_are_healthy_even_with_empty_queues():
    assert judge_feed(made(interval_ms=1, host=sizes(90, 8), device=sizes(95, 8)), 0).cause == "healthy"


def test_the_first_two_steps_do_not_count():
    assert judge_feed(made(host=sizes(4, 8)), 0).queues["host"] == pytest.approx(0.04)


OPERATORS = [
    ("Map 1", "Batch 0", 10, 128),
    ("Map 2", "Map 1", 120, 128),
    ("TFReader 3", "Map 2", 126, 128),
]


def test_the_operator_between_a_full_and_an_empty_queue_is_named():
    feed = judge_feed(made(host=sizes(90, 8), device=sizes(95, 8), operators=OPERATORS), 0)
    assert feed.suspect == "Map 1"
    assert any("map" in action for action in feed.actions)


def test_the_source_is_named_where_nothing_arrives_and_the_last_where_all_is_full():
    low = [(name, parent, 2, capacity) for name, parent, _, capacity in OPERATORS]
    assert judge_feed(made(host=sizes(90, 8), operators=low), 0).suspect == "TFReader 3"
    full = [(name, parent, 120, capacity) for name, parent, _, capacity in OPERATORS]
    assert judge_feed(made(host=sizes(90, 8), operators=full), 0).suspect == "Batch 0"


def test_the_operator_that_is_marked_is_told_with_its_reason():
    feed = judge_feed(made(host=sizes(90, 8), device=sizes(95, 8), operators=OPERATORS), 0)
    assert usage_told(feed) == f"Map 1 is the slow one: {feed.path[-1].measured}."
    told = usage_told(judge_feed(load(data_folder() / "traces" / "mindinsight_feed"), 0))
    assert told.startswith("All queues are equally full; TFReader 2 is the slow one: as the source of the pipeline ")
    waits_little = judge_feed(made(interval_ms=1, host=sizes(0, 8), operators=OPERATORS), 0)
    assert usage_told(waits_little).startswith("Map 1 has the emptiest queue behind it: ")
    even = [(name, parent, 64, capacity) for name, parent, _, capacity in OPERATORS]
    assert usage_told(judge_feed(made(interval_ms=1, operators=even), 0)).endswith("are equally full: 50.0 %.")


def test_a_run_without_steps_and_a_negative_time_are_refused():
    with pytest.raises(NotMeasuredError):
        judge_feed(Run(name="none", kind="measured", format="made", tables={}), 0)
    with pytest.raises(InputError):
        judge_feed(made(), 0, custom_ns=-1)


def test_intervals_follow_from_kernels_where_the_profiler_states_none():
    sink = Sink()
    sink.add("steps", rank=[0], step=[1], duration_ns=[100], start_ns=[1000])
    sink.add(
        "kernels", rank=[0, 0], step=[1, 1], name=["a", "b"], kind=["computing"] * 2, start_ns=[1030, 1050], duration_ns=[5, 5]
    )
    run = Run(name="made", kind="measured", format="made", tables=sink.tables())
    assert step_intervals(run, 0)["interval_ns"].tolist() == [30]


@pytest.mark.parametrize("rounding_ns", [0, 1])
def test_a_step_that_was_cut_at_its_first_kernel_tells_no_interval(rounding_ns):
    sink = Sink()
    sink.add("steps", rank=[0], step=[1], duration_ns=[100], start_ns=[1000])
    sink.add("kernels", rank=[0], step=[1], name=["a"], kind=["computing"], start_ns=[1000 + rounding_ns], duration_ns=[5])
    with pytest.raises(NotMeasuredError, match="begin with it"):
        step_intervals(Run(name="made", kind="measured", format="made", tables=sink.tables()), 0)


def test_the_real_sample_waits_for_data_in_three_of_four_steps():
    """iteration_interval of step_trace_raw_0 in its unit of 10 ns: 0, 90,378,090, 90,305,730 and 90,329,560 ns."""
    run = load(data_folder() / "traces" / "mindinsight_feed")
    feed = judge_feed(run, 0)
    assert feed.intervals["interval_ns"].tolist()[:4] == [0, 90_378_090, 90_305_730, 90_329_560]
    assert (feed.queues, feed.cause, feed.suspect) == ({"host": 1.0}, "processing", "TFReader 2")
    usage = operator_usage(run.frame("queues", ranks=[0])).set_index("operator")["usage_ratio"]
    assert usage.to_dict() == {"Shuffle 1": 20 / 64, "TFReader 2": 20 / 64, "TFReader 3": 20 / 64}


def test_broken_queue_files_are_counted(tmp_path):
    source = data_folder() / "traces" / "mindinsight_feed"
    for file in source.glob("*_0*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "device_queue_profiling_0.txt").write_text("1 64 1 8\nrubbish\n1 64 -2 8\n1 64 2\n1 64 3 9999999999999\n")
    (tmp_path / "minddata_pipeline_raw_0.csv").write_text("op_id,op_type,output_queue_size\n1,Map,[1\n")
    run = load(tmp_path)
    dropped = {item.file.rpartition("/")[2]: item.count for item in run.dropped}
    assert dropped["device_queue_profiling_0.txt"] == 4
    assert dropped["minddata_pipeline_raw_0.csv"] == 1
    assert run.frame("queues")["size"].tolist() == [8]


def test_the_sample_is_slow_in_processing_and_names_the_source():
    feed = longest_wait(load(data_folder() / "traces" / "mindinsight_feed"))
    answer, *then = feed.told()
    assert answer.startswith("Processing the data is too slow: rank 0")
    assert "Start with TFReader 2: as the source of the pipeline it fills its queue to" in answer
    assert then
    assert feed.to_frame()["answer"].tolist()[:2] == ["yes", "yes"]


def test_steps_known_by_their_kernels_only_do_not_pass_for_a_good_feed():
    with pytest.raises(NotMeasuredError, match="steps are taken to begin with it") as raised:
        longest_wait(load(data_folder() / "traces" / "torch_npu_2rank"))
    assert "step trace" in raised.value.how_to_collect


def test_the_lines_that_time_own_code_are_code():
    compile(TIMER, "shown", "exec")
    assert "perf_counter_ns" in TIMER
