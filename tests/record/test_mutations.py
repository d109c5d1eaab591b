"""Whatever happens to a file: an InputError or a run that says what it lost, and never a rank with more time than there is."""

import contextlib
import gzip
import io
import json
import shutil
import sqlite3
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder
from perfkit.core.run import Run
from perfkit.record.load import load

DATA = Path(__file__).parent.parent / "data" / "traces"
TWO_RANKS = data_folder() / "traces" / "torch_npu_2rank"
CARDS_16 = data_folder() / "traces" / "cluster_16card"
LIMIT_S = 30
"""CPU seconds of a load, far more than any of these takes and far less than forever."""
COMMON = settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def kineto_events(**changes: object) -> list[dict[str, object]]:
    kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 100.5, "dur": 10.25, "args": {"stream": 7}}
    step = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1, "tid": 1, "ts": 90, "dur": 200}
    return [step, kernel | changes, kernel | {"ts": 150, "name": "ncclDevKernel_AllReduce", "dur": 40.125}]


KINETO = json.dumps({"distributedInfo": {"rank": 0}, "traceEvents": kineto_events() * 20}).encode()
SAMPLES = {
    "kineto": ("trace.json", KINETO),
    "kernels": ("kernel_details.csv", next(TWO_RANKS.rglob("kernel_details.csv")).read_bytes()[:6000]),
    "steps": ("step_trace_time.csv", next(TWO_RANKS.rglob("step_trace_time.csv")).read_bytes()),
    "communication": ("communication.json", next(TWO_RANKS.rglob("communication.json")).read_bytes()[:8000]),
    "cluster": ("cluster_step_trace_time.csv", (CARDS_16 / "cluster_step_trace_time.csv").read_bytes()),
    "mindformers": ("worker_0.log", next((DATA / "logs" / "mindformers").iterdir()).read_bytes()[:8000]),
    "megatron": ("train.log", next((DATA / "logs" / "megatron").iterdir()).read_bytes()[-8000:]),
    "tracker": ("memory_block.csv", next(DATA.rglob("*memory_block.csv")).read_bytes()[:4000]),
}
INSERTS = [
    b"\0",
    b"\xff\xfe",
    b'"',
    b"\n",
    b",",
    b"9" * 400,
    b"-",
    b"1e400",
    b"NaN",
    b"[" * 3000,
    b'{"a":' * 3000,
    b"x" * 100_000,
    "\u2028<img src=x onerror=alert(1)>".encode(),
]


def opened(folder: Path) -> Run | None:
    """The run in a folder, or None if it is refused as an InputError must refuse it; anything else fails the test."""
    began = time.process_time()
    try:
        run = load(folder, cache=False)
    except InputError:
        return None
    finally:
        assert time.process_time() - began < LIMIT_S
    check(run)
    return run


def check(run: Run) -> None:
    """What holds for every run: no negative time, leaves that sum to their step, every table readable."""
    for table in run.tables:
        run.frame(table)
    kernels = run.frame("kernels")
    assert (kernels["duration_ns"] >= 0).all()
    steps = run.steps()
    assert (steps["duration_ns"] >= 0).all()
    for row in steps.to_dict("records"):
        parts = run.frame("step_parts", ranks=[int(row["rank"])], steps=[int(row["step"])])
        if len(parts) and parts["amount_ns"].notna().all():
            assert int(parts["amount_ns"].sum()) == int(row["duration_ns"])


def placed(folder: Path, sample: str, content: bytes) -> Path:
    """A folder of its own that holds one file where its format looks for it."""
    shutil.rmtree(folder, ignore_errors=True)
    inner = folder / "rank0_ascend_pt" / "ASCEND_PROFILER_OUTPUT" if sample in ("kernels", "steps", "communication") else folder
    inner.mkdir(parents=True)
    (inner / SAMPLES[sample][0]).write_bytes(content)
    return folder


@pytest.mark.parametrize("sample", SAMPLES)
def test_the_samples_are_read_before_they_are_spoilt(tmp_path: Path, sample: str):
    assert opened(placed(tmp_path / "run", sample, SAMPLES[sample][1])) is not None


@pytest.mark.parametrize("sample", SAMPLES)
@COMMON
@given(share=st.floats(0, 1))
@example(share=0.0)
def test_a_file_cut_at_any_byte(tmp_path: Path, sample: str, share: float):
    content = SAMPLES[sample][1]
    opened(placed(tmp_path / "run", sample, content[: int(share * len(content))]))


