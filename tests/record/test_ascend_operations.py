"""Communication files of many ranks at once: the same columns as one rank after the other, and odd files told apart."""

import json
from pathlib import Path

import pandas as pd
import pytest

from perfkit.core.resources import data_folder
from perfkit.record.format import Sink
from perfkit.record.formats.ascend._collectives import read_operations, told_of
from perfkit.record.formats.ascend._operations import read_columns
from perfkit.record.listing import File

TRACES = Path(__file__).parent.parent / "data" / "traces"
FILES = sorted([*data_folder().rglob("communication.json"), *TRACES.rglob("communication.json")])


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
