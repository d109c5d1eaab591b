from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder
from perfkit.core.robust import is_real_change
from perfkit.core.run import Dropped, Run
from perfkit.explain.baseline import baseline
from perfkit.explain.compare import measure
from perfkit.project.experiments import ExperimentLog, Measurement, _schema, database
from perfkit.project.experiments import artefacts as _artefacts
from perfkit.record.load import load

LOG = data_folder() / "traces" / "logs" / "llama2_13b_8card_worker_0.log"
GOAL = "tokens_per_s_per_device"
REASON = "faster by more than the noise"
HOSTILE = "<img src=x onerror=alert(1)> '; DROP TABLE round; -- 模型 🚀 \u202e\x00"
YAML = "parallel_config:\n  data_parallel: 8\n  model_parallel: 1\n  pipeline_stage: {stages}\nuse_parallel: True\n"


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("PERFKIT_READ_ONLY", raising=False)


@pytest.fixture
def log(tmp_path: Path) -> ExperimentLog:
    return ExperimentLog(tmp_path, author="Ada")


def _measured(value: float, **fields: object) -> Measurement:
    return Measurement(metric=GOAL, value=value, source="log.txt: throughput", **fields)


def _keep(log: ExperimentLog, number: int, value: float) -> None:
    if number and log.missing(number)["predict"]:
        log.predict(number, GOAL, value, method="as before")
    log.add_run(number, [_measured(value)])
    log.record_accuracy(number, "not_checked", note="the guide reports none")
    log.decide(number, "keep", REASON, confirmation="not checked")


def _config(folder: Path, stages: int = 1, name: str = "c.yaml") -> Path:
    path = folder / name
    path.write_text(YAML.format(stages=stages), encoding="utf-8")
    return path


def _sql(folder: Path, query: str) -> list[tuple]:
    with contextlib.closing(sqlite3.connect(folder / "perfkit.sqlite")) as connection:
        return connection.execute(query).fetchall()


def test_a_whole_round_by_hand(log: ExperimentLog):
    log.set_project("hand", goal_metric=GOAL, goal_value=2200.0, device_memory_bytes=64 * 2**30, peak_flops_per_s=376e12)
    number = log.start("pp 2")
    log.predict(number, GOAL, 2250, low=2150, high=2350, method="by hand")
    log.add_run(number, [_measured(2189)], kind="measured", format="mindformers-log")
    with pytest.raises(InputError, match="before the measurement"):
        log.predict(number, GOAL, 2200, method="afterwards")
    with pytest.raises(InputError, match="accuracy: not recorded"):
        log.decide(number, "keep", REASON)
    log.record_accuracy(number, "not_checked", note="no time")
    with pytest.raises(InputError, match="type 'not checked'"):
        log.decide(number, "keep", REASON)
    log.decide(number, "keep", REASON, confirmation="not checked")
    document = log.show("json")
    (row,) = document["rounds"]
    assert row["verdict"] == "keep"
    assert row["goal_met"] is False
    assert document["goal_met"] is False
    assert row["error_ratio"] == pytest.approx(0.0279, abs=5e-5)
    assert row["state"] == "decide"


def test_keeping_a_round_that_meets_the_goal_ends_the_cycle(log: ExperimentLog):
    log.set_project("x", goal_value=2000.0)
    _keep(log, log.start("baseline"), 2189)
    document = log.show("json")
    assert document["goal_met"] is True
    assert document["rounds"][0]["state"] == "done"


def test_a_goal_below_is_met_from_below(log: ExperimentLog):
    log.set_project("x", goal_metric="step_time_ns", goal_op="<=", goal_value=100.0)
    for value in (120.0, 90.0):
        number = log.start("try")
        log.predict(number, "step_time_ns", value, method="a guess")
        log.add_run(number, [Measurement(metric="step_time_ns", value=value, source="x")])
        log.record_accuracy(number, "pass", steps=100)
        log.decide(number, "keep", REASON)
    document = log.show("json")
    assert [row["goal_met"] for row in document["rounds"]] == [False, True]
    assert document["best_round"] == 1