@pytest.mark.parametrize("sample", SAMPLES)
@COMMON
@given(share=st.floats(0, 1), insert=st.sampled_from(INSERTS), replaced=st.integers(0, 30))
def test_bytes_that_do_not_belong_there(tmp_path: Path, sample: str, share: float, insert: bytes, replaced: int):
    content = SAMPLES[sample][1]
    at = int(share * len(content))
    opened(placed(tmp_path / "run", sample, content[:at] + insert + content[at + replaced :]))


values = st.sampled_from([None, True, "", "7", "x", -1, -0.5, 2**63, 10**30, 1e308, [], [[1]], {}, {"a": 1}])


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(key=st.sampled_from(["ph", "cat", "name", "pid", "tid", "ts", "dur", "args"]), value=values)
def test_values_of_any_type_in_a_kineto_event_cost_that_event_at_most(tmp_path: Path, key: str, value: object):
    events = kineto_events(**{key: value})
    content = json.dumps({"traceEvents": events}).encode()
    run = opened(placed(tmp_path / "run", "kineto", content))
    assert run is not None
    kept = run.frame("kernels")
    assert "ncclDevKernel_AllReduce" in set(kept["name"])
    if len(kept) == 1:
        assert run.dropped or run.notes or key in ("ph", "cat")


def test_of_duplicate_keys_the_last_one_counts(tmp_path: Path):
    text = json.dumps(kineto_events()).replace('"dur": 10.25', '"dur": 5, "dur": 10.25').encode()
    run = opened(placed(tmp_path / "run", "kineto", text))
    assert run is not None
    assert sorted(run.frame("kernels")["duration_ns"]) == [10_250, 40_125]


def test_a_negative_duration_is_counted_and_its_neighbors_are_kept(tmp_path: Path):
    run = opened(placed(tmp_path / "run", "kineto", json.dumps(kineto_events(dur=-5)).encode()))
    assert run is not None
    assert len(run.frame("kernels")) == 1
    assert sum(lost.count for lost in run.dropped) == 1


def test_overlapping_kernels_are_all_kept_and_their_time_counts_once(tmp_path: Path):
    run = opened(placed(tmp_path / "run", "kineto", json.dumps([*kineto_events(), *kineto_events(ts=105, dur=3)[1:2]]).encode()))
    assert run is not None
    assert len(run.frame("kernels")) == 3
    assert int(run.steps()["computing_ns"].iloc[0]) == 10_250


def test_a_name_of_megabytes_is_one_name(tmp_path: Path):
    name = "x" * 4_000_000
    run = opened(placed(tmp_path / "run", "kineto", json.dumps(kineto_events(name=name)).encode()))
    assert run is not None
    assert name in set(run.frame("kernels")["name"])


def test_a_clock_two_hours_off_is_aligned_and_no_step_is_longer(tmp_path: Path):
    for rank, shift in ((0, 0.0), (1, 7.2e9)):
        args = {
            "stream": 7,
            "Collective name": "allreduce",
            "Process Group Name": "0",
            "Group size": 2,
            "In msg nelems": 8,
            "dtype": "Float",
        }
        events = [
            {
                "ph": "X",
                "cat": "kernel",
                "name": "ncclDevKernel_AllReduce",
                "pid": 0,
                "tid": 7,
                "ts": 1e6 + shift + k * 100,
                "dur": 50,
                "args": args,
            }
            for k in range(20)
        ]
        (tmp_path / f"rank{rank}.json").write_text(json.dumps({"distributedInfo": {"rank": rank}, "traceEvents": events}))
    run = opened(tmp_path)
    assert run is not None
    assert abs(abs(run.clock[0] - run.clock[1]) - 7_200_000_000_000) < 1000
    assert set(run.steps()["duration_ns"]) == {1_950_000}


def test_ranks_with_different_numbers_of_steps_each_keep_their_own(tmp_path: Path):
    folder = Path(shutil.copytree(TWO_RANKS, tmp_path / "run"))
    first = sorted(folder.rglob("step_trace_time.csv"))[0]
    header, row, *_ = first.read_text().splitlines()
    step, rest = row.split(",", 1)
    first.write_text("\n".join([header, row, f"{int(float(step or 0)) + 1},{rest}"]) + "\n")
    run = opened(folder)
    assert run is not None
    assert run.steps().groupby("rank").size().tolist() == [2, 1]


