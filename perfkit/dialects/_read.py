"""Reading a configuration: its text, its dialect by content, its plan; all problems at once, nothing ever executed."""

from __future__ import annotations

import sys
from pathlib import Path

from perfkit._discover import constants
from perfkit.dialects._dialect import Dialect, Document
from perfkit.errors import InputError
from perfkit.spec.plan import Plan

MAX_BYTES = 1_000_000
STANDARD_INPUT = "-"


def read_config(path: str | Path) -> Plan:
    """Read a MindFormers YAML, a file of Megatron arguments or perfkit's TOML; `-` reads standard input.

    The dialect is recognised by content. `plan.document` holds the text and what is worth telling: keys that nothing reads,
    defaults taken, notes. Raises InputError that lists every problem with file, line, key and value.
    """
    return _read(_document(path))


def read_text(text: str, name: str) -> Plan:
    """As `read_config`, for a text that is already in memory; `name` is what messages call it."""
    return _read(Document(name=name, text=_text(name, text.encode("utf-8", "surrogatepass"))))


def dialects() -> tuple[Dialect, ...]:
    """All dialects, by module name."""
    return constants("perfkit.dialects", "DIALECT")


def _read(document: Document) -> Plan:
    found = [dialect for dialect in dialects() if dialect.detect(document)]
    if not found:
        wanted = [f"{dialect.title}: looks for {dialect.looks_for}" for dialect in dialects()]
        raise InputError(document.name, ["the content is in no configuration dialect that perfkit reads", *wanted])
    if len(found) > 1:
        titles = " and as ".join(dialect.title for dialect in found)
        raise InputError(document.name, [f"the content reads as {titles}; keep one configuration a file"])
    return found[0].read(document)


def _document(path: str | Path) -> Document:
    if str(path) == STANDARD_INPUT:
        return Document(name="standard input", text=_text("standard input", sys.stdin.buffer.read(MAX_BYTES + 1)))
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
    return Document(name=file.name, text=_text(str(path), raw), path=file)


def _text(name: str, raw: bytes) -> str:
    if not raw.strip():
        raise InputError(name, ["the file is empty"])
    if len(raw) > MAX_BYTES:
        raise InputError(name, [f"the file has more than {MAX_BYTES // 1_000_000} MB; a configuration is a text of a few KB"])
    if b"\0" in raw:
        raise InputError(name, [f"byte {raw.index(0)} is zero: the file is binary, not text in UTF-8"])
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise InputError(name, [f"line {line}: byte 0x{raw[error.start]:02x} is not UTF-8; save the file as UTF-8"]) from error
