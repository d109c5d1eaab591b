"""Reports: what is in them, that they ask nobody for anything, and that names in a run stay text."""

from __future__ import annotations

import html
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import perfkit
from perfkit.core.errors import InputError
from perfkit.core.run import Run
from perfkit.core.units import format_change
from perfkit.face.charts.vega import inline_source, script_text
from perfkit.face.report import parts_of, report
from perfkit.project.sample import demo

DATA = Path(__file__).resolve().parents[3] / "data"
PROFILE = DATA / "traces" / "torch_npu_2rank"
LOG = DATA / "traces" / "logs" / "llama2_13b_8card_worker_0.log"
HOSTILE = "</script><img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    return demo(tmp_path_factory.mktemp("demo") / "d").folder


def text_of(source) -> str:
    sections = [part.section for part in parts_of(source)]
    return "\n".join(" ".join([*section.text, *(cell for row in section.rows for cell in row)]) for section in sections)


def without_scripts(page: str) -> str:
    return re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)


def made_run(num_ranks: int, name: str = "made") -> Run:
    steps = [
        {"rank": rank, "step": step, "duration_ns": 10_000_000 + rank, "computing_ns": 6_000_000}
        for rank in range(num_ranks)
        for step in range(20)
    ]
    parts = [
        {"rank": row["rank"], "step": row["step"], "path": path, "amount_ns": amount}
        for row in steps
        for path, amount in (("computing", 6_000_000), ("free", 4_000_000 + row["rank"]))
    ]
    kernels = [
        {"rank": rank, "step": step, "name": f"{name}{number}", "kind": "computing", "start_ns": 1_000 * number, "duration_ns": 900}
        for rank in range(num_ranks)
        for step in range(2)
        for number in range(50)
    ]
    blank = Run(name=name, kind="measured", format="made", tables={})
    tables = {
        table: pd.DataFrame(rows).reindex(columns=blank.frame(table).columns)
        for table, rows in (("steps", steps), ("step_parts", parts), ("kernels", kernels))
    }
    return Run(name=name, kind="measured", format="made", tables=tables)


def test_the_report_of_a_project_has_its_rounds_with_predictions_and_errors(project):
    text = text_of(project)
    first, last = (format_change(perfkit.ExperimentLog(project).ladder()["error_ratio"].tolist()[number]) for number in (1, 5))
    for said in ("1 860", "2 562", "+37.7 % in total", first, last):
        assert said.replace(" ", "\u2009") in text or said in text
    charts = [drawing.title for part in parts_of(project) for drawing in part.drawings]
    assert charts == ["Rounds: filled marks are measured, open ones predicted", "Predicted and measured, all rounds"]


def test_the_report_of_a_run_has_parts_findings_kernels_and_collectives():
    titles = [part.section.title for part in parts_of(PROFILE) if part.section.level == 2]
    assert titles == [
        "Where the step went",
        "Findings",
        "Kernels, all ranks",
        "Communication, all ranks",
        "What the recording says about the job",
    ]
    assert "took 137 ms: communication/exposed 102 ms (74.7 %), free 25.7 ms (18.8 %), computing 8.87 ms (6.50 %)" in text_of(
        PROFILE
    )


def test_the_report_of_a_log_has_its_median_after_the_warm_up():
    assert "After the first 1 the median of 4 steps is 1.755 s" in text_of(LOG)


def test_a_recording_of_a_round_is_drawn_and_one_that_has_gone_is_named(project, tmp_path):
    folder = demo(tmp_path / "d").folder
    log = perfkit.ExperimentLog(folder)
    for _ in range(2):
        number = log.start("measured here", "a hypothesis that is long enough")
        log.predict(number, "tokens_per_s_per_device", 2600, method="a guess")
        log.attach(number, folder / "samples" / "torch_npu_2rank", "run", run=perfkit.load(PROFILE))
        log.decide(number, "revert", "only made to be drawn in a report")
    titles = [part.section.title for part in parts_of(folder)]
    assert titles.count("Step of torch_npu_2rank") == 2
    (folder / "samples" / "torch_npu_2rank").rename(folder / "samples" / "elsewhere")
    assert "The recording samples/torch_npu_2rank cannot be drawn" in text_of(folder)


def test_equal_input_gives_equal_bytes_in_one_process_and_in_another(project):
    again = f"from perfkit.face.report import report; import sys; sys.stdout.buffer.write(report({str(project)!r}).encode())"
    other = subprocess.run([sys.executable, "-c", again], check=True, capture_output=True).stdout
    assert report(project).encode() == other == report(project).encode()
    assert report(PROFILE) == report(PROFILE)


def test_the_page_forbids_requests_and_names_no_address_to_load(project):
    page = without_scripts(report(project))
    assert "default-src 'none'" in page
    assert not re.search(r"<(link|script|img|iframe)[^>]*\s(src|href)=", page)


def test_a_report_hands_on_the_licences_of_what_draws_its_charts(project):
    told = html.unescape(report(project))
    for name in ("vega-lite", "d3-scale", "Copyright (c) 2015-2023, University of Washington Interactive Data Lab"):
        assert name in told


def test_names_of_a_run_cannot_become_markup():
    page = report(made_run(1, HOSTILE))
    assert "<img" not in without_scripts(page)
    assert page.count("</script>") == 3


def test_scripts_cannot_end_their_element():
    assert script_text("x='</SCRIPT>'") == "x='\\x3C/SCRIPT>'"
    assert "</script" not in inline_source().lower()


def test_64_ranks_fit_into_3_mb():
    page = report(made_run(64))
    assert len(page.encode()) < 3_000_000
    assert "By rank: 64 ranks" in page


def test_of_more_ranks_the_slowest_are_drawn():
    drawing = next(drawing for part in parts_of(made_run(70)) for drawing in part.drawings)
    assert drawing.title == "By rank: the 64 slowest of 70 ranks"


def test_a_place_that_cannot_be_written_is_said(tmp_path):
    with pytest.raises(InputError, match="is a folder"):
        report(LOG, tmp_path)
    with pytest.raises(InputError, match="does not exist"):
        report(LOG, tmp_path / "no" / "report.html")


@pytest.mark.parametrize("is_there", [True, False])
def test_nothing_that_is_exported_tells_of_the_machine(tmp_path, monkeypatch, is_there):
    """Files outside of the project are linked by their path; what leaves the machine has their name, and what became of them."""
    monkeypatch.setattr("perfkit.project.experiments.artefacts.LARGEST_COPY_BYTES", 100)
    outside = tmp_path / "somebody" / "secret place"
    shutil.copytree(PROFILE, outside / "my_profile")
    (outside / "big.log").write_text("x" * 200)
    folder = demo(tmp_path / "d").folder
    log = perfkit.ExperimentLog(folder)
    number = log.start("measured here", "a hypothesis that is long enough")
    log.predict(number, "tokens_per_s_per_device", 2600, method="a guess")
    log.attach(number, outside / "my_profile", "run", run=perfkit.load(outside / "my_profile"))
    log.attach(number, outside / "big.log", "log")
    if not is_there:
        shutil.rmtree(outside)
    pages = [
        report(folder),
        log.export(tmp_path / "a.md").read_text("utf-8"),
        log.export(tmp_path / "a.html", "html").read_text("utf-8"),
    ]
    for page in pages:
        for private in (str(tmp_path), "secret place", str(Path.home()), socket.gethostname()):
            assert private not in without_scripts(page)
        assert "my_profile (linked)" in page
        assert ("not found, last seen on 20" in page) is not is_there