def test_the_ladder_has_gains_errors_and_the_noise_rule(log: ExperimentLog):
    _keep(log, log.start("2: fine selective"), 2189)
    number = log.start("3: per stage")
    log.predict(number, GOAL, 2232, method="layer units")
    _keep(log, number, 2210)
    number = log.start("4: fusion")
    log.predict(number, GOAL, 2000, method="first guess")
    log.predict(number, GOAL, 2288, low=2200, high=2400, method="layer units")
    _keep(log, number, 2353)
    ladder = log.ladder()
    assert list(ladder["value"]) == [2189, 2210, 2353]
    assert list(ladder["prediction"].fillna(0)) == [0, 2232, 2288]
    assert ladder.loc[2, ["prediction_low", "prediction_high"]].tolist() == [2200, 2400]
    assert ladder["gain_ratio"].tolist()[1:] == pytest.approx([0.0096, 0.0647], abs=5e-5)
    assert ladder["error_ratio"].tolist()[1:] == pytest.approx([0.010, -0.028], abs=5e-4)
    assert ladder["beyond_noise"].tolist()[1:] == [False, True]
    assert ladder["beyond_noise"].isna().tolist() == [True, False, False]
    assert set(ladder["kind"]) == {"reported"}
    assert len(log.show("json")["rounds"][2]["predictions"]) == 2
    assert log.show("json")["total_gain_ratio"] == pytest.approx(2353 / 2189 - 1)


def test_an_empty_log_is_empty_and_makes_no_file(log: ExperimentLog):
    assert log.ladder().empty
    assert "value" in log.ladder()
    assert log.show("json")["rounds"] == []
    assert log.events() == []
    assert list(log.folder.iterdir()) == []


def test_the_document_is_json(log: ExperimentLog):
    log.set_project("x", accuracy_rule={"class": "exact"})
    log.start("one", "the pipeline removes the bubble")
    document = json.loads(json.dumps(log.show("json"), allow_nan=False))
    assert document["project"]["accuracy_rule"] == {"class": "exact"}
    assert document["rounds"][0]["value"] is None


def test_a_second_round_waits_for_the_decision_of_the_first(log: ExperimentLog):
    log.start("one")
    with pytest.raises(InputError, match="round 0 is open"):
        log.start("two")
    with pytest.raises(InputError, match="at least 15"):
        log.start("two", abandon="no")
    assert log.start("two", abandon="the machine was taken away") == 1
    first, second = log.show("json")["rounds"]
    assert (first["verdict"], first["reason"]) == ("revert", "the machine was taken away")
    assert second["parent"] is None


def test_the_parent_is_the_last_kept_round_or_the_one_that_is_named(log: ExperimentLog):
    _keep(log, log.start("0"), 1.0)
    _keep(log, log.start("1"), 2.0)
    log.decide(log.start("2"), "revert", "slower than its parent")
    log.decide(log.start("3"), "revert", "slower than its parent")
    log.start("4", parent=0)
    assert [row["parent"] for row in log.show("json")["rounds"]] == [None, 0, 1, 1, 0]
    with pytest.raises(InputError, match="no round 9"):
        log.start("5", parent=9, abandon="to see the message")


def test_all_that_stands_against_keeping_is_listed_at_once(log: ExperimentLog):
    log.set_project("x", device_memory_bytes=58 * 2**30)
    number = log.start("too big")
    log.predict(number, "peak_memory_bytes", 62 * 2**30, method="estimate")
    with pytest.raises(InputError) as error:
        log.decide(number, "keep", "short")
    assert [problem.split(":")[0].split(" ")[0] for problem in error.value.problems] == [
        "reason",
        "measurement",
        "accuracy",
        "memory",
    ]
    assert "62.0" in str(error.value)
    assert "58.0" in str(error.value)


def test_the_measured_peak_counts_more_than_the_predicted_one(log: ExperimentLog):
    number = log.start("fits after all")
    log.predict(number, "peak_memory_bytes", 62 * 2**30, method="estimate")
    log.add_run(number, [_measured(2000), Measurement(metric="peak_memory_bytes", value=50 * 2**30, source="log")])
    log.record_accuracy(number, "pass", steps=100, max_rel=0.001)
    log.decide(number, "keep", REASON, memory_limit_bytes=58 * 2**30)


@pytest.mark.parametrize("verdict", ["keep", "stop"])
def test_a_failed_accuracy_check_leaves_only_revert_and_repeat(log: ExperimentLog, verdict: str):
    number = log.start("wrong")
    log.add_run(number, [_measured(2000)])
    log.record_accuracy(number, "fail", steps=100, max_rel=0.2)
    with pytest.raises(InputError, match="revert or repeat"):
        log.decide(number, verdict, REASON)
    log.decide(number, "revert", REASON)


