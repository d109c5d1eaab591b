"""A file read in parts is the file read as one: whatever stands in it, wherever it is cut, also at wrong borders."""

import contextlib
import dataclasses
import gzip
import json
import random
from pathlib import Path
from unittest.mock import patch

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.record import workers
from perfkit.record.formats.kineto import _events, _in_parts
from perfkit.record.formats.kineto._events import read_recording
from perfkit.record.formats.kineto._host import read_host
from perfkit.record.listing import File
from perfkit.record.readers import parts
from perfkit.record.readers._json_text import Cuts
from perfkit.record.readers.spool import Spool

SAMPLES = Path(__file__).parents[1] / "data" / "traces"


def event(phase, number, **more):
    return {"ph": phase, "name": f"e{number % 3}", "ts": 10 * number, "pid": 0, "tid": 1, **more}


def executed(number):
    return event("X", number, cat="kernel", dur=3, args={"correlation": number, "stream": 7, "Collective name": "allreduce"})


def launched(number):
    return event("X", number, cat="cuda_runtime", dur=1, args={"correlation": number})


def marked(number):
    return {**event("X", number, cat="user_annotation", dur=9), "name": f"ProfilerStep#{number % 4}"}


def holding_events(number):
    """Between the inner ones borders are guessed that are none."""
    return event("X", number, cat="cpu_op", dur=2, args={"inner": [executed(inner) for inner in range(number)]})


KINDS = [
    *[executed, launched, marked, holding_events],
    *(lambda number, phase=phase: event(phase, number, cat="cpu_op") for phase in "BE"),
    *(lambda number, phase=phase: event(phase, 40 - 7 * number % 40, cat="cpu_op") for phase in "BE"),  # in any order
    lambda number: event("C", number, args={"value": number}),
    lambda number: event("X", number, cat="kernel", dur="?"),
]
bodies = st.lists(st.sampled_from(KINDS), min_size=4, max_size=30).map(
    lambda kinds: json.dumps([make(number) for number, make in enumerate(kinds)])
)
documents = st.one_of(
    bodies,
    bodies.map(lambda body: f'{{"schemaVersion": 1, "traceEvents": {body}, "baseTimeNanoseconds": 1700000000000000000}}'),
    st.tuples(bodies, bodies).map("\n".join),
    st.tuples(bodies, bodies).map(lambda two: f'{{"other": {two[0]}, "traceEvents": {two[1]}}}'),
)


