"""The event reader against the standard library, on whole, cut and damaged text."""

import gzip
import json
import zlib
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfkit.record.listing import File
from perfkit.record.readers import blocks, lexer
from perfkit.record.readers.lexer import LOST_EVENTS, LOST_TAIL, LOST_TEXT, EventReader

HOSTILE = ['},{"ph":"X"', '"', "\\", "\n", "]", "}],", "é\u2028", '{"traceEvents": [', ""]


class Event(msgspec.Struct):
    ph: str
    name: str | None = None
    ts: msgspec.Raw = msgspec.Raw()
    args: object = None


def file_of(path, content):
    path.write_bytes(content)
    return File(path, Path(path.name), len(content))


def read(path, content, keys=()):
    reader = EventReader(file_of(path, content), Event, keys=keys)
    return [event for events in reader for event in events], reader


def names(events):
    return [event.name for event in events]


def as_document(events, form, indent):
    body = json.dumps(events, indent=indent)
    if form == "list":
        return body.encode()
    return f'{{"schemaVersion": 1, "other": [{{"ph": 1}}, "]"], "traceEvents": {body}, "last": {{"ph": [{{}}, {{}}]}}}}'.encode()


texts = st.one_of(st.sampled_from(HOSTILE), st.text(st.characters(codec="utf-8"), max_size=8))
values = st.recursive(
    texts | st.integers(), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=6
)
events_lists = st.lists(st.fixed_dictionaries({"ph": st.just("X"), "name": texts, "args": values}), max_size=12)
documents = st.tuples(events_lists, st.sampled_from(["list", "object"]), st.sampled_from([None, 2]))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "trace.json"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150, deadline=None)
@given(documents, st.integers(1, 200), st.booleans())
def test_any_trace_in_blocks_of_any_size_gives_what_the_standard_library_reads(path, monkeypatch, document, block, zipped):
    monkeypatch.setattr(blocks, "BLOCK_BYTES", block)
    content = as_document(*document)
    events, reader = read(path, gzip.compress(content) if zipped else content)
    assert [(event.ph, event.name, event.args) for event in events] == [
        (event["ph"], event["name"], event["args"]) for event in document[0]
    ]
    assert (reader.num_events, dict(+reader.lost), reader.repaired, reader.damage) == (len(events), {}, 0, None)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150, deadline=None)
@given(documents, st.data(), st.integers(1, 200))
def test_text_cut_anywhere_keeps_the_complete_events_and_says_that_it_was_cut(path, monkeypatch, document, data, block):
    monkeypatch.setattr(blocks, "BLOCK_BYTES", block)
    content = as_document(*document)
    kept = content[: data.draw(st.integers(1, len(content) - 1))]
    events, reader = read(path, kept)
    assert names(events) == names_of_prefix(document[0], kept)
    assert reader.damage or +reader.lost


def names_of_prefix(events, content):
    """Names of the events of which every byte is in `content`, found by trying ever shorter lists."""
    start = content.find(b'"traceEvents": [') + 15 if content.startswith(b"{") else 0
    for count in range(len(events), 0, -1):
        for indent in (None, 2):
            if content[start:].startswith(json.dumps(events[:count], indent=indent).encode()[:-1].rstrip()):
                return [event["name"] for event in events[:count]]
    return []


def test_keys_around_the_events_are_kept_if_asked_for(path):
    content = b'\xef\xbb\xbf {"a": {"b": [1, "]}"]}, "traceEvents": [{"ph": "X"}], "c": 2, "d": 3}'
    events, reader = read(path, content, keys=("a", "c"))
    assert len(events) == 1
    assert reader.head == {"a": {"b": [1, "]}"]}, "c": 2}


def test_digits_of_times_are_kept_as_written(path):
    events, _ = read(path, b'[{"ph": "X", "ts": 1736408883704643.212}, {"ph": "X", "ts": "1.5"}]')
    assert [bytes(event.ts) for event in events] == [b"1736408883704643.212", b'"1.5"']


def test_lists_one_after_another_are_all_read(path):
    assert names(read(path, b'[{"ph":"X","name":"a"}]\n[{"ph":"X","name":"b"}]')[0]) == ["a", "b"]


GOOD = b'{"ph": "X", "name": "good"}'


@pytest.mark.parametrize(
    ("event", "name"),
    [
        (b'{"ph": "X", "name": "two\nlines"}', "two\nlines"),
        (b'{"ph": "X", "name": "nul\x00 bell\x07"}', "nul\x00 bell\x07"),
        (b'{"ph": "X", "name": "C:\\path\\u12"}', "C:\\path\\u12"),
        (b'{"ph": "X", "name": "n", "args": {"x": NaN, "y": -Infinity}}', "n"),
        (b'{"ph": "X", "name": "latin \xe9"}', "latin \ufffd"),
    ],
)
def test_an_event_with_wrong_characters_is_repaired_and_counted(path, event, name):
    events, reader = read(path, b"[" + b",\n".join([GOOD, event, GOOD]) + b"]")
    assert names(events) == ["good", name, "good"]
    assert (reader.repaired, +reader.lost) == (1, {})