def test_an_accuracy_pass_needs_steps_and_a_skipped_check_a_note(log: ExperimentLog):
    number = log.start("x")
    with pytest.raises(InputError, match="fewer than 10"):
        log.record_accuracy(number, "pass", steps=9)
    with pytest.raises(InputError, match="say why"):
        log.record_accuracy(number, "not_checked")
    with pytest.raises(InputError, match="is no figure"):
        log.record_accuracy(number, "fail", colour=1.0)


def test_a_second_decision_sees_the_first_with_its_author(log: ExperimentLog):
    number = log.start("x")
    log.decide(number, "repeat", "the node was shared by others")
    with pytest.raises(InputError, match="'repeat' by Ada: 'the node was shared by others'"):
        ExperimentLog(log.folder, author="Bob").decide(number, "stop", REASON)
    for late in (
        lambda: log.predict(number, GOAL, 1.0, method="x"),
        lambda: log.add_run(number, [_measured(1.0)]),
        lambda: log.record_accuracy(number, "fail"),
    ):
        with pytest.raises(InputError, match="decided already"):
            late()


def test_a_range_must_hold_its_prediction_and_a_metric_be_known(log: ExperimentLog):
    number = log.start("x")
    with pytest.raises(InputError) as error:
        log.predict(number, "speed", 10, low=11, high=12, method="x")
    assert len(error.value.problems) == 2
    log.predict(number, GOAL, 10, low=10, high=10, method="exact")


def test_figures_are_written_once_and_in_the_right_unit(log: ExperimentLog):
    run = log.add_run(log.start("x"), [_measured(1.0, n=5, median_abs_dev=0.1)])
    with pytest.raises(InputError) as error:
        log.measure(
            run,
            [
                _measured(2.0),
                Measurement(metric="bubble_ns", value=1, unit="ms", source="x"),
                Measurement(metric="breakdown/computing", value=1, source="x"),
            ],
        )
    assert len(error.value.problems) == 3
    log.measure(run, [Measurement(metric="breakdown/computing", value=None, unit="ns", source="steps.csv")])
    with pytest.raises(InputError, match="no run 77"):
        log.measure(77, [_measured(1.0)])
    (row,) = log.show("json")["rounds"]
    assert [(item["metric"], item["value"]) for item in row["runs"][0]["measurements"]] == [
        ("breakdown/computing", None),
        (GOAL, 1.0),
    ]


def test_a_configuration_is_copied_hashed_flattened_and_restored_byte_for_byte(log: ExperimentLog, tmp_path: Path):
    source = _config(tmp_path, stages=2)
    number = log.start("pp 2")
    log.attach(number, source, "config")
    (config,) = log.show("json")["rounds"][0]["configs"]
    assert (config["devices"], config["dialect"], config["path"]) == (16, "mindformers", "rounds/00/config.yaml")
    source.write_text("changed: later", encoding="utf-8")
    out = log.restore(number, tmp_path / "out.yaml")
    assert out.read_text(encoding="utf-8") == YAML.format(stages=2)
    with pytest.raises(InputError, match="exists already"):
        log.restore(number, out)
    (tmp_path / "rounds/00/config.yaml").write_text("tampered: with", encoding="utf-8")
    with pytest.raises(InputError, match="sha256 differs"):
        log.restore(number, out, force=True)


def test_the_difference_of_two_rounds_ignores_how_numbers_are_written(log: ExperimentLog, tmp_path: Path):
    first = log.start("a")
    log.attach(first, _config(tmp_path, 1), "config")
    log.decide(first, "revert", "only a configuration")
    second = log.start("b")
    text = "parallel_config:\n  data_parallel: '8'\n  model_parallel: 1.0\n  pipeline_stage: 2\nuse_parallel: True\nextra: null\n"
    (tmp_path / "d.yaml").write_text(text, encoding="utf-8")
    log.attach(second, tmp_path / "d.yaml", "config", devices=16)
    assert log.diff(first, second) == [
        {"key": "extra", "old": None, "new": None},
        {"key": "parallel_config.pipeline_stage", "old": 1, "new": 2},
    ]
    assert log.diff(second, first)[1] == {"key": "parallel_config.pipeline_stage", "old": 2, "new": 1}
    assert log.diff(first, first) == []


