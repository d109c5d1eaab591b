"""JSON of Ascend profilers: exact, and what the fast decoder refuses is read with care."""

from decimal import Decimal
from pathlib import Path

import pytest

from perfkit.core.errors import InputError
from perfkit.record.formats.ascend.json import read_json
from perfkit.record.listing import File


def content_of(tmp_path: Path, text: bytes) -> object:
    path = tmp_path / "a.json"
    path.write_bytes(text)
    return read_json(File(path, Path("a.json"), len(text)), depth=1)[0]


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (b'{"a": 1736408883704643.212}', {"a": Decimal("1736408883704643.212")}),
        (b'{"a": 18446744073709551616, "a": -0.0}', {"a": Decimal("-0.0")}),
        (b'\xef\xbb\xbf{"a": 0.10}', {"a": Decimal("0.10")}),
        (b'{"a": "\xff", "b": 1.5}', {"a": "\ufffd", "b": Decimal("1.5")}),
        (b'{"a": 1.5, "b": {"c": 2.50}, "d": {"e"', {"a": Decimal("1.5"), "b": {"c": Decimal("2.50")}}),
    ],
    ids=["19 digits", "repeated key", "byte order mark", "no UTF-8", "cut"],
)
def test_numbers_are_the_decimals_of_the_text(tmp_path: Path, text: bytes, content: object):
    assert repr(content_of(tmp_path, text)) == repr(content)


@pytest.mark.parametrize("text", [b'{"a": 1e99999999999999999999}', b'{"a": ' + b"1" * 5000 + b"}", b"[" * 100_000, b"{"])
def test_what_cannot_be_read_is_an_error_that_names_the_file(tmp_path: Path, text: bytes):
    with pytest.raises(InputError, match=r"a\.json: 1 problem"):
        content_of(tmp_path, text)