@st.composite
def damaged(draw):
    content = draw(documents).encode()
    if draw(st.booleans()):
        start = draw(st.integers(0, len(content)))
        content = (
            content[:start]
            + draw(st.sampled_from([b"", b'"', b"}", b"]", b"{", b"\\"]))
            + content[start + draw(st.integers(0, 5)) :]
        )
    return content[: draw(st.integers(len(content) // 2, len(content)))] if draw(st.booleans()) else content


def as_one(recording):
    """All fields of a recording, frames without their borders; but `middle_ns`, which is any time in the middle."""
    names = {field.name for field in dataclasses.fields(recording)} - {"file", "middle_ns"}
    fields = {name: getattr(recording, name) for name in names}
    for name, value in fields.items():
        frames = list(value) if isinstance(value, Spool) else [value] if isinstance(value, pd.DataFrame) else None
        if frames is not None:
            rows = [row for frame in frames for row in frame.astype("object").to_dict("records")]
            fields[name] = [{key: None if pd.isna(cell) else cell for key, cell in row.items()} for row in rows]
    return fields


def host_rows(side):
    """Both tables of the host side, frames without their borders."""
    frames = [*side.host, side.launches.assign(of="launches")]
    rows = [row for frame in frames for row in frame.astype("object").to_dict("records")]
    return [{key: None if pd.isna(cell) else cell for key, cell in row.items()} for row in rows]


def file_of(path, content):
    path.write_bytes(content)
    return File(path, Path(path.name), len(content))


@contextlib.contextmanager
def cut_every(num_bytes):
    """Files are cut into parts of this size; gives a list that grows by one a part that was joined."""
    joined = []
    join = _events.Columns.join
    with (
        patch.object(parts, "PART_BYTES", num_bytes),
        patch.object(_events.Columns, "join", lambda self, later: (joined.append(later), join(self, later))),
    ):
        yield joined


@given(damaged(), st.integers(30, 1500))
def test_a_file_in_parts_is_the_file_as_one(tmp_path_factory, content, part_bytes):
    file = file_of(tmp_path_factory.mktemp("trace") / "rank0.json", content)
    whole = as_one(read_recording(file))
    with cut_every(part_bytes):
        assert as_one(read_recording(file)) == whole


@given(damaged(), st.integers(30, 1500))
def test_the_host_of_a_file_in_parts_is_that_of_the_file_as_one(tmp_path_factory, content, part_bytes):
    file = file_of(tmp_path_factory.mktemp("trace") / "rank0.json", content)
    steps = read_recording(file).steps
    whole = host_rows(read_host(file, steps))
    with cut_every(part_bytes):
        assert host_rows(read_host(file, steps)) == whole


def test_all_parts_of_a_sound_file_are_proven(tmp_path):
    file = file_of(tmp_path / "rank0.json", json.dumps({"traceEvents": [executed(number) for number in range(200)]}).encode())
    with cut_every(1000) as joined:
        read_recording(file)
    assert len(joined) == len(parts_at(file, 1000)) > 10


def test_behind_a_border_that_was_none_the_file_is_read_as_one(tmp_path):
    events = [executed(0), holding_events(100), *map(executed, range(198))]
    file = file_of(tmp_path / "rank0.json", json.dumps({"traceEvents": events}).encode())
    with cut_every(3000) as joined:
        recording = read_recording(file)
    assert (len(joined), recording.num_events, recording.lost.total(), recording.damage) == (1, 200, 0, None)


def test_processes_read_what_one_reads(tmp_path, monkeypatch):
    file = file_of(tmp_path / "rank0.json", json.dumps({"traceEvents": [executed(number) for number in range(2000)]}).encode())
    whole = as_one(read_recording(file))
    monkeypatch.setattr(workers, "MIN_BYTES", 1)
    monkeypatch.setenv("PERFKIT_THREADS", "2")
    said = []
    host = host_rows(read_host(file, []))
    with cut_every(60_000) as joined:
        assert as_one(read_recording(file, said.append)) == whole
        assert host_rows(read_host(file, [])) == host
    assert len(joined) >= workers.MIN_ITEMS
    assert sum(said) == file.size_bytes


@pytest.mark.parametrize("content", [b"", b"[", json.dumps([executed(0)]).encode("utf-16")])
def test_what_shows_no_border_is_one_part(tmp_path, content):
    assert parts_at(file_of(tmp_path / "rank0.json", content), 10) == [parts.WHOLE]


def parts_at(file, num_bytes):
    with patch.object(parts, "PART_BYTES", num_bytes):
        return parts.parts_of(file)


def repeated(sample, num_bytes=120_000):
    """The beginning of a sample, its events again and again, and its end, as its text stands in the file."""
    raw = sample.read_bytes()
    content = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    first = Cuts().boundary.search(content)
    start, stop = content.index(b"[", content.index(b'"traceEvents"')) + 1, content.rindex(b"]")
    events = content[start : Cuts().last(content, first.end(), min(stop, start + num_bytes // 3))]
    return content[:start] + b",\n".join([events] * 3) + content[stop:]


DAMAGES = {
    "lost": lambda around: around[: len(around) // 3] + around[len(around) // 3 * 2 :],
    "zeros": lambda around: bytes(len(around)),
    "quote": lambda around: around.replace(b'"', b"", 1),
    "brace": lambda around: around.replace(b"}", b"", 1),
    "closed": lambda around: around.replace(b"}", b"}]", 1),
    "number": lambda around: around.replace(b'"ts": ', b'"ts": x', 1),
    "control": lambda around: around.replace(b'": "', b'": "\x01', 1),
    "twice": lambda around: around * 2,
}


@pytest.mark.parametrize(
    "sample",
    [
        "hta/trace_compare/base.json.gz",
        "kineto_tb_samples/docs_traces/after_fix_trace.json",
        "dlrm_8xV100/worker0.json.gz",
    ],
)
def test_damage_near_a_border_is_that_of_the_whole_file(tmp_path, sample):
    content = repeated(SAMPLES / sample)
    part_bytes = len(content) // 4
    file = file_of(tmp_path / "rank0.json", content)
    borders = [part.start for part in parts_at(file, part_bytes)[1:]]
    assert len(borders) >= 2
    chance = random.Random(sample)
    for damage in DAMAGES.values():
        at = chance.choice(borders) + chance.randrange(-90, 30)
        changed = content[:at] + damage(content[at : at + 60]) + content[at + 60 :]
        file = file_of(tmp_path / "rank0.json", changed)
        whole = as_one(read_recording(file))
        with cut_every(part_bytes):
            assert as_one(read_recording(file)) == whole


@pytest.mark.parametrize("change", [-700, 700])
def test_a_file_that_grows_or_shrinks_meanwhile_is_read_as_it_is(tmp_path, change):
    events = [json.dumps(executed(number)) for number in range(60)]
    content = ("[" + ",".join(events)).encode()
    file = file_of(tmp_path / "rank0.json", content)
    borders = parts_at(file, 1000)
    file.path.write_bytes(content[:change] if change < 0 else content + b"," + ",".join(events).encode()[:change])
    whole = as_one(read_recording(file))
    with cut_every(1000), patch.object(_in_parts, "parts_of", return_value=borders):
        assert as_one(read_recording(file)) == whole


def test_how_lines_end_is_told_by_the_beginning_of_the_file(tmp_path):
    events = [{**executed(number), "name": "a\rb"} for number in range(80)]
    text = json.dumps(events).replace("\\r", "\r")
    for content in (text, text.replace(", {", ", \n{", 1), text.replace(", {", ",\r{")):
        file = file_of(tmp_path / "rank0.json", content.encode())
        whole = as_one(read_recording(file))
        with cut_every(2000):
            assert as_one(read_recording(file)) == whole


def test_processes_end_before_the_rest_is_read_as_one(tmp_path, monkeypatch):
    events = [executed(number) for number in range(2000)]
    events[100]["ph"] = 7
    file = file_of(tmp_path / "rank0.json", json.dumps({"traceEvents": events}).encode())
    whole = as_one(read_recording(file))
    monkeypatch.setattr(workers, "MIN_BYTES", 1)
    monkeypatch.setenv("PERFKIT_THREADS", "2")
    started, running = [], []
    popen, part_of = workers.subprocess.Popen, parts.Part

    def start(*arguments, **options):
        started.append(popen(*arguments, **options))
        return started[-1]

    def rest(*arguments):
        running.extend(process for process in started if process.poll() is None)
        return part_of(*arguments)

    monkeypatch.setattr(workers.subprocess, "Popen", start)
    monkeypatch.setattr(_in_parts, "Part", rest)
    said = []
    with cut_every(60_000):
        assert as_one(read_recording(file, said.append)) == whole
    assert sum(said) == file.size_bytes
    assert (len(started), running) == (2, [])
