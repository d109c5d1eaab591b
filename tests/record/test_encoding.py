"""Encodings: the same run whatever the encoding and line ends of its files, and content that no reader is surprised by."""

import json
from pathlib import Path

import pytest

import perfkit
from perfkit.core.resources import data_folder
from perfkit.record.encoding import as_utf8, encoding_of, is_plain
from perfkit.record.load import load

TWO_RANKS = data_folder() / "traces" / "torch_npu_2rank"
CHANGES = {
    "utf-16": lambda text: text.encode("utf-16"),
    "utf-16-le": lambda text: text.encode("utf-16-le"),
    "utf-16-be": lambda text: text.encode("utf-16-be"),
    "utf-32": lambda text: text.encode("utf-32"),
    "utf-8-sig": lambda text: text.encode("utf-8-sig"),
    "cr": lambda text: text.replace("\r\n", "\n").replace("\n", "\r").encode(),
    "crlf": lambda text: text.replace("\r\n", "\n").replace("\n", "\r\n").encode(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_profile_saved_by_another_program_is_the_same_run(tmp_path: Path, change: str):
    for source in TWO_RANKS.rglob("*"):
        target = tmp_path / source.relative_to(TWO_RANKS)
        if source.is_dir():
            target.mkdir(parents=True, exist_ok=True)
        elif source.suffix in (".csv", ".json"):
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(CHANGES[change](source.read_text(encoding="utf-8-sig")))
    plain, changed = load(TWO_RANKS, cache=False), load(tmp_path, cache=False)
    for table in ("steps", "kernels", "collectives", "links", "utilization"):
        assert changed.frame(table).astype(str).equals(plain.frame(table).astype(str)), table
    assert [lost.what for lost in changed.dropped] == [lost.what for lost in plain.dropped]


@pytest.mark.parametrize("change", CHANGES)
def test_a_kineto_file_saved_by_another_program_is_the_same_run(tmp_path: Path, change: str):
    kernel = {"ph": "X", "cat": "kernel", "name": "gemm é", "pid": 0, "tid": 7, "ts": 100.5, "dur": 10.25}
    text = json.dumps({"traceEvents": [kernel] * 3}, indent=1, ensure_ascii=False)
    (tmp_path / "rank0.json").write_bytes(CHANGES[change](text))
    run = load(tmp_path, cache=False)
    assert run.frame("kernels")["duration_ns"].tolist() == [10_250] * 3
    assert set(run.frame("kernels")["name"]) == {"gemm é"}


def test_blocks_may_end_within_a_letter():
    text = "Name,Start\rgemm é 𝄞,1\r"
    for encoding in ("utf-16", "utf-16-be", "utf-32-le"):
        content = text.encode(encoding) if encoding != "utf-32-le" else text.encode("utf-32")
        found = b"".join(as_utf8(content[at : at + 7] for at in range(0, len(content), 7)) if encoding != "x" else [])
        assert found.decode("utf-8-sig").replace("\r", "\n") == text.replace("\r", "\n")


def test_binary_content_is_left_as_it_is():
    for content in (b"SQLite format 3\0" + bytes(100), bytes(range(256)), b"\0" * 64, b"", b"a", b"{}"):
        assert encoding_of(content) is None
        assert b"".join(as_utf8([content])) == content
    assert not is_plain(b"a,b\r1,2\r")
    assert is_plain(b"a,b\r\n1,2\r\n")
    assert perfkit.load is not None
