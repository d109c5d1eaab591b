"""Runs that slow down while they go on, or begin anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfkit.explain.diagnose import diagnose
from perfkit.explain.diagnose.rules import slow_down
from perfkit.record.load import load
from tests.explain.diagnose.made import log


def test_a_run_that_slows_down_is_told_and_one_that_scatters_is_not():
    slow = diagnose(log([100 + at / 5 for at in range(100)]), only=[slow_down.RULE])
    (finding,) = slow.findings
    assert finding.evidence["last_over_first_part"] == pytest.approx(117.9 / 101.9, rel=0.01)
    assert diagnose(log([100 + at % 7 for at in range(100)]), only=[slow_down.RULE]).findings == ()


def test_steps_that_were_run_again_are_told_as_a_restart():
    steps = [*range(1, 31), *range(21, 41)]
    (finding,) = diagnose(log([100] * 50, steps=steps), only=[slow_down.RULE]).findings
    assert finding.evidence["repeated_steps"] == 10
    assert "line 40 with step 21" in finding.title


def line(step: int, second: float) -> str:
    clock = f"{int(second // 3600):02d}:{int(second // 60 % 60):02d}:{second % 60:06.3f}"
    return f" [2026-01-05 {clock}] iteration {step:8d}/ 1000 | elapsed time per iteration (ms): 2000.0 | lm loss: 2.0E+00 |"


FIRST = [line(step, 2 * step) for step in range(10, 61, 10)]
SECOND = [line(step, 3600 + 2 * step) for step in range(40, 81, 10)]


def written(folder: Path, files: dict[str, list[str]]) -> Path:
    for name, lines in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("\n".join(lines) + "\n")
    return folder


@pytest.mark.parametrize(
    ("files", "where"),
    [
        ({"train.log": [*FIRST, *SECOND]}, "line 7 of train.log"),
        ({"a.log": SECOND, "b.log": FIRST}, "line 1 of a.log"),
        ({"attempt_0/0/stdout.log": FIRST, "attempt_1/0/stdout.log": SECOND}, "line 1 of attempt_1/0/stdout.log"),
        ({"attempt_0/0/stdout.log": FIRST, "attempt_1/0/stdout.log": ["no step"], "attempt_2/0/stdout.log": SECOND}, "attempt_2"),
    ],
    ids=["one file", "two files", "attempts of torchrun", "an attempt that failed at once"],
)
def test_a_restart_says_which_steps_were_run_again_what_they_took_and_how_long_nothing_ran(tmp_path: Path, files, where: str):
    run = load(written(tmp_path, files))
    (finding,) = diagnose(run, only=[slow_down.RULE]).findings
    assert where in finding.title
    assert finding.subject["steps"] == (31, 60)
    assert finding.evidence["repeated_steps"] == 30
    assert finding.evidence["repeated_ns"] == 60 * 10**9
    # From the line of step 60 at 120 s to the start of steps 31 to 40, whose line came at 3,680 s and which took 20 s.
    assert finding.evidence["between_ns"] == (3680 - 20 - 120) * 10**9
    assert run.steps()["step"].tolist() == [10, 20, 30, 40, 50, 60, 70, 80]
    assert not any("left out" in note for note in run.notes)


@pytest.mark.parametrize(
    "other",
    [
        [line(step, 3600 + 2 * step) for step in range(10, 41, 10)],
        [line(step, 2 * step + 1) for step in range(20, 61, 10)],
        [line(step, 3600 + 2 * step) for step in range(80, 121, 10)],
        [line(60, 120)],
    ],
    ids=["a job of its own", "at the same time", "steps between are missing", "the end of the same log"],
)
def test_a_log_that_does_not_go_on_from_another_one_is_left_out(tmp_path: Path, other: list[str]):
    run = load(written(tmp_path, {"a.log": FIRST, "b.log": other}))
    assert run.frame("log")["step"].tolist() == [10, 20, 30, 40, 50, 60]
    assert any(note.startswith("b.log also holds steps") for note in run.notes)
    assert diagnose(run, only=[slow_down.RULE]).findings == ()


def test_two_copies_of_a_log_that_goes_on_are_read_once(tmp_path: Path):
    copies = {"a.log": SECOND, "b.log": SECOND, "c.log": FIRST, "d.log": FIRST}
    rows = load(written(tmp_path, copies)).frame("log")
    assert rows["step"].tolist() == [*range(10, 61, 10), *range(40, 81, 10)]


@pytest.mark.parametrize("apart", [True, False], ids=["two files", "one file"])
def test_a_window_that_is_printed_again_after_a_restart_was_run_again(tmp_path: Path, apart: bool):
    again = [line(step, 3600 + 2 * step) for step in range(60, 101, 10)]
    files = {"attempt_0/0/stdout.log": FIRST, "attempt_1/0/stdout.log": again} if apart else {"train.log": [*FIRST, *again]}
    (finding,) = diagnose(load(written(tmp_path, files)), only=[slow_down.RULE]).findings
    assert finding.subject["steps"] == (51, 60)
    assert finding.evidence["repeated_ns"] == 20 * 10**9


def test_attempts_of_two_jobs_are_no_run(tmp_path: Path):
    run = load(written(tmp_path, {"one/attempt_0/0/stdout.log": FIRST, "two/attempt_1/0/stdout.log": SECOND}))
    assert run.frame("log")["step"].tolist() == list(range(10, 61, 10))


def test_steps_of_two_restarts_count_each_time_they_were_lost():
    steps = [*range(1, 31), *range(21, 24), *range(11, 41)]
    (finding,) = diagnose(log([100] * len(steps), steps=steps), only=[slow_down.RULE]).findings
    assert finding.evidence["num_restarts"] == 2
    assert finding.evidence["repeated_steps"] == 10 + 13
    assert finding.evidence["repeated_ns"] == 23 * 100_000_000


def test_a_step_that_is_printed_twice_is_no_restart():
    twice = [step for step in range(1, 31) for _ in range(2)]
    assert diagnose(log([100] * 60, steps=twice), only=[slow_down.RULE]).findings == ()


def test_times_of_nothing_are_no_growth():
    assert diagnose(log([0] * 40), only=[slow_down.RULE]).failed == ()
