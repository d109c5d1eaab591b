"""Reading a configuration: its text, its dialect by content, its plan; all problems at once, nothing ever executed."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from perfkit.config.dialects._write import write_config
from perfkit.config.dialects.dialect import MARK, Document
from perfkit.config.dialects.registry import read_document
from perfkit.core.errors import InputError
from perfkit.core.spec.plan import Plan

MAX_BYTES = 1_000_000
STANDARD_INPUT = "-"


def read_config(path: str | Path) -> Plan:
    """The plan of a file as it stands; `perfkit.read_config` (`perfkit.predict.reading`) also solves what a row leaves open.

    Raises InputError that lists every problem with file, line, key and value.
    """
    return _read(load_document(path))


def read_text(text: str, name: str, path: Path | None = None) -> Plan:
    """As `read_config`, for a text that is in memory; `name` is what messages call it, what it refers to lies beside `path`."""
    return _read(Document(name=name, path=path, **_content(name, text.encode("utf-8", "surrogatepass"))))


def _read(document: Document) -> Plan:
    return read_document(replace(document, write=write_config))


def load_document(path: str | Path) -> Document:
    """The text of a configuration, not yet read as one; `-` is standard input. Raises InputError for what is no text in UTF-8."""
    if str(path) == STANDARD_INPUT:
        return Document(name="standard input", **_content("standard input", sys.stdin.buffer.read(MAX_BYTES + 1)))
    file = Path(path)
    if not file.exists():
        raise InputError(str(path), ["the file does not exist"])
    if file.is_dir():
        raise InputError(str(path), ["this is a folder; name one configuration file in it"])
    try:
        with file.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(str(path), [f"the file cannot be read: {error.strerror}"]) from error
    return Document(name=file.name, path=file, **_content(str(path), raw))


def _content(name: str, raw: bytes) -> dict[str, Any]:
    text = _text(name, raw)
    return {"text": text.removeprefix(MARK), "marked": text.startswith(MARK)}


def _text(name: str, raw: bytes) -> str:
    if not raw.strip():
        raise InputError(name, ["the file is empty"])
    if len(raw) > MAX_BYTES:
        raise InputError(name, [f"the file has more than {MAX_BYTES // 1_000_000} MB; a configuration is a text of a few KB"])
    if b"\0" in raw:
        raise InputError(name, [f"byte {raw.index(0)} is zero: the file is binary, not text in UTF-8"])
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise InputError(name, [f"line {line}: byte 0x{raw[error.start]:02x} is not UTF-8; save the file as UTF-8"]) from error
