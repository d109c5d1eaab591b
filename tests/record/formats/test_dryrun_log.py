"""Memory statistics of MindSpore: every wording, statistics that do not count, several in one file, and damaged logs."""

import json
from functools import cache
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfkit.core.errors import InputError
from perfkit.core.run import Run
from perfkit.face.cli import main
from perfkit.record.load import load

SAMPLES = Path(__file__).parents[2] / "data" / "traces" / "logs" / "dryrun"
MIB = 2**20
GUIDE = (SAMPLES / "mindformers_guide_stage.log").read_text()


@cache
def sample(name: str) -> Run:
    return load(SAMPLES / name, format="dryrun-log")


def reports(run: Run) -> list[dict[str, int]]:
    """The figures of every statistic in MiB, without those that it lacks."""
    rows = run.frame("memory_reports").to_dict("records")
    return [
        {name[:-6]: int(value) // MIB for name, value in row.items() if name.endswith("_bytes") and not pd.isna(value)}
        for row in rows
    ]


def written(tmp_path: Path, text: str, name: str = "run.log") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


EXPECTED = {
    "mindformers_guide_stage.log": [{"device": 62432, "budget": 59392, "used_peak": 48874, "actual_peak": 48874}],
    "seeds_excerpt.log": [{"device": 62432, "budget": 59392, "used_peak": 48874, "actual_peak": 48874}],
    "sim_level1.log": [{"device": 65536, "budget": 59392, "used_peak": 23716, "actual_peak": 26244}],
    "recompute_before_after.log": [
        {"device": 62420, "budget": 58196, "used_peak": 245, "actual_peak": 260},
        {"device": 62420, "budget": 58188, "used_peak": 65, "actual_peak": 76},
    ],
    "real_cpu_2.10_level_none.log": [{"used_peak": 96, "actual_peak": 136, "pool": 1024}],
    "real_cpu_2.10_level_1.log": [{"used_peak": 96, "actual_peak": 136, "pool": 1024}],
    "real_cpu_2.7_level_1.log": [{"used_peak": 96, "actual_peak": 120, "pool": 1024}],
    "synthetic_1.6_bytes_oom.log": [{"device": 32768, "budget": 30720, "static": 20480, "dynamic": 9216, "requested": 2048}],
    "synthetic_2.1_graph_sink_oom.log": [{"device": 32768, "budget": 30684, "static": 21504, "dynamic": 7168, "requested": 3072}],
    "synthetic_2.3_hbm.log": [{"device": 62432, "budget": 59392, "used_peak": 45310, "actual_peak": 46922}],
    "synthetic_2.7_moc.log": [{"device": 62420, "budget": 58196, "used_peak": 44032, "actual_peak": 45568, "pool": 47104}],
    "synthetic_graph_sink_recycle.log": [
        {"device": 65536, "budget": 59392, "actual_peak": 38912, "static": 20480, "dynamic": 18432}
    ],
}


@pytest.mark.parametrize("name", EXPECTED)
def test_every_wording_gives_the_figures_that_its_maker_states(name: str):
    assert reports(sample(name)) == EXPECTED[name]


def test_the_published_figures_give_the_published_headroom_and_gaps():
    guide, simulated = (reports(sample(name))[0] for name in ("mindformers_guide_stage.log", "sim_level1.log"))
    assert guide["budget"] - guide["actual_peak"] == 10518
    assert simulated["budget"] - simulated["actual_peak"] == 33148
    assert round((simulated["actual_peak"] - simulated["used_peak"]) / simulated["actual_peak"] * 100, 2) == 9.63
    before, after = reports(sample("recompute_before_after.log"))
    assert round((after["actual_peak"] / before["actual_peak"] - 1) * 100, 1) == -70.8


def test_several_statistics_of_a_file_are_kept_in_order_and_the_reader_is_asked():
    run = sample("recompute_before_after.log")
    rows = run.frame("memory_reports")
    assert (rows["block"].tolist(), rows["line"].tolist()) == ([0, 1], [1, 5])
    assert any("one of each rank, or before and after" in note for note in run.notes)


def test_a_statistic_that_the_end_of_the_file_cuts_off_is_counted():
    (lost,) = sample("synthetic_graph_sink_recycle.log").dropped
    assert (lost.count, "cuts off" in lost.what) == (1, True)


def test_logs_of_stages_are_ranks_and_the_one_that_does_not_fit_is_named():
    run = sample("pp4_output_dryrun")
    rows = run.frame("memory_reports").set_index("rank")["used_peak_bytes"] // MIB
    assert rows.to_dict() == {0: 54210, 4: 47904, 8: 41598, 12: 60112}
    assert [note for note in run.notes if "would not fit" in note and "rank_12" in note]
    assert len(run.notes) == 1


def test_a_failed_request_is_noted():
    assert any("a request of 2.00 GiB failed" in note for note in sample("synthetic_1.6_bytes_oom.log").notes)


def test_a_used_peak_above_the_actual_one_is_noted_and_kept(tmp_path: Path):
    path = written(tmp_path, GUIDE.replace("(without fragments): 48874M", "(without fragments): 55389M"))
    run = load(path)
    assert reports(run)[0]["used_peak"] == 55389
    assert any("above the actual peak" in note for note in run.notes)


def test_a_training_log_with_steps_is_read_for_its_steps_first():
    run = load(SAMPLES / "synthetic_2.3_hbm.log")
    assert run.format == "mindformers-log"
    assert any("memory statistics" in note for note in run.notes)


@pytest.mark.parametrize(("text", "size"), [("2048", 2048), ("2048B", 2048), ("2K", 2048), ("3M", 3 * MIB), ("1G", 1024 * MIB)])
def test_units_are_binary_and_none_is_bytes(tmp_path: Path, text: str, size: int):
    path = written(tmp_path, f"Device HBM memory size: {text}\nActual peak memory usage: {text}\n")
    assert load(path).frame("memory_reports")["actual_peak_bytes"].tolist() == [size]


def test_a_growing_peak_of_a_pool_counts_once(tmp_path: Path):
    line = "The dynamic memory pool total allocated mem:{}M, peak used mem:{}M, actual peak used mem:{}M\n"
    run = load(written(tmp_path, line.format(10, 5, 6) + line.format(20, 9, 12)))
    assert reports(run) == [{"used_peak": 9, "actual_peak": 12, "pool": 20}]


def test_a_log_whose_statistics_are_all_0_is_an_error_that_names_it(tmp_path: Path):
    path = written(tmp_path, GUIDE.replace("48874M", "0M"))
    with pytest.raises(InputError, match="memory statistics"):
        load(path)


def test_glued_lines_colours_and_hostile_text_lose_nothing(tmp_path: Path):
    text = "\x1b[32m<img src=x onerror=alert(1)>\x1b[0m " + GUIDE.replace("\n", " ") + "\n"
    run = load(written(tmp_path, text, "<img src=x onerror=alert(1)>.log"))
    assert reports(run) == EXPECTED["mindformers_guide_stage.log"]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(length=st.integers(0, len(GUIDE)), junk=st.binary(max_size=30))
def test_a_log_cut_anywhere_with_junk_behind_never_gives_another_number(tmp_path: Path, length: int, junk: bytes):
    (tmp_path / "run.log").write_bytes(GUIDE.encode()[:length] + b"\n" + junk)
    try:
        run = load(tmp_path)
    except InputError:
        return
    for report in reports(run):
        if length == len(GUIDE):
            assert report == EXPECTED["mindformers_guide_stage.log"][0]


def test_the_summary_prints_the_memory_of_every_rank(capsys: pytest.CaptureFixture[str]):
    assert main(["summary", str(SAMPLES / "pp4_output_dryrun")]) == 0
    printed = capsys.readouterr().out
    assert "no step times were recorded" in printed
    assert "58.7 GiB" in printed
    assert main(["summary", "--json", str(SAMPLES / "sim_level1.log")]) == 0
    (report,) = json.loads(capsys.readouterr().out)["memory_reports"]
    assert (report["actual_peak_bytes"], report["requested_bytes"]) == (26244 * MIB, None)
