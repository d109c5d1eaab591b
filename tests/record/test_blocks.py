"""Blocks of gzip files: all content of a trace, and only the beginning of what cannot be one."""

import gzip
import os
from pathlib import Path

import pytest

from perfkit.record.listing import File
from perfkit.record.readers import blocks as _blocks
from perfkit.record.readers.blocks import Blocks, mentions


def blocks(path: Path, content: bytes) -> Blocks:
    path.write_bytes(gzip.compress(content))
    return Blocks(File(path, Path(path.name), path.stat().st_size))


def test_content_that_packs_well_is_read_whole(tmp_path: Path):
    content = b'{"ph":"X","name":"kernel","ts":1.5,"dur":2},\n' * 200_000
    found = blocks(tmp_path / "a.gz", content)
    assert b"".join(found) == content
    assert found.damage is None


def test_a_bomb_is_read_up_to_the_limit_and_called_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_blocks, "_HARMLESS_BYTES", 1 << 20)
    monkeypatch.setattr(_blocks, "BLOCK_BYTES", 1 << 20)
    found = blocks(tmp_path / "a.gz", bytes(100 << 20))
    num_read = sum(len(block) for block in found)
    assert num_read < 40 << 20
    assert found.damage is not None
    assert "200-fold" in found.damage


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
@pytest.mark.parametrize("packed", [False, True])
def test_a_word_is_found_wherever_the_blocks_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, packed: bool):
    monkeypatch.setattr(_blocks, "BLOCK_BYTES", size)
    path = tmp_path / "a.json"
    path.write_bytes(gzip.compress(b"[needle, hay]") if packed else b"[needle, hay]")
    file = File(path, Path(path.name), path.stat().st_size)
    assert mentions(file, b"needle")
    assert mentions(file, b"hay]")
    assert not mentions(file, b"needles")


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="the system takes no advice on files")
@pytest.mark.parametrize(("free_bytes", "let_go_bytes"), [(1 << 40, 0), (1000, 3500)])
def test_what_was_read_of_a_file_that_does_not_fit_is_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_bytes: int, let_go_bytes: int
):
    monkeypatch.setattr(_blocks, "BLOCK_BYTES", 1000)
    monkeypatch.setattr(_blocks, "_SMALL_BYTES", 100)
    monkeypatch.setattr(_blocks, "free_memory_bytes", lambda: free_bytes)
    told: list[tuple[int, int, int]] = []
    monkeypatch.setattr(_blocks.os, "posix_fadvise", lambda _, start, length, advice: told.append((advice, start, length)))
    path = tmp_path / "a.json"
    path.write_bytes(b"x" * 3500)
    assert b"".join(Blocks(File(path, Path(path.name), 3500))) == b"x" * 3500
    let_go = [(start, length) for advice, start, length in told if advice == os.POSIX_FADV_DONTNEED]
    assert sum(length for _, length in let_go) == let_go_bytes
    assert all(start == 1000 * at for at, (start, _) in enumerate(let_go))
