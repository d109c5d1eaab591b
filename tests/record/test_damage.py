"""Hundreds of damaged recordings: no foreign exception, no hang, and no total that changes without a loss that is counted."""

import gzip
import random
import re
import shutil
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import pytest

from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder
from perfkit.core.run import Run
from perfkit.core.schema import TABLES
from perfkit.record.load import load

TESTS = Path(__file__).parent.parent / "data" / "traces"
TWO_RANKS = data_folder() / "traces" / "torch_npu_2rank"
SAMPLES = {
    "kineto": next((TESTS / "tracelens" / "mi210").rglob("*.json.gz")),
    "kernels": next(TWO_RANKS.rglob("kernel_details.csv")),
    "communication": next(TWO_RANKS.rglob("communication.json")),
    "memscope": next((TESTS / "memscope").glob("*.csv")),
    "memory": next((TESTS / "ascend_memory").rglob("operator_memory.csv")),
    "timeline": TESTS / "ascend_trace_view" / "single_npu" / "trace_view.json.gz",
    "cluster": next((data_folder() / "traces" / "cluster_16card").rglob("cluster_step_trace_time.csv")),
}
TABULAR = (
    next(TWO_RANKS.rglob("kernel_details.csv")).parents[1],
    TESTS / "memory_tracker" / "older",
    TESTS / "memscope",
    TESTS / "mindinsight" / "run_2",
    TESTS / "mindinsight" / "run_3",
    data_folder() / "traces" / "cluster_16card",
)
"""Folders of tables, each of which has an end of its last line."""
LIMIT_S = 10
"""CPU seconds that the reading of any damaged file of this size may take."""
JUNK = (b"abc", b"1e30", b"NaN", b"-5", b"{}", b"[]", b"9" * 40, b"0", b"true", b"1.5.2")
NUMBER = re.compile(rb'(?<=[:,\s"])-?\d+(?:\.\d+)?(?=[,\s"}\r\n])')


def cut(content: bytes, chance: random.Random) -> bytes:
    return content[: chance.randrange(len(content))]


def beheaded(content: bytes, chance: random.Random) -> bytes:
    return content[chance.randrange(len(content)) :]