def test_a_second_plan_is_refused_and_leaves_no_file(log: ExperimentLog, tmp_path: Path):
    number = log.start("x")
    log.attach(number, _config(tmp_path, 1), "config")
    with pytest.raises(InputError, match="plan configuration already"):
        log.attach(number, _config(tmp_path, 2), "config")
    log.attach(number, _config(tmp_path, 2), "as_run")
    assert sorted(path.name for path in (tmp_path / "rounds/00").iterdir()) == ["as_run.yaml", "config.yaml"]


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.yaml", b"a: [1", "cannot be parsed"),
        ("a.yaml", b"\xff\xfe", "not UTF-8"),
        ("a.yaml", b"- 1\n", "holds no keys"),
        ("a.yaml", b"!!python/object/apply:os.system ['true']", "cannot be parsed"),
        ("a.yaml", b"seed: 0", "how many devices"),
        ("a.toml", b"a = ", "cannot be parsed"),
    ],
)
def test_a_configuration_that_cannot_be_used_is_refused(log: ExperimentLog, tmp_path: Path, name: str, data: bytes, message: str):
    (tmp_path / name).write_bytes(data)
    number = log.start("x")
    with pytest.raises(InputError, match=message):
        log.attach(number, tmp_path / name, "config")
    assert not (tmp_path / "rounds" / "00").exists()


def test_megatron_arguments_become_keys(log: ExperimentLog, tmp_path: Path):
    (tmp_path / "train.sh").write_text("--num-layers 40 \\\n --sequence-parallel --lr=1e-4 --ranks 0 1 # end\n", encoding="utf-8")
    log.attach(log.start("x"), tmp_path / "train.sh", "config", devices=8)
    keys = dict(_sql(tmp_path, "SELECT key, value_json FROM config_key"))
    assert keys == {"num-layers": '"40"', "sequence-parallel": "true", "lr": '"1e-4"', "ranks": '["0", "1"]'}


def test_a_run_is_attached_with_its_ranks_steps_and_losses(log: ExperimentLog, tmp_path: Path):
    folder = tmp_path.parent / f"{tmp_path.name}-profile"
    (folder / "rank0").mkdir(parents=True)
    (folder / "rank0" / "kernels.csv").write_text("a,b\n", encoding="utf-8")
    steps = pd.DataFrame({"rank": [0, 1], "step": [5, 7], "duration_ns": [10, 11]})
    run = Run(name="r", kind="measured", format="torch-npu", tables={"steps": steps}, dropped=(Dropped("rows", 3, HOSTILE),))
    number = log.start("x")
    log.attach(number, folder, "run", run=run, ranks_expected=8)
    (row,) = log.show("json")["rounds"][0]["runs"]
    assert (row["ranks_found"], row["ranks_expected"], row["first_step"], row["last_step"]) == (2, 8, 5, 7)
    assert row["dropped"] == [{"what": "rows", "count": 3, "file": HOSTILE}]
    assert (tmp_path / row["path"] / "rank0" / "kernels.csv").read_text(encoding="utf-8") == "a,b\n"
    with pytest.raises(InputError, match="needs run="):
        log.attach(number, folder, "run")


@pytest.mark.parametrize(
    ("sample", "metrics"),
    [
        ("logs/llama2_13b_8card_worker_0.log", {"step_time_ns", "mfu"}),
        ("torch_npu_2rank", {"step_time_ns", "exposed_communication_ns", "free_ns"}),
    ],
)
def test_a_run_that_is_attached_brings_its_figures(log: ExperimentLog, sample: str, metrics: set[str]):
    log.set_project("p", peak_flops_per_s=376e12)
    path = data_folder() / "traces" / sample
    run = load(path)
    log.attach(log.start("x"), path, "run", run=run)
    (row,) = log.show("json")["rounds"][0]["runs"]
    found = {figure["metric"]: figure["value"] for figure in row["measurements"]}
    assert metrics <= set(found)
    if run.has("log"):
        shown = baseline(run, peak_flops_per_s=376e12)
        assert (found["step_time_ns"], found["mfu"]) == (shown.step_time.value, shown.mfu.value)
    else:
        assert found["step_time_ns"] == measure(run).median_ns


def test_a_bundled_sample_is_not_logged_as_measured(log: ExperimentLog, tmp_path: Path):
    own = tmp_path / "log.txt"
    own.write_text("x", encoding="utf-8")
    run = Run(name="sample", kind="measured", format="mindformers-log", tables={})
    for source in (LOG, own):
        log.attach(log.start("x") if source == LOG else 0, source, "run", run=run)
    assert [attached["kind"] for attached in log.show("json")["rounds"][0]["runs"]] == ["reported", "measured"]


