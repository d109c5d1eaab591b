"""What is fuzzed: everything that reads bytes from elsewhere, and samples to begin with.

A target takes any bytes. It returns, or raises a `PerfkitError`, which is what a person can act on; anything else that it raises is
found. The first bytes of some inputs choose between spellings of one reader.
"""

from __future__ import annotations

import gzip
import io
import json
import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from perfkit.config.dialects.read import read_text
from perfkit.config.flat_keys import config_keys
from perfkit.config.lint import lint_text
from perfkit.core import units
from perfkit.core.errors import PerfkitError
from perfkit.explain.graph.parse import read_stream
from perfkit.explain.ranks import parse_ranks
from perfkit.explain.what_if import parse_changes
from perfkit.face.widgets._messages import decode
from perfkit.predict.plans.balance.moves import parse_layers
from perfkit.project import open_project
from perfkit.project.experiments._import import read_rounds
from perfkit.record.archive import is_archive, unpack_into
from perfkit.record.formats.memory._plain_pickle import NotPlainError, load_plain
from perfkit.record.load import load
from perfkit.record.readers._json_text import value_end

ROOT = Path(__file__).resolve().parents[2]
DATA, SAMPLES = ROOT / "data", ROOT / "tests" / "data"
SEED_BYTES = 24_000
"""Larger samples are cut: short inputs are tried more often."""


@dataclass(frozen=True)
class Target:
    """`run` takes any bytes; `seeds` are samples that it reads."""

    name: str
    run: Callable[[bytes], object]
    seeds: Sequence[bytes]


def check(target: Target, data: bytes) -> None:
    """Give `data` to a target; raises what no reader may raise."""
    with suppress(PerfkitError):
        target.run(data)


def targets() -> tuple[Target, ...]:
    """All of them, quick ones first."""
    return (*_texts(), *_documents(), *_recordings())


def _texts() -> tuple[Target, ...]:
    """Words that people type, messages of pages, values inside files."""
    text = lambda data: data.decode("utf-8", "replace")  # noqa: E731
    return (
        Target("bytes_of_a_size", lambda data: _or_value_error(units.parse_bytes, text(data)), [b"20GiB", b"1.5 MB", b"1e3"]),
        Target(
            "decimal", lambda data: _or_value_error(lambda it: units.decimal_to_ns(it, 1000), text(data)), [b"12.345", b"-1E+3"]
        ),
        Target("ranks", lambda data: parse_ranks(text(data), range(16)), [b"0-7, 12", b"all"]),
        Target("layers", lambda data: parse_layers(text(data)), [b"10,10,10,10", b"10 10 10 10"]),
        Target(
            "what_if",
            lambda data: parse_changes(text(data)),
            [b"recompute:4,0", b"overlap", b"operator:MatMul:0.5", b"rank:3", b"link:0-1", b"micro-batches:+4"],
        ),
        Target("message", _message, [b'{"type": "set", "seq": 1, "values": {"n": 4}}', b'{"type": "row", "table": "t", "row": 0}']),
        Target("json_value", lambda data: value_end(data, 0), [b'{"a": [1, "\\"x\\""]}', b'"']),
        Target("pickle", _pickle, [b"\x80\x04]\x94(K\x01\x8c\x01a\x94e.", b"\x80\x02}q\x00X\x01\x00\x00\x00aK\x01s."]),
    )


def _documents() -> tuple[Target, ...]:
    """Configurations, scripts, graphs, tables, archives, project files."""
    configs = sorted((DATA / "configs").glob("*.*"))
    graphs = sorted(SAMPLES.glob("ir/old_formats/*.ir"))
    of_config = [_named(path) for path in configs if path.suffix != ".md"]
    return (
        Target("configuration", lambda data: _by_name(read_text, data), of_config),
        Target("keys_of_a_configuration", _as_file(config_keys), of_config),
        Target("lint", lambda data: _by_name(lambda text, name: lint_text(name, text), data), of_config),
        Target("graph", lambda data: read_stream(io.BytesIO(data), name="fuzz.ir"), [_head(path) for path in graphs]),
        Target("project_file", _project, [b'name = "x"\n[goal]\nmetric = "mfu"\nop = ">="\nvalue = 0.4\n']),
        Target(
            "rounds", _as_file(read_rounds), [b"\x00number,metric,value,note\n0,tokens_per_s_per_device,1860,first\n1,mfu,0.5,\n"]
        ),
        Target("archive", _archive, _archives()),
    )