def flipped(content: bytes, chance: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(chance.choice((1, 3, 30))):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def without_lines(content: bytes, chance: random.Random) -> bytes:
    lines = content.split(b"\n")
    first = chance.randrange(len(lines))
    return b"\n".join([*lines[:first], *lines[first + chance.choice((1, 2, 10)) :]])


def of_other_types(content: bytes, chance: random.Random) -> bytes:
    numbers = list(NUMBER.finditer(content))
    changed = bytearray(content)
    for found in sorted(chance.sample(numbers, min(len(numbers), chance.choice((1, 5, 100)))), key=lambda found: -found.start()):
        changed[found.start() : found.end()] = chance.choice(JUNK)
    return bytes(changed)


def encoded(content: bytes, chance: random.Random) -> bytes:
    text = content.decode("utf-8", "replace")
    return text.encode(chance.choice(("utf-16", "utf-16-le", "utf-16-be", "utf-8-sig", "utf-32")))


DAMAGE: Sequence[Callable[[bytes, random.Random], bytes]] = (cut, beheaded, flipped, without_lines, of_other_types, encoded)


@cache
def content_of(sample: str) -> bytes:
    content = SAMPLES[sample].read_bytes()
    return gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content


def opened(folder: Path, sample: str, content: bytes) -> Run | None:
    """The run of one file in a folder of its own, None if it is refused."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / SAMPLES[sample].name.removesuffix(".gz")).write_bytes(content)
    began = time.process_time()
    try:
        run = load(folder, cache=False)
        totals(run)
        return run
    except InputError:
        return None
    finally:
        assert time.process_time() - began < LIMIT_S


def totals(run: Run) -> dict[str, int]:
    """Rows and sums of times and bytes of every table of what ran."""
    found: dict[str, int] = {}
    for table in ("kernels", "collectives", "steps", "memory_blocks", "memory_curve"):
        frame = run.frame(table)
        found[table] = len(frame)
        for column in frame.columns:
            if column.endswith(("duration_ns", "bytes")):
                found[f"{table}.{column}"] = int(frame[column].fillna(0).astype("object").sum())
    return found


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("sample", SAMPLES)
def test_whatever_happens_to_a_file_it_is_refused_or_read_in_time(tmp_path: Path, sample: str, damage):
    for seed in range(8):
        opened(tmp_path / "run", sample, damage(content_of(sample), random.Random(f"{sample}{seed}")))


@pytest.mark.parametrize("sample", SAMPLES)
def test_another_encoding_changes_no_total(tmp_path: Path, sample: str):
    plain = opened(tmp_path / "run", sample, content_of(sample))
    assert plain is not None
    for seed in range(4):
        run = opened(tmp_path / "run", sample, encoded(content_of(sample), random.Random(seed)))
        assert run is not None
        assert totals(run) == totals(plain)


@pytest.mark.parametrize("damage", [cut, of_other_types], ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("sample", ["kineto", "kernels", "timeline", "communication"])
def test_a_row_that_is_gone_is_counted(tmp_path: Path, sample: str, damage):
    plain = opened(tmp_path / "run", sample, content_of(sample))
    assert plain is not None
    for seed in range(8):
        run = opened(tmp_path / "run", sample, damage(content_of(sample), random.Random(f"{sample}{seed}")))
        if run is not None and any(run_rows < totals(plain)[name] for name, run_rows in totals(run).items() if "." not in name):
            assert sum(lost.count for lost in run.dropped) > sum(lost.count for lost in plain.dropped)


def sums(run: Run) -> dict[str, object]:
    """The rows and the sums of numbers of all tables, also of those that are read when they are asked for."""
    frames = {table: run.frame(table).select_dtypes("number") for table in TABLES if table != "coverage" and run.has(table)}
    return {table: (len(frame), frame.astype("float64").sum().to_dict()) for table, frame in frames.items()}


@pytest.mark.parametrize("folder", TABULAR, ids=lambda folder: folder.name)
def test_a_table_cut_within_its_last_number_changes_no_total_unsaid(tmp_path: Path, folder: Path):
    shutil.copytree(folder, tmp_path / "run")
    plain = load(tmp_path / "run", cache=False)
    told, whole = 0, sums(plain)
    assert not any("has no end" in note for note in plain.notes)
    for path in sorted((tmp_path / "run").rglob("*.csv")):
        content = path.read_bytes()
        *_, number = re.finditer(rb"(?<![\w.])\d[\d.]*", content)
        path.write_bytes(content[: number.start() + 1])
        run = load(tmp_path / "run", cache=False)
        said = any(path.name in note and "has no end" in note for note in run.notes)
        assert said or sums(run) == whole, path.name
        told += said
        path.write_bytes(content)
    assert told


def test_a_table_that_ends_after_its_header_is_said(tmp_path: Path):
    sample = TESTS / "mindinsight" / "run_3"
    name = "step_trace_raw_1_detail_time.csv"
    shutil.copytree(sample, tmp_path / "run")
    header = (sample / name).read_bytes().partition(b"\n")[0]
    for content in (header, header[: header.index(b",tail")], header + b"\n"):
        (tmp_path / "run" / name).write_bytes(content)
        run = load(tmp_path / "run", cache=False)
        assert run.steps().empty
        assert [(lost.what, lost.file) for lost in run.dropped] == [("table that ends after its header", name)]


def test_operations_that_stand_in_one_of_two_files_are_said(tmp_path: Path):
    shutil.copytree(TWO_RANKS, tmp_path / "run")
    assert not any("alone" in note for note in load(tmp_path / "run", cache=False).notes)
    file = next((tmp_path / "run").glob("rank1*/**/communication.json"))
    file.write_bytes(file.read_bytes().replace(b"hcom_allReduce__", b"hcom_allRedtce__", 1))
    notes = [note for note in load(tmp_path / "run", cache=False).notes if "alone" in note]
    assert [("communication.json" in note, "1 operation(s)" in note, "and 1 in" in note) for note in notes] == [(True, True, True)]
