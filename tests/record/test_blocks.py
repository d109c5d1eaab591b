"""Blocks of gzip files: all content of a trace, and only the beginning of what cannot be one."""

import gzip
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
