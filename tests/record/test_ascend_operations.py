"""Communication files of many ranks at once: the same columns as one rank after the other, and odd files told apart."""

import json
from pathlib import Path

import pandas as pd
import pytest

from perfkit.core.resources import data_folder
from perfkit.record.format import Sink
from perfkit.record.formats.ascend._collectives import read_linked, read_links, read_operations, told_of
from perfkit.record.formats.ascend._operations import read_columns
from perfkit.record.listing import File

TRACES = Path(__file__).parent.parent / "data" / "traces"
FILES = sorted([*data_folder().rglob("communication.json"), *TRACES.rglob("communication.json")])
LINKS = sorted([*data_folder().rglob("communication_matrix.json"), *TRACES.rglob("communication_matrix.json")])


def _file(path: Path) -> File:
    return File(path, Path(path.name), path.stat().st_size)


def test_all_samples_at_once_are_what_each_of_them_is():
    files = {rank: _file(path) for rank, path in enumerate(FILES)}
    found, careful = read_columns(files)
    one_by_one = told_of([(rank, read_operations(file, rank, Sink())) for rank, file in files.items() if rank not in careful])
    assert len(found)
    pd.testing.assert_frame_equal(found, one_by_one, check_dtype=False)


@pytest.mark.parametrize("value", ['"soon"', "-5", "null", "1e400", "[]", '"NaNs"'])
def test_a_file_with_a_time_that_is_none_is_told_apart(tmp_path: Path, value: str):
    document = json.loads(FILES[0].read_text(encoding="utf-8-sig"))
    times = next(info for kinds in document.values() for names in kinds.values() for name, info in names.items() if "@" in name)
    times["Communication Time Info"]["Elapse Time(ms)"] = 123456
    (tmp_path / "communication.json").write_text(json.dumps(document).replace("123456", value))
    found, careful = read_columns({5: _file(FILES[0]), 7: _file(tmp_path / "communication.json")})
    assert careful == [7]
    assert set(found["rank"]) == {5}


def test_the_groups_of_links_are_known_without_the_links():
    for path in LINKS:
        file = _file(path)
        assert read_linked(file) == {link.group for link in read_links(file, 0, Sink())}


@pytest.mark.parametrize("value", [b"-5", b'"soon"', b"1e400", b"true", b"[]", None])
def test_no_loss_of_a_link_goes_uncounted_because_only_its_group_is_asked_for(tmp_path: Path, value: bytes | None):
    text = b'"0-1"' if value is None else b'"Transit Size(MB)": 0'
    other = b'"0-x"' if value is None else b'"Transit Size(MB)": ' + value + b', "x": 0'
    content = next(content for path in LINKS if text in (content := path.read_bytes()))
    damaged = tmp_path / "communication_matrix.json"
    damaged.write_bytes(content.replace(text, other, 1))
    sink = Sink()
    read_links(_file(damaged), 0, sink)
    assert sink.dropped
    assert read_linked(_file(damaged)) is None
