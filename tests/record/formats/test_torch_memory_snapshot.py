"""Memory snapshots of PyTorch: blocks and curve that add up to what the allocator holds, and nothing of a pickle that runs."""

import contextlib
import gzip
import os
import pickle
from pathlib import Path

import pytest

import perfkit
from perfkit.core.errors import InputError
from perfkit.record.formats.memory._plain_pickle import NotPlainError, load_plain

FRAMES = [
    {"filename": "/opt/python/site-packages/torch/nn/functional.py", "line": 9, "name": "linear"},
    {"filename": "/src/model.py", "line": 42, "name": "forward"},
]


def entry(action: str, address: int, size: int, time_us: int, **more: object) -> dict[str, object]:
    return {"action": action, "addr": address, "size": size, "stream": 0, "time_us": time_us, "frames": FRAMES, **more}


def snapshot(**changes: object) -> dict[str, object]:
    held = [
        {"address": 0x1000, "size": 512, "requested_size": 500, "state": "active_allocated", "frames": []},
        {"address": 0x1200, "size": 1024, "requested_size": 1024, "state": "active_allocated", "frames": FRAMES},
        {"address": 0x1600, "size": 512, "requested_size": 0, "state": "inactive", "frames": []},
    ]
    segment = {"device": 0, "address": 0x1000, "total_size": 2048, "allocated_size": 1536, "active_size": 1536, "stream": 0}
    trace = [
        entry("segment_alloc", 0x1000, 2048, 1_700_000_000_000_000),
        entry("alloc", 0x1600, 512, 1_700_000_000_000_010),
        entry("alloc", 0x1200, 1024, 1_700_000_000_000_020),
        entry("free_requested", 0x1600, 512, 1_700_000_000_000_030),
        entry("free_completed", 0x1600, 512, 1_700_000_000_000_040),
        {"action": "oom", "size": 4096, "device_free": 100, "time_us": 1_700_000_000_000_050, "stream": 0, "frames": []},
    ]
    return {"segments": [segment | {"blocks": held}], "device_traces": [trace], "allocator_settings": {}} | changes


def written(folder: Path, content: object, name: str = "snapshot_rank3.pickle") -> Path:
    (folder / name).write_bytes(pickle.dumps(content))
    return folder / name


def test_blocks_have_the_line_of_the_user_and_those_from_before_have_no_start(tmp_path: Path):
    run = perfkit.load(written(tmp_path, snapshot()), cache=False)
    blocks = run.frame("memory_blocks").sort_values("address", ignore_index=True)
    assert run.ranks == (3,) or list(run.ranks) == [3]
    assert blocks["bytes"].tolist() == [512, 1024, 512]
    assert blocks["start"].tolist()[1:] == [1_700_000_000_000_020_000, 1_700_000_000_000_010_000]
    assert blocks["start"].isna().tolist() == [True, False, False]
    assert blocks["end"].isna().tolist() == [True, True, False]
    assert blocks["place"].tolist()[1] == "/src/model.py:42"
    assert not run.dropped


def test_the_curve_ends_at_what_the_segments_hold(tmp_path: Path):
    curve = perfkit.load(written(tmp_path, snapshot()), cache=False).frame("memory_curve")
    assert curve["allocated_bytes"].tolist() == [512, 1024, 2048, 1536, 1536]
    assert curve["active_bytes"].tolist() == [512, 1024, 2048, 2048, 1536]
    assert curve["reserved_bytes"].tolist() == [2048] * 5


def test_a_snapshot_that_was_packed_is_the_same_run(tmp_path: Path):
    plain = written(tmp_path, snapshot())
    packed = tmp_path / "packed" / "snapshot_rank3.pickle.gz"
    packed.parent.mkdir()
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    one, other = (perfkit.load(path, cache=False) for path in (plain, packed))
    for table in ("memory_blocks", "memory_curve"):
        assert one.frame(table).equals(other.frame(table))
    packed.write_bytes(packed.read_bytes()[:-40])
    with pytest.raises(InputError, match="gzip data ends early"):
        perfkit.load(packed, cache=False)


def test_an_allocation_that_failed_is_an_incident(tmp_path: Path):
    incidents = perfkit.load(written(tmp_path, snapshot()), cache=False).frame("incidents")
    assert incidents["kind"].tolist() == ["out_of_memory"]
    assert incidents["time_ns"].tolist() == [1_700_000_000_000_050_000]
    assert "4096 bytes" in incidents["text"].tolist()[0]


def test_entries_without_an_address_or_size_are_counted(tmp_path: Path):
    trace = [entry("alloc", 1, 2, 3), {"action": "alloc", "time_us": 4}, {"action": "unheard of", "time_us": 5}]
    run = perfkit.load(written(tmp_path, snapshot(device_traces=[trace])), cache=False)
    assert sum(lost.count for lost in run.dropped) == 2


class _Runs:
    """What a hostile pickle does when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.path),)


def test_a_pickle_that_would_run_something_is_refused_and_nothing_runs(tmp_path: Path):
    hostile = written(tmp_path, snapshot(more=_Runs(tmp_path / "made")))
    with pytest.raises(InputError, match="nothing was run"):
        perfkit.load(hostile, cache=False)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_values_are_those_that_pickle_gives(protocol: int):
    value = {"text": "é\n\\", "list": [1, -1, 2**40, 2**80, -(2**80), 1.5, None, True, False], "tuple": (1, (2,), (), (1, 2, 3, 4))}
    value["again"] = [value["list"]] * 300
    assert load_plain(pickle.dumps(value, protocol)) == value


def test_containers_are_no_keys_however_deep():
    deep = b"\x80\x02}" + b")" + b"\x85" * 100_000 + b"K\x00s."
    with pytest.raises(NotPlainError, match="a key"):
        load_plain(deep)


@pytest.mark.parametrize("cut", range(0, 400, 7))
def test_a_pickle_that_is_cut_or_flipped_is_plain_or_refused(cut: int):
    content = bytearray(pickle.dumps(snapshot()))
    with pytest.raises(NotPlainError):
        load_plain(bytes(content[: cut + 1]))
    content[cut] ^= 0x10
    with contextlib.suppress(NotPlainError):
        load_plain(bytes(content))
