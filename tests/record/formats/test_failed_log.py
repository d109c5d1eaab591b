"""The log of a job that failed before its first step is a run with incidents."""

from pathlib import Path

import pytest

from perfkit.core.errors import InputError
from perfkit.record.load import load


def test_a_log_of_errors_alone_is_read_for_its_incidents(tmp_path: Path):
    (tmp_path / "worker_2.log").write_text("start\n[ERROR] EI0002: The wait execution of the Notify register times out.\n")
    run = load(tmp_path, cache=False)
    assert run.format == "failed-log"
    rows = run.frame("incidents").to_dict("records")
    assert [(row["rank"], row["kind"], row["code"], row["line"]) for row in rows] == [(2, "collective_timeout", "EI0002", 2)]


def test_logs_with_steps_are_left_to_their_own_format(tmp_path: Path):
    (tmp_path / "rank_0.log").write_text(
        " iteration 1/ 9 | elapsed time per iteration (ms): 5.0 |\n iteration 2/ 9 | elapsed time per"
    )
    (tmp_path / "rank_1.log").write_text("CUDA error: an illegal memory access was encountered\n")
    run = load(tmp_path, cache=False)
    assert run.format == "megatron-log"
    assert run.frame("incidents")["rank"].tolist() == [1]
    assert not any("also found" in note for note in run.notes)


def test_a_log_without_errors_is_no_run(tmp_path: Path):
    (tmp_path / "worker_2.log").write_text("start\nend\n")
    with pytest.raises(InputError, match="no known format"):
        load(tmp_path, cache=False)
