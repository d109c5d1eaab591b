"""The command line: what it prints, where errors go, and with which exit code."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from perfkit.core.resources import data_folder
from perfkit.face import cli
from perfkit.face.cli._progress import Progress
from perfkit.record.load import load

SAMPLE = data_folder() / "traces" / "torch_npu_2rank"
CLUSTER = data_folder() / "traces" / "cluster_16card"
LOG = data_folder() / "traces" / "logs" / "llama2_13b_8card_worker_0.log"
KINETO = data_folder() / "traces" / "kineto_resnet"


def summary(path: Path, *options: str, capsys: pytest.CaptureFixture[str]) -> dict:
    assert cli.main(["summary", str(path), "--json", *options]) == 0
    captured = capsys.readouterr()
    assert captured.err == "", "no progress bar and no warning when the output is piped"
    return json.loads(captured.out)


@pytest.mark.parametrize("path", [SAMPLE, CLUSTER, LOG, KINETO], ids=lambda path: path.name)
def test_the_json_has_its_fixed_shape_in_every_format(path, capsys):
    document = summary(path, capsys=capsys)
    assert {"run", "kind", "format", "ranks_found", "dropped", "ranks", "kernels", "collectives"} <= set(document)
    assert document["kind"] == "measured"
    assert document["ranks_found"] == len(load(path).ranks)
    for rank in document["ranks"]:
        assert isinstance(rank["rank"], int)
        for step in rank["steps"]:
            assert set(step) == {
                "step",
                "duration_ns",
                "host_duration_ns",
                "breakdown_ns",
                "communication_ns",
                "overlapped_ns",
                "bubble_ns",
            }
            if step["breakdown_ns"] is not None:
                assert sum(step["breakdown_ns"].values()) == step["duration_ns"]
                assert all(isinstance(amount, int) and amount >= 0 for amount in step["breakdown_ns"].values())
    for kernel in document["kernels"]:
        assert set(kernel) == {"name", "count", "total_ns"}
    for collective in document["collectives"]:
        assert set(collective) == {"name", "group_size", "count", "total_ns", "bytes"}


def test_the_two_rank_sample_has_its_published_step(capsys):
    rank_0 = summary(SAMPLE, capsys=capsys)["ranks"][0]["steps"][0]
    assert rank_0["step"] == 50
    assert rank_0["duration_ns"] == 136_581_009
    assert rank_0["breakdown_ns"]["computing"] == 8_873_756
    assert rank_0["communication_ns"] == 105_991_878


def test_stages_and_bubbles_of_sixteen_ranks(capsys):
    ranks = summary(CLUSTER, capsys=capsys)["ranks"]
    assert [rank["pipeline_stage"] for rank in ranks] == [0] * 8 + [1] * 8
    assert all(rank["steps"][0]["bubble_ns"] > 100_000_000 for rank in ranks[8:])


def test_what_was_not_measured_is_null(capsys):
    step = summary(LOG, capsys=capsys)["ranks"][0]["steps"][1]
    assert step["duration_ns"] == 1_752_000_000
    assert step["breakdown_ns"] is None
    assert step["bubble_ns"] is None


def test_kernels_and_collectives_are_all_rows_of_the_device(capsys):
    document, run = summary(SAMPLE, capsys=capsys), load(SAMPLE)
    kernels = run.frame("kernels")
    assert sum(kernel["count"] for kernel in document["kernels"]) == (kernels["kind"] == "computing").sum()
    assert sum(entry["total_ns"] for entry in document["collectives"]) == run.frame("collectives")["duration_ns"].sum()
    totals = [kernel["total_ns"] for kernel in document["kernels"]]
    assert totals == sorted(totals, reverse=True)


def test_one_step_can_be_asked_for(capsys):
    document = summary(LOG, "--step", "3", capsys=capsys)
    assert [step["step"] for rank in document["ranks"] for step in rank["steps"]] == [3]


def test_a_step_that_is_not_there_is_an_error_that_names_those_that_are(capsys):
    assert cli.main(["summary", str(LOG), "--step", "99"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "step 99 is not in the run; steps found: 1, 2, 3, 4, 5" in captured.err


def test_the_table_reads_well(capsys):
    assert cli.main(["summary", str(SAMPLE)]) == 0
    out = capsys.readouterr().out
    for text in ("rank", "duration", "137 ms", "102 ms (74.7 %)", "largest kernels", "all_reduce"):
        assert text in out
    assert all(len(line) <= 160 for line in out.splitlines())


def test_a_missing_folder_is_one_clear_line_and_no_traceback(capsys, tmp_path):
    assert cli.main(["summary", str(tmp_path / "nothing")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("perfkit: ")
    assert "no such file or folder" in error
    assert "Traceback" not in error


def test_debug_shows_the_traceback(capsys, tmp_path):
    assert cli.main(["summary", str(tmp_path / "nothing"), "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_a_bug_is_one_line_that_says_how_to_see_more(monkeypatch, capsys):
    monkeypatch.setattr("perfkit.record.load.load", lambda *_, **__: 1 / 0)
    assert cli.main(["summary", "x"]) == 2
    assert "unexpected ZeroDivisionError" in (error := capsys.readouterr().err)
    assert "--debug" in error


def test_the_demo_is_written_and_says_what_to_do_next(capsys, tmp_path):
    assert cli.main(["demo", str(tmp_path / "d")]) == 0
    assert "perfkit serve" in capsys.readouterr().out
    assert (tmp_path / "d" / "perfkit.toml").exists()


def test_progress_is_shown_on_a_terminal_only():
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal, pipe = Terminal(), io.StringIO()
    for stream in (terminal, pipe):
        with Progress(stream) as progress:
            progress("kernel_details.csv", 50, 100)
    assert "50.0 % kernel_details.csv" in terminal.getvalue()
    assert pipe.getvalue() == ""


@pytest.mark.parametrize("command", sorted(known.name for known in cli.commands()))
def test_every_command_has_help_with_an_example(command, capsys):
    with pytest.raises(SystemExit) as exit_:
        cli.main([command, "--help"])
    assert exit_.value.code == 0
    assert f"examples:\n  perfkit {command}" in capsys.readouterr().out


def test_a_hostile_operator_name_is_printed_as_text(tmp_path, capsys):
    name = "<img src=x onerror=alert(1)>\x1b[31m"
    folder = tmp_path / "ASCEND_PROFILER_OUTPUT"
    folder.mkdir()
    (folder / "kernel_details.csv").write_text(
        f"Step Id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us)\n1,{name},Cast,AI_CORE,10,5,0\n",
        encoding="utf-8",
    )
    assert cli.main(["summary", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "<img src=x onerror=alert(1)>" in out
    assert "\x1b" not in out


@pytest.mark.parametrize(("words", "begins"), [(f"summary {SAMPLE}", "torch_npu_2rank"), ("simulate --help", "usage: ")])
def test_output_cut_off_by_the_reader_is_no_error(words: str, begins: str):
    command = f"{sys.executable} -u -m perfkit {words} | head -1"
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert done.stdout.startswith(begins)