def test_repair_keeps_the_digits_of_a_time(path):
    events, _ = read(path, b'[{"ph": "X", "name": "a\nb", "ts": 1736408883704643.212}]')
    assert bytes(events[0].ts) == b"1736408883704643.212"


@pytest.mark.parametrize(
    "event",
    [
        b'{"ph": "X", "name": "open }',
        b'{"ph": "X", "name": "quo"te"}',
        b'{"ph": "X", "name": 01}',
        b'{"ph": "X", "name": [}',
        b'{"name": "no phase"}',
        b'{"ph": 7}',
        b"17",
        b'{"ph": "X", "args": ' + b"[" * 3000 + b"]" * 3000 + b"}",
    ],
)
@pytest.mark.parametrize("block", [40, 2**20])
def test_a_broken_event_is_counted_and_its_neighbors_are_kept(path, monkeypatch, event, block):
    monkeypatch.setattr(blocks, "BLOCK_BYTES", block)
    events, reader = read(path, b'{"traceEvents": [' + b",\n".join([GOOD, GOOD, event, GOOD, GOOD]) + b'], "z": 1}', keys=("z",))
    assert names(events) == ["good"] * 4
    assert reader.lost[LOST_EVENTS] == 1
    assert reader.head == {"z": 1}


def test_many_broken_events_cost_no_neighbor(path):
    events, reader = read(path, b"[" + b",".join([GOOD, b'{"ph": "X", "name": tru}'] * 500) + b"]")
    assert len(events) == 500
    assert reader.lost[LOST_EVENTS] == 500


def test_bytes_behind_the_last_complete_event_are_counted(path):
    events, reader = read(path, b"[" + GOOD + b',{"ph": "X", "name')
    assert len(events) == 1
    assert reader.lost[LOST_TAIL] == len(b'{"ph": "X", "name')
    assert "ends before" in reader.damage


def test_a_gzip_file_cut_in_half_keeps_what_can_be_inflated(path):
    content = json.dumps([{"ph": "X", "name": f"{index * 7919 % 1009}"} for index in range(20_000)]).encode()
    packed = gzip.compress(content)
    events, reader = read(path, packed[: len(packed) // 2])
    inflated = zlib.decompressobj(31).decompress(packed[: len(packed) // 2])
    assert len(events) == inflated.count(b"}")
    assert "ends early" in reader.damage


def test_a_gzip_file_with_a_wrong_checksum_keeps_every_event(path):
    packed = bytearray(gzip.compress(b"[" + GOOD + b"]"))
    packed[-8] ^= 1
    events, reader = read(path, bytes(packed))
    assert len(events) == 1
    assert "damaged" in reader.damage


def test_damage_in_the_middle_of_gzip_keeps_the_events_before_it(path):
    content = json.dumps([{"ph": "X", "name": f"{index * 7919 % 1009}"} for index in range(60_000)]).encode()
    packed = bytearray(gzip.compress(content))
    packed[len(packed) // 2 :] = b"\xff" * (len(packed) - len(packed) // 2)
    events, reader = read(path, bytes(packed))
    assert 20_000 < len(events) < 40_000  # what the defect itself inflates to before it is noticed may be anything
    assert names(events)[:20_000] == [f"{index * 7919 % 1009}" for index in range(20_000)]
    assert reader.damage


def test_gzip_members_one_after_another_are_one_text(path):
    content = b"[" + GOOD + b"," + GOOD + b"]"
    events, reader = read(path, gzip.compress(content[:20]) + gzip.compress(content[20:]) + b"\0" * 16)
    assert len(events) == 2
    assert reader.damage is None


@pytest.mark.parametrize("content", [b"", b"<html>", b"hello, world", b"\x00\x01"])
def test_what_is_no_trace_gives_no_event(path, content):
    events, reader = read(path, content)
    assert events == []
    assert bool(reader.lost[LOST_TEXT]) == (content.strip(b"\0 ,") != b"")


def test_blocks_are_read_without_decoding_the_whole_document(path, monkeypatch):
    monkeypatch.setattr(lexer, "_MIN_EVENTS", 10)
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 1000)
    reader = EventReader(file_of(path, b"[" + b",".join([GOOD] * 1000) + b"]"), Event)
    sizes = [len(events) for events in reader]
    assert sum(sizes) == 1000
    assert max(sizes) < 100
