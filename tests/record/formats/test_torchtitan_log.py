"""torchtitan logs: a printed excerpt, fields in any order, several ranks in one file, and what no step time means for others."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfkit.core.errors import InputError, NotMeasuredError
from perfkit.explain.training_log import step_statistics, timed
from perfkit.record.load import load

SAMPLE = Path(__file__).parents[2] / "data" / "traces" / "logs" / "torchtitan" / "mi355x_excerpt.log"
LINE = "2025-01-02 03:04:05,678 - root - INFO - step: {step}  loss: 7.5  memory: 1.5GiB(2%)  tps: {tps}  tflops: 1,000.5  mfu: 9%\n"


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "train.log"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_excerpt_gives_what_it_prints():
    run = load(SAMPLE)
    assert run.format == "torchtitan-log"
    log = run.frame("log")
    assert log["step"].tolist() == [1, 8]
    assert log["line"].tolist() == [4, 5]
    assert log["loss"].tolist() == [7.58945, 6.48329]
    assert log["gradient_norm"].tolist() == [9.3716, 3.6826]
    assert log["tokens_per_s_per_device"].tolist() == [68, 24468]
    assert log["flops_per_s_per_device"].tolist() == pytest.approx([0.02e12, 7.16e12])
    assert log["num_steps"].tolist() == [1, 7]
    assert log["duration_ns"].isna().all()
    assert not run.has("steps")
    assert any("no step times" in note for note in run.notes)


def test_without_a_step_time_statistics_say_that_it_is_not_measured():
    log = load(SAMPLE).frame("log")
    with pytest.raises(NotMeasuredError, match="rates, not times"):
        timed(log)
    with pytest.raises(NotMeasuredError, match="rates, not times"):
        step_statistics(log, 0)


def test_memory_is_the_largest_reserved_when_the_line_says_its_time(tmp_path: Path):
    run = load(written(tmp_path, LINE.format(step=1, tps="1,234")))
    row = run.frame("memory_curve").iloc[0]
    assert (row["time_ns"], row["reserved_bytes"]) == (1735787045678000000, 3 * 2**29)
    assert run.frame("log")["timestamp_ns"].tolist() == [1735787045678000000]
    assert run.frame("log")["flops_per_s_per_device"].tolist() == [1000.5e12]


def test_fields_are_found_in_any_order_and_in_colour(tmp_path: Path):
    run = load(written(tmp_path, "\x1b[31mstep: 3\x1b[0m  tps: 10  \x1b[32mgrad_norm: 0.5\x1b[0m  loss: nan  lr: 1e-4\n"))
    row = run.frame("log").iloc[0]
    assert (row["step"], row["tokens_per_s_per_device"], row["gradient_norm"], row["learning_rate"]) == (3, 10, 0.5, 1e-4)
    assert any("nan or inf" in note for note in run.notes)


def test_of_several_ranks_in_one_file_one_is_read(tmp_path: Path):
    lines = "".join(f"[rank{rank}]:{LINE.format(step=step, tps=100 + rank)}" for step in (1, 2) for rank in (1, 0, 2))
    run = load(written(tmp_path, lines))
    assert run.frame("log")["tokens_per_s_per_device"].tolist() == [100, 100]
    assert any("4 step lines of 2 other rank(s)" in note for note in run.notes)


def test_a_torn_line_is_counted(tmp_path: Path):
    run = load(written(tmp_path, LINE.format(step=1, tps=5) + "step: 2  loss: 7.\n"))
    assert run.frame("log")["step"].tolist() == [1]
    assert sum(lost.count for lost in run.dropped) == 1


def test_lines_without_rates_are_no_torchtitan_log(tmp_path: Path):
    with pytest.raises(InputError, match="no known format"):
        load(written(tmp_path, "step: 1  loss: 2\n"))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(length=st.integers(0, 600), junk=st.binary(max_size=30))
def test_a_log_cut_anywhere_with_junk_behind_never_gives_another_rate(tmp_path: Path, length: int, junk: bytes):
    (tmp_path / "train.log").write_bytes(SAMPLE.read_bytes()[:length].rstrip(b"0123456789,") + b"\n" + junk)
    try:
        run = load(tmp_path)
    except InputError:
        return
    assert set(run.frame("log")["tokens_per_s_per_device"].dropna()) <= {68.0, 24468.0}