@pytest.mark.parametrize("sample", ["cluster_analysis.db"])
@COMMON
@given(share=st.floats(0, 1), insert=st.sampled_from(INSERTS))
def test_a_database_with_other_bytes(tmp_path: Path, sample: str, share: float, insert: bytes):
    content = next(DATA.rglob(sample)).read_bytes()
    at = int(share * len(content))
    shutil.rmtree(tmp_path / "run", ignore_errors=True)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / sample).write_bytes(content[:at] + insert + content[at + len(insert) :])
    opened(tmp_path / "run")


def tables_of_databases() -> dict[Path, list[str]]:
    """The first tables of every kind of database, each with the smallest file that has it."""
    found: dict[Path, list[str]] = {}
    known = set()
    for path in sorted(DATA.rglob("*.db"), key=lambda path: (path.stat().st_size, path)):
        with contextlib.closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as source:
            tables = [name for (name,) in source.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        kind = path.name.rpartition("_")[0]
        found[path] = [name for name in tables if not name.startswith("sqlite_")][:12]
        found[path] = [name for name in found[path] if (kind, name) not in known]
        known |= {(kind, name) for name in found[path]}
    return {path: tables for path, tables in found.items() if tables}


DATABASES = tables_of_databases()


@pytest.mark.parametrize("sample", DATABASES, ids=lambda path: path.name)
def test_a_database_that_lacks_a_table(tmp_path: Path, sample: Path):
    for number, table in enumerate(DATABASES[sample]):
        folder = tmp_path / str(number) / "ASCEND_PROFILER_OUTPUT"
        folder.mkdir(parents=True)
        copy = Path(shutil.copy(sample, folder))
        copy.chmod(0o644)
        with sqlite3.connect(copy) as target:
            target.execute(f'DROP TABLE "{table}"')
        target.close()
        opened(folder.parent)


@pytest.mark.parametrize("name", ["../evil.json", "/etc/evil.json", "C:\\evil.json", "a/../../evil.json"])
def test_an_archive_that_leads_out_of_its_folder_is_refused_and_writes_nothing(tmp_path: Path, monkeypatch, name: str):
    monkeypatch.setenv("PERFKIT_CACHE", str(tmp_path / "cache"))
    with zipfile.ZipFile(tmp_path / "ranks.zip", "w") as archive:
        archive.writestr(name, KINETO)
    with pytest.raises(InputError, match="nothing was unpacked"):
        load(tmp_path / "ranks.zip")
    assert not list(tmp_path.rglob("*evil*"))


def test_a_zip_bomb_is_refused_with_its_limit(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("PERFKIT_CACHE", str(tmp_path / "cache"))
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("rank0.json", b"[" + b" " * 40_000_000)
    with pytest.raises(InputError, match="200-fold"):
        load(tmp_path / "bomb.zip")


def test_a_gzip_bomb_is_read_up_to_a_bound(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("perfkit.record.readers.blocks._HARMLESS_BYTES", 1_000_000)
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=9) as stream:
        stream.write(KINETO[:-2] + b"," + b" " * 60_000_000 + b"]}")
    (tmp_path / "rank0.json.gz").write_bytes(packed.getvalue())
    run = opened(tmp_path)
    assert run is not None
    assert any("200-fold" in lost.what for lost in run.dropped) or any("200-fold" in note for note in run.notes)


@pytest.mark.slow
def test_a_single_string_of_100_mb_costs_its_event_and_is_counted_within_300_mib(tmp_path: Path):
    path = tmp_path / "trace.json"
    before, _, after = (json.dumps(event).encode() for event in kineto_events())
    with path.open("wb") as stream:
        stream.write(b'{"traceEvents": [' + before + b', {"ph": "X", "cat": "kernel", "name": "')
        for _ in range(100):
            stream.write(b"x" * 1_000_000)
        stream.write(b'", "ts": 1, "dur": 2}, ' + after + b'], "long": "')
        for _ in range(40):
            stream.write(b"y" * 1_000_000)
        stream.write(b'", "distributedInfo": {"rank": 3}}')
    # A new process starts with the peak of the one that made it; the status of its own memory does not.
    code = (
        f"import perfkit; run = perfkit.load({str(path)!r}, cache=False); rows = run.frame('kernels'); "
        "print(len(rows), int(rows['duration_ns'].sum()), *run.ranks, sum(lost.count for lost in run.dropped)); "
        "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))"
    )
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    kernels, total_ns, rank, dropped, peak_kib = map(int, child.stdout.split())
    assert (kernels, total_ns, rank, dropped) == (1, 40_125, 3, 2)
    assert peak_kib * 1024 < 300 * 2**20