def test_a_large_file_is_linked_and_its_edges_are_hashed(log: ExperimentLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_artefacts, "LARGEST_COPY_BYTES", 100)
    monkeypatch.setattr(_artefacts, "EDGE_BYTES", 10)
    outside = tmp_path.parent / f"{tmp_path.name}.log"
    outside.write_bytes(b"a" * 10 + b"middle" * 50 + b"z" * 10)
    number = log.start("x")
    log.attach(number, outside, "log")
    outside.write_bytes(b"a" * 10 + b"MIDDLE" * 50 + b"z" * 10)
    log.attach(number, outside, "log")
    outside.write_bytes(b"b" * 10 + b"MIDDLE" * 50 + b"z" * 10)
    log.attach(number, outside, "log")
    artefacts = log.show("json")["rounds"][0]["artefacts"]
    assert [(item["stored"], item["path"], item["bytes"]) for item in artefacts] == [(0, str(outside), 320)] * 3
    hashes = [item["sha256"] for item in artefacts]
    assert hashes[0] == hashes[1] != hashes[2]
    assert _artefacts.state_of(tmp_path, str(outside), 320) == "present"
    assert _artefacts.state_of(tmp_path, str(outside), 321) == "changed"
    outside.unlink()
    assert _artefacts.state_of(tmp_path, str(outside), 320) == "missing"


def test_two_files_of_one_name_are_both_kept(log: ExperimentLog, tmp_path: Path):
    number = log.start("x")
    for text in ("one", "two"):
        (tmp_path / "log.txt").write_text(text, encoding="utf-8")
        log.attach(number, tmp_path / "log.txt", "log")
    paths = [item["path"] for item in log.show("json")["rounds"][0]["artefacts"]]
    assert [(tmp_path / path).read_text(encoding="utf-8") for path in paths] == ["one", "two"]
    with pytest.raises(InputError, match="does not exist"):
        log.attach(number, tmp_path / "gone.txt", "log")


def test_missing_evidence_shrinks_as_the_round_goes_on(log: ExperimentLog, tmp_path: Path):
    number = log.start("x")
    assert {state for state, missing in log.missing(number).items() if missing} == set(_schema.STATES) - {"done"}
    log.set_project("x", goal_value=1.0, peak_flops_per_s=1e12, device_memory_bytes=2**30, accuracy_rule={"class": "exact"})
    log.attach(number, _config(tmp_path), "config")
    log.predict(number, "peak_memory_bytes", 2**29, method="estimate")
    log.predict(number, GOAL, 1.0, method="estimate")
    assert {state for state, missing in log.missing(number).items() if missing} == {
        "goal",
        "strategy",
        "measure",
        "analyse",
        "align",
        "decide",
    }
    assert log.missing(number)["strategy"] == ["hypothesis of 15 characters"]
    assert log.missing(number)["goal"] == ["measurement of round 0"]
    _keep(log, number, 2.0)
    assert {state for state, missing in log.missing(number).items() if missing} == {"strategy", "analyse"}


@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40).filter(str.strip))
def test_any_unicode_text_comes_back(tmp_path_factory: pytest.TempPathFactory, text: str):
    log = ExperimentLog(tmp_path_factory.mktemp("p"), author=text)
    log.set_project(text)
    log.record_event(text, {text: text}, page=text, number=log.start(text, text, change=text))
    (row,) = log.show("json")["rounds"]
    assert (row["title"], row["hypothesis"], row["change_text"], row["author"]) == (text,) * 4
    event = log.events()[-1]
    assert (event["action"], event["page"], event["author"], event["detail"]) == (text, text, text, {text: text})


def test_hostile_text_is_data(log: ExperimentLog):
    log.start(HOSTILE, HOSTILE)
    assert log.ladder()["title"].tolist() == [HOSTILE]
    with pytest.raises(InputError, match="cannot hold"):
        log.record_event("a\ud800")
    with pytest.raises(InputError, match="not JSON"):
        log.record_event("x", {"value": float("nan")})
    with pytest.raises(InputError, match="cannot hold"):
        log.set_project("x", device_memory_bytes=2**70)


