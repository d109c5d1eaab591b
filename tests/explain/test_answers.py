"""Answers: what a run says when it is asked, in SQL too, and as a trace that is read again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perfkit.core.errors import InputError, NotMeasuredError
from perfkit.core.questions import Questions
from perfkit.core.run import Run
from perfkit.core.schema import TABLES
from perfkit.explain import answers
from perfkit.explain.summary import summarize
from perfkit.record.load import load

DATA = Path(__file__).parents[1] / "data" / "traces"


@pytest.fixture(scope="module")
def dlrm() -> Run:
    return load(DATA / "dlrm_8xV100", cache=False)


@pytest.fixture(scope="module")
def bert() -> Run:
    return load(DATA / "tracelens/h100/gaunernst_bert-small-uncased__1016001.json.gz", cache=False)


def test_every_question_has_an_answer_and_a_docstring():
    asked = [name for name in vars(Questions) if not name.startswith("_")]
    assert len(asked) >= 11
    for name in asked:
        assert callable(getattr(answers, name))
        assert getattr(Questions, name).__doc__


def test_kernel_statistics_are_those_of_their_rows(dlrm):
    table = dlrm.kernels(rank=3)
    rows = dlrm.frame("kernels", ranks=[3])
    assert table["count"].sum() == len(rows)
    assert table["total_ns"].sum() == rows["duration_ns"].sum()
    first = rows[rows["name"] == table["name"][0]]["duration_ns"]
    assert (table["min_ns"][0], table["max_ns"][0]) == (first.min(), first.max())
    assert table["std_ns"][0] == pytest.approx(first.std(), abs=1)
    assert table["share"].sum() == pytest.approx(1.0)


def test_the_rank_that_is_waited_for_is_the_first_row(dlrm):
    assert dlrm.waiting()["rank"][0] == 7
    assert dlrm.collectives()["spread_ns"][0] == pytest.approx(7_600_000, abs=300_000)


def test_a_summary_names_the_late_rank(dlrm):
    first = summarize(dlrm)["waiting"][0]
    assert (first["rank"], first["times_last"]) == (7, 5)
    assert first["latest_ns"] == pytest.approx(7_600_000, abs=300_000)


def test_a_wrong_column_rank_step_or_group_is_answered_with_the_right_ones(dlrm):
    with pytest.raises(KeyError, match=r"'duration' is no column, do you mean .*'duration_ns'"):
        dlrm.idle(rank=0)["duration"]
    with pytest.raises(InputError, match="ranks found: 0, 1, 2"):
        dlrm.kernels(rank=99)
    with pytest.raises(InputError, match="steps found: 10"):
        dlrm.critical_path(step=11)
    with pytest.raises(InputError, match="do you mean 'name'"):
        dlrm.kernels(by="nam")
    with pytest.raises(KeyError, match=r"'computing' is no column, do you mean .*'computing_ns'"):
        dlrm.steps()["computing"]
    with pytest.raises(InputError, match=r"kernels: 'duration' is no column, do you mean 'duration_ns'"):
        dlrm.frame("kernels", columns=["rank", "duration"])
    with pytest.raises(InputError, match=r"'kernel' is no table, do you mean 'kernels'"):
        dlrm.frame("kernel")


def test_idle_gaps_sum_to_the_free_time_of_the_steps(dlrm):
    gaps = dlrm.idle().groupby("rank")["duration_ns"].sum()
    assert gaps.to_dict() == dlrm.steps().set_index("rank")["free_ns"].to_dict()


def test_the_critical_path_of_a_median_step_is_the_default():
    run = load(DATA / "kineto_tb_samples/resnet50_num_workers_4", cache=False)
    lengths = run.steps().sort_values("duration_ns")["duration_ns"].tolist()
    assert run.critical_path()["duration_ns"].sum() == lengths[len(lengths) // 2]


def test_queues_begin_and_end_empty_and_are_never_negative(dlrm):
    table = dlrm.queue_length(rank=0)
    assert table["length"].min() == 0
    assert (table.groupby("stream")["length"].last() == 0).all()
    launched = dlrm.frame("launches", ranks=[0]).dropna(subset=["launch_ns"])
    waited = (launched["start_ns"] - launched["launch_ns"]).clip(lower=0).sum()
    assert (table["length"] * table["duration_ns"]).sum() == waited


def test_modules_share_the_time_of_the_host_and_of_the_device(bert):
    table = bert.modules(rank=0)
    outer = table[table["depth"] == 0]
    assert table["own_host_ns"].sum() == outer["host_ns"].sum()
    assert table["own_device_ns"].sum() == outer["device_ns"].sum() <= bert.frame("kernels")["duration_ns"].sum()
    assert outer["device_ns"].sum() > 0
    assert any("BertLayer" in path for path in table["path"])
    assert len(bert.modules(step=6)) <= len(table)


def test_what_was_not_recorded_is_not_measured(tmp_path):
    run = load(DATA / "hta/rank_non_gpu", cache=False)
    with pytest.raises(NotMeasuredError):
        run.queue_length()


def test_memory_and_counters_that_were_not_recorded_are_not_measured(dlrm):
    for ask in (dlrm.memory, dlrm.counters):
        with pytest.raises(NotMeasuredError, match="over time"):
            ask()
        with pytest.raises(NotMeasuredError, match="rank 3"):
            ask(rank=3)


def test_a_counter_that_is_not_there_is_answered_with_those_that_are():
    run = load(DATA / "torch_npu_db/level1", cache=False)
    assert set(run.counters(name="freq")["name"]) == {"AI Core Freq"}
    with pytest.raises(InputError, match="'AI Core Freq'"):
        run.counters(name="AI Core Frq")


def test_ranks_without_a_timeline_do_not_keep_the_others_from_being_idle():
    run = load(DATA / "torch_npu_pp2dp2", cache=False)
    assert len(run.ranks) == 4
    assert set(run.idle()["rank"]) == {0, 2}
    with pytest.raises(NotMeasuredError, match="rank 1"):
        run.idle(rank=1)


def test_sql_over_the_tables_gives_what_pandas_gives(dlrm):
    found = dlrm.sql("SELECT rank, kind, SUM(duration_ns) AS total_ns FROM kernels GROUP BY rank, kind ORDER BY rank, kind")
    wanted = dlrm.frame("kernels").groupby(["rank", "kind"], observed=True)["duration_ns"].sum()
    assert found.set_index(["rank", "kind"])["total_ns"].to_dict() == wanted.to_dict()
    joined = dlrm.sql(
        "WITH s AS (SELECT rank, duration_ns FROM steps) SELECT COUNT(*) AS n FROM kernels k JOIN s ON k.rank = s.rank"
    )
    assert joined["n"].tolist() == [len(dlrm.frame("kernels"))]
    assert dlrm.sql("SELECT step FROM kernels WHERE step IS NULL")["step"].isna().all()


@pytest.mark.parametrize(
    "query",
    [
        "DROP TABLE kernels",
        "CREATE TABLE x AS SELECT * FROM kernels",
        "-- SELECT\nDELETE FROM kernels",
        "",
    ],
)
def test_sql_only_answers_questions_about_the_run(dlrm, query):
    with pytest.raises(InputError, match="only SELECT over the tables"):
        dlrm.sql(query)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        """SELECT * FROM "read_csv"('/etc/passwd')""",
        "SELECT * FROM `read_parquet` ('/etc/passwd')",
        "SELECT * FROM READ_JSON /* x */ ('/etc/passwd')",
        """SELECT * FROM "read_ipc" /* x */ ('/etc/passwd')""",
        "SELECT * FROM read_csv --'\n('/etc/passwd')",
        "SELECT * FROM read_csv/*'*/('/etc/passwd')",
        """SELECT b AS "'" FROM read_csv('/etc/passwd')""",
        "SELECT $$'$$ FROM read_csv('/etc/passwd')",
    ],
)
def test_sql_reads_no_file_however_the_call_is_hidden(dlrm, query):
    with pytest.raises(InputError, match="no files"):
        dlrm.sql(query)


def test_no_column_has_a_name_that_the_guard_takes_for_a_function_of_files():
    for name, table in TABLES.items():
        for column in table.columns:
            assert not column.name.startswith(("read_", "scan_")), (name, column.name)


def test_sql_takes_literals_as_they_are(dlrm):
    assert dlrm.sql("SELECT 'a--b' AS text, '/* */' AS call FROM kernels LIMIT 1").values.tolist() == [["a--b", "/* */"]]


def test_sql_with_wrong_names_says_the_nearest(dlrm):
    with pytest.raises(InputError, match="do you mean kernels"):
        dlrm.sql("SELECT * FROM kernel")
    with pytest.raises(InputError, match="duration_ns"):
        dlrm.sql("SELECT duration FROM kernels")


@pytest.mark.parametrize(
    "sample", ["tracelens/h100/gaunernst_bert-small-uncased__1016001.json.gz", "hta/trace_diff/test.json.gz", "torch_npu_level0"]
)
def test_an_exported_trace_is_read_again_with_the_same_times(tmp_path, sample):
    run = load(DATA / sample, cache=False)
    rank = run.ranks[0]
    again = load(run.export_chrome(tmp_path / "trace.json.gz", ranks=[rank]), cache=False)
    columns = ["name", "start_ns", "duration_ns", "kind"]
    kernels = [each.frame("kernels", ranks=[rank], columns=columns).astype({"name": str, "kind": str}) for each in (run, again)]
    old, new = (frame.sort_values(["start_ns", "name", "duration_ns"], ignore_index=True) for frame in kernels)
    assert (old["start_ns"] + run.clock.get(rank, 0)).tolist() == new["start_ns"].tolist()
    assert old["duration_ns"].tolist() == new["duration_ns"].tolist()
    assert old["name"].tolist() == new["name"].tolist()
    counts = [each.frame("launches", ranks=[rank])["launch_ns"].notna().sum() for each in (run, again)]
    assert counts[0] == counts[1]


def test_ranks_in_one_exported_trace_have_processes_and_flows_of_their_own(dlrm, tmp_path):
    events = json.loads(dlrm.export_chrome(tmp_path / "out.json", ranks=[1, 6]).read_text(encoding="utf-8"))["traceEvents"]
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert sorted(names.values()) == ["rank 1 device", "rank 1 host", "rank 6 device", "rank 6 host"]
    for rank in (1, 6):
        process = next(pid for pid, name in names.items() if name == f"rank {rank} device")
        executed = [event for event in events if event["ph"] == "X" and event["pid"] == process]
        assert len(executed) == len(dlrm.frame("kernels", ranks=[rank]))
    flows = [(event["ph"], event["id"]) for event in events if event["ph"] in "sf"]
    assert len(flows) == len(set(flows)) > 0
    assert {each for phase, each in flows if phase == "s"} == {each for phase, each in flows if phase == "f"}


def test_an_exported_trace_has_flows_names_and_hostile_text_as_text(tmp_path):
    event = {"ph": "X", "cat": "kernel", "name": '\0"},{"x', "ts": 1, "dur": 2, "pid": 0, "tid": 7, "args": {"correlation": 1}}
    call = {**event, "cat": "cuda_runtime", "name": "launch", "ts": 0, "tid": 1}
    (tmp_path / "rank0.json").write_text(json.dumps({"traceEvents": [event, call]}), encoding="utf-8")
    run = load(tmp_path / "rank0.json", cache=False)
    document = json.loads(run.export_chrome(tmp_path / "out.json").read_text(encoding="utf-8"))
    phases = [event["ph"] for event in document["traceEvents"]]
    assert phases.count("s") == phases.count("f") == 1
    assert any(each["name"] == event["name"] for each in document["traceEvents"])
    assert {"process_name", "thread_name"} <= {each["name"] for each in document["traceEvents"]}