RECORDINGS = {
    "torch_npu_csv": ("tests/data/traces/msinsight_trimmed/test_rank_1", "step_trace_time.csv"),
    "ascend_database": ("tests/data/traces/torch_npu_db/level0", "analysis.db"),
    "cluster_analysis": ("data/traces/cluster_16card", "cluster_step_trace_time.csv"),
    "dryrun_log": ("tests/data/traces/logs/dryrun/seeds_excerpt.log", "*"),
    "kineto": ("tests/data/traces/hta/trace_compare", "*.json.gz"),
    "megatron_log": ("data/traces/logs/meg_gpt2_base_n4_dp1_tp4_pp4-1809579.log", "*"),
    "memory_tracker": ("data/traces/memory_tracker", "memory_block.csv"),
    "memscope": ("tests/data/traces/memscope/memscope_dump_20250428113810.csv", "*"),
    "mindformers_log": ("data/traces/logs/llama2_13b_8card_worker_0.log", "*"),
    "mindinsight": ("data/traces/mindinsight_feed", "step_trace_raw_0_detail_time.csv"),
    "minddata_queues": ("data/traces/mindinsight_feed", "minddata_pipeline_raw_0.csv"),
    "msprof_export": ("tests/data/traces/msprof_export/op_summary/op_summary_1.csv", "*"),
    "torch_memory_timeline": ("tests/data/traces/torch_memory_timeline/memory_timeline.raw.gz", "*"),
    "torchtitan_log": ("tests/data/traces/logs/torchtitan/mi355x_excerpt.log", "*"),
}
"""A sample for each way of recording, and which of its files is fuzzed while the others stay as they are."""


def _recordings() -> tuple[Target, ...]:
    found = []
    for name, (place, pattern) in RECORDINGS.items():
        sample = ROOT / place
        files = [sample] if sample.is_file() else sorted(path for path in sample.rglob(pattern) if path.is_file())
        seed = gzip.decompress(files[0].read_bytes()) if files[0].suffix == ".gz" else files[0].read_bytes()
        found.append(Target(name, Recording(sample, files[0]), [_cut(seed)]))
    return tuple(found)


def _cut(seed: bytes) -> bytes:
    """The begin and the end of a sample; of a list in JSON as many whole elements."""
    if len(seed) <= SEED_BYTES:
        return seed
    head = seed[:SEED_BYTES]
    if not seed.startswith(b"["):
        return seed[: SEED_BYTES // 2] + seed[-SEED_BYTES // 2 :]
    return head[: max(head.rfind(b'}, {"'), head.rfind(b"], [")) + 1] + b"]"


class Recording:
    """A copy of a sample of which one file, unpacked, is what is tried; all tables are read, as pages do."""

    def __init__(self, sample: Path, file: Path) -> None:
        self.sample, self.packed = sample, file.relative_to(sample) if sample.is_dir() else Path(file.name)
        self.within = self.packed.with_name(self.packed.name.removesuffix(".gz"))
        self._folder: tempfile.TemporaryDirectory | None = None

    def __call__(self, data: bytes) -> object:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory()
            if self.sample.is_dir():
                shutil.copytree(self.sample, self._folder.name, dirs_exist_ok=True)
                (Path(self._folder.name) / self.packed).unlink()
        folder = Path(self._folder.name)
        (folder / self.within).write_bytes(data)
        run = load(folder if self.sample.is_dir() else folder / self.within, cache=False)
        return [len(run.tables[name]) for name in run.tables]


def _as_file(read: Callable[[Path], object]) -> Callable[[bytes], object]:
    """A reader of a file, whose name the first byte chooses."""

    def read_file(data: bytes) -> object:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / NAMES[data[0] % len(NAMES) if data else 0]
            path.write_bytes(data[1:])
            return read(path)

    return read_file


NAMES = ("a.csv", "a.toml", "a.yaml", "a.sh", "a.json", "a.py", "a.txt")


def _named(path: Path) -> bytes:
    """A sample with the byte before it that chooses its kind of name."""
    index = next((index for index, name in enumerate(NAMES) if name.endswith(path.suffix)), len(NAMES) - 1)
    return bytes([index]) + _head(path)


def _head(path: Path) -> bytes:
    return path.read_bytes()[:SEED_BYTES]


def _by_name(read: Callable[[str, str], object], data: bytes) -> object:
    return read(data[1:].decode("utf-8", "replace"), NAMES[data[0] % len(NAMES) if data else 0])


def _or_value_error(read: Callable[[str], object], text: str) -> None:
    """Readers of one value say ValueError, and whoever calls them says where it stood."""
    with suppress(ValueError):
        read(text)


def _message(data: bytes) -> None:
    with suppress(ValueError, RecursionError):  # what is no JSON never reaches the decoder
        decode(json.loads(data))


def _pickle(data: bytes) -> None:
    with suppress(NotPlainError):
        load_plain(data)


def _project(data: bytes) -> object:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "perfkit.toml").write_bytes(data)
        return open_project(Path(folder))


def _archive(data: bytes) -> object:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.zip"
        path.write_bytes(data)
        return unpack_into(path, Path(folder) / "out", subject="a", max_bytes=10**7) if is_archive(path) else None


def _archives() -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "in").mkdir()
        (Path(folder) / "in" / "a.log").write_text("step 1\n")
        made = (shutil.make_archive(f"{folder}/out", kind, f"{folder}/in") for kind in ("zip", "tar", "gztar"))
        return [Path(path).read_bytes() for path in made]