def test_nothing_is_ever_deleted_and_json_is_checked(log: ExperimentLog):
    log.start("x")
    log.set_project("x")
    with contextlib.closing(sqlite3.connect(log.folder / "perfkit.sqlite")) as connection:
        with pytest.raises(sqlite3.IntegrityError, match="never deleted"):
            connection.execute("DELETE FROM round")
        with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
            connection.execute("UPDATE event SET detail_json = 'no json'")
        with pytest.raises(sqlite3.IntegrityError, match="cannot store TEXT"):
            connection.execute("UPDATE round SET started_ns = 'yesterday'")
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)
    tables = {name for (name,) in _sql(log.folder, "SELECT name FROM sqlite_schema WHERE type = 'table'")}
    assert tables == set(_schema.TABLE_NAMES)


def test_an_operation_that_fails_leaves_no_trace(log: ExperimentLog):
    number = log.start("x")
    before = log.show("json"), log.events()
    with pytest.raises(InputError):
        log.add_run(number, [_measured(1.0), _measured(1.0)])
    assert (log.show("json"), log.events()) == before


def test_every_operation_leaves_one_event_with_author_and_time(tmp_path: Path):
    times = iter(range(1, 1000))
    log = ExperimentLog(tmp_path, author="Ada", clock=lambda: next(times))
    log.set_project("x")
    _keep(log, log.start("x"), 1.0)
    actions = [(event["author"], event["action"]) for event in log.events()]
    assert actions == [("Ada", name) for name in ("set_project", "start", "run", "measure", "accuracy", "decide")]
    stamps = [event["at_ns"] for event in log.events()]
    assert stamps == sorted(stamps)
    assert log.events(after=log.events()[-2]["id"])[0]["action"] == "decide"


def test_a_read_only_log_shows_and_refuses_to_write(log: ExperimentLog, monkeypatch: pytest.MonkeyPatch):
    log.start("x")
    before = (log.folder / "perfkit.sqlite").read_bytes()
    reader = ExperimentLog(log.folder, read_only=True)
    assert reader.ladder()["title"].tolist() == ["x"]
    with pytest.raises(InputError, match="read-only"):
        reader.record_event("x")
    with pytest.raises(InputError, match="read-only"):
        reader.attach(0, log.folder / "perfkit.sqlite", "log")
    monkeypatch.setenv("PERFKIT_READ_ONLY", "1")
    with pytest.raises(InputError, match="read-only"):
        ExperimentLog(log.folder).start("y")
    assert (log.folder / "perfkit.sqlite").read_bytes() == before


def test_a_log_on_a_disk_that_cannot_be_written_can_be_read(log: ExperimentLog, monkeypatch: pytest.MonkeyPatch):
    log.start("x")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert ExperimentLog(log.folder, read_only=True).ladder()["title"].tolist() == ["x"]


def test_a_writer_that_holds_the_log_is_named(log: ExperimentLog):
    log.start("x")
    named = pytest.raises(InputError, match=rf"process {os.getpid()} on .*\(Bob\)")
    with database.writing(log.folder, "Bob"), named, database.writing(log.folder, "Ada", wait_s=0.05):
        pass
    with contextlib.closing(sqlite3.connect(log.folder / "perfkit.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(InputError, match="not perfkit"), database.writing(log.folder, "Ada", wait_s=0.05):
            pass
    log.record_event("afterwards it works")


def test_a_file_that_is_no_log_or_a_newer_one_is_refused_untouched(tmp_path: Path):
    path = tmp_path / "perfkit.sqlite"
    path.write_text("this is no database, but long enough to be read as one" * 50, encoding="utf-8")
    for operation in (ExperimentLog(tmp_path).ladder, lambda: ExperimentLog(tmp_path).start("x")):
        with pytest.raises(InputError, match="no experiment log"):
            operation()
    path.unlink()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(InputError, match="newer perfkit"):
        ExperimentLog(tmp_path).ladder()
    with pytest.raises(InputError, match="newer perfkit"):
        ExperimentLog(tmp_path).start("x")
    path.unlink()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE theirs (id)")
    with pytest.raises(InputError, match="another program"):
        ExperimentLog(tmp_path).start("x")


def test_an_older_log_is_migrated_after_a_backup(log: ExperimentLog, monkeypatch: pytest.MonkeyPatch):
    log.start("before")
    newer = (*_schema.MIGRATIONS, "ALTER TABLE round ADD COLUMN colour TEXT;")
    monkeypatch.setattr(_schema, "MIGRATIONS", newer)
    with pytest.raises(InputError, match="version 1 of 2"):
        log.ladder()
    log.record_event("migrates")
    assert log.ladder()["title"].tolist() == ["before"]
    assert _sql(log.folder, "SELECT colour FROM round") == [(None,)]
    with contextlib.closing(sqlite3.connect(log.folder / "perfkit.sqlite.version1.backup")) as backup:
        assert backup.execute("PRAGMA user_version").fetchone() == (1,)
        assert backup.execute("SELECT title FROM round").fetchall() == [("before",)]


def test_a_migration_that_fails_changes_nothing(log: ExperimentLog, monkeypatch: pytest.MonkeyPatch):
    log.start("before")
    broken = (*_schema.MIGRATIONS, "CREATE TABLE half (id); CREATE TABLE round (id);")
    with monkeypatch.context() as patch:
        patch.setattr(_schema, "MIGRATIONS", broken)
        with pytest.raises(InputError, match="could not be migrated"):
            log.record_event("x")
    assert log.ladder()["title"].tolist() == ["before"]
    assert _sql(log.folder, "SELECT name FROM sqlite_schema WHERE name = 'half'") == []


def _write_events(folder: Path, writer: int, start: Callable[[], object]) -> None:
    log = ExperimentLog(folder, author=f"writer {writer}")
    start()
    for index in range(25):
        log.record_event("tick", {"writer": writer, "index": index})


def test_four_processes_write_25_events_each_and_none_is_lost(tmp_path: Path):
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(4)
    writers = [context.Process(target=_write_events, args=(tmp_path, number, barrier.wait)) for number in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert [writer.exitcode for writer in writers] == [0] * 4
    found = [(event["detail"]["writer"], event["detail"]["index"]) for event in ExperimentLog(tmp_path).events()]
    assert sorted(found) == [(writer, index) for writer in range(4) for index in range(25)]
    for writer in range(4):
        assert [index for number, index in found if number == writer] == list(range(25))
    assert {path.name for path in tmp_path.iterdir()} <= {"perfkit.sqlite", "perfkit.sqlite-wal", "perfkit.sqlite-shm"}


def test_a_change_is_real_only_beyond_three_standard_errors_and_one_percent():
    assert is_real_change(100.0, 110.0, num_samples=9, median_abs_devs=(1.0, None))
    assert not is_real_change(100.0, 100.9, num_samples=9, median_abs_devs=(0.0, 0.0))
    assert not is_real_change(100.0, 110.0, num_samples=1, median_abs_devs=(1.0, 4.0))
    assert is_real_change(100.0, 110.0, num_samples=4, median_abs_devs=(1.0, 4.0))
    assert is_real_change(100.0, 90.0, num_samples=1, median_abs_devs=(None, None))


def test_a_run_waits_for_a_prediction_and_an_accuracy_check_for_a_run(log: ExperimentLog, tmp_path: Path):
    """The order of evidence: what is written down after the measurement is no prediction."""
    _keep(log, log.start("baseline"), 2000.0)
    number = log.start("pp 2")
    (tmp_path / "log.txt").write_text("x", encoding="utf-8")
    run = load(LOG)
    refused = [
        lambda: log.add_run(number, [_measured(2100)]),
        lambda: log.attach(number, LOG, "run", run=run),
        lambda: log.record_accuracy(number, "pass", steps=100),
    ]
    for operation in refused:
        with pytest.raises(InputError, match="comes before"):
            operation()
    assert log.show("json")["rounds"][1]["artefacts"] == []
    assert not list((tmp_path / "rounds").glob("01/*"))
    log.predict(number, "peak_memory_bytes", 2**35, method="estimate")
    with pytest.raises(InputError, match="goal metric"):
        log.add_run(number, [_measured(2100)])
    log.predict(number, GOAL, 2100, method="estimate")
    log.attach(number, LOG, "run", run=run)
    log.record_accuracy(number, "pass", steps=100)


def test_a_state_is_skipped_with_a_reason_that_is_kept_and_shown(log: ExperimentLog):
    _keep(log, log.start("baseline"), 2000.0)
    number = log.start("pp 2")
    with pytest.raises(InputError) as error:
        log.skip(number, "decide", "no")
    assert len(error.value.problems) == 2
    with pytest.raises(InputError, match="round 0 is decided"):
        log.skip(0, "predict", "the cluster was free for an hour")
    log.skip(number, "predict", "the cluster was free for an hour")
    with pytest.raises(InputError, match="skipped already"):
        log.skip(number, "predict", "the cluster was free for an hour")
    assert log.missing(number)["predict"] == []
    log.add_run(number, [_measured(2100)])
    (skipped,) = log.show("json")["rounds"][1]["skipped"]
    assert (skipped["state"], skipped["reason"], skipped["author"]) == ("predict", "the cluster was free for an hour", "Ada")
    assert "Skipped by Ada: predict, the cluster was free for an hour" in log.export(log.folder / "out.md").read_text("utf-8")


def test_what_is_missing_to_the_goal_and_when_to_stop(log: ExperimentLog):
    log.set_project("x", goal_value=2200.0)
    for value in (2000.0, 2010.0, 2020.0):
        _keep(log, log.start("little"), value)
    document = log.show("json")
    assert document["missing_to_goal"] == pytest.approx(180.0)
    assert document["stop_advice"] is None, "the first round has no gain"
    _keep(log, log.start("little"), 2030.0)
    assert "+0.495 %" in log.show("json")["stop_advice"]
    assert "180 tokens/s/device missing" not in log.export(log.folder / "out.md").read_text("utf-8")
    assert "170.0 tokens/s/device missing" in log.export(log.folder / "out.md").read_text("utf-8")
    _keep(log, log.start("much"), 2230.0)
    document = log.show("json")
    assert (document["missing_to_goal"], document["stop_advice"]) == (0.0, None)


def test_an_event_is_no_way_around_the_rules(log: ExperimentLog):
    log.start("base", "as it is")
    for action in sorted(_schema.OWN_ACTIONS):
        with pytest.raises(InputError, match="written by the log itself"):
            log.record_event(action, {"state": "predict", "reason": ""}, number=0)
    assert log.record_event("guess", {"value": 3}) > 0
    assert log.missing(0)


def test_a_decided_round_takes_no_further_figure(log: ExperimentLog):
    log.start("base", "as it is")
    run = log.add_run(0, [_measured(60.0)])
    log.record_accuracy(0, "not_checked", note="the guide reports none")
    log.decide(0, "keep", REASON, confirmation="not checked")
    with pytest.raises(InputError, match="decided already"):
        log.measure(run, [Measurement(metric="mfu", value=0.4, source="made up")])


def test_the_peak_that_counts_is_the_highest_since_the_run_with_the_goal(log: ExperimentLog):
    log.start("base", "as it is")
    log.add_run(0, [_measured(150.0), Measurement(metric="peak_memory_bytes", value=100, source="made up")])
    log.add_run(0, [Measurement(metric="peak_memory_bytes", value=5, source="made up")])
    log.record_accuracy(0, "not_checked", note="the guide reports none")
    with pytest.raises(InputError, match="memory"):
        log.decide(0, "keep", REASON, confirmation="not checked", memory_limit_bytes=10)
    log.add_run(0, [_measured(140.0), Measurement(metric="peak_memory_bytes", value=6, source="made up")])
    log.record_accuracy(0, "not_checked", note="the guide reports none")
    log.decide(0, "keep", REASON, confirmation="not checked", memory_limit_bytes=10)


def test_an_accuracy_check_says_nothing_of_a_run_that_came_later(log: ExperimentLog):
    log.start("base", "as it is")
    log.add_run(0, [_measured(100.0)])
    log.record_accuracy(0, "pass", steps=20)
    log.add_run(0, [_measured(200.0)])
    with pytest.raises(InputError, match="accuracy"):
        log.decide(0, "keep", REASON)
    log.record_accuracy(0, "pass", steps=20)
    log.decide(0, "keep", REASON)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -5.0])
def test_what_is_no_figure_is_not_logged(log: ExperimentLog, value: float):
    log.start("base", "as it is")
    with pytest.raises(InputError, match="finite number, 0 or more"):
        log.add_run(0, [_measured(value)])
    _keep(log, 0, 100.0)
    log.start("next", "it is faster")
    with pytest.raises(InputError, match="finite number, 0 or more"):
        log.predict(1, GOAL, value, method="made up")


def test_the_parent_of_a_round_that_is_imported_is_before_it(log: ExperimentLog, tmp_path: Path):
    for number, numbers in enumerate(([0, 5, 7], [2])):
        table = tmp_path / f"{number}.csv"
        rows = [f"{each},{GOAL},{100 + each},guide" for each in numbers]
        table.write_text("\n".join(["number,metric,value,note", *rows, ""]), encoding="utf-8")
        log.import_(table)
    assert {row["number"]: row["parent"] for row in log.show("json")["rounds"]} == {0: None, 2: 0, 5: 0, 7: 5}
