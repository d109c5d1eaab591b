"""Rank folders of Ascend profilers: which files belong to which rank, and what a rank says about itself.

A folder is recognised by the names of the files in it; only when the chosen folder or file is itself the output of one rank are
the settings looked for beside it. The rank is, in this order: `rank_id` in profiler_info_<r>.json, the number in that name, `rank`
in profiler_metadata.json, the number at the end of the folder's name. `rank_id` -1 means a single device: rank 0.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from perfkit.core.errors import InputError
from perfkit.core.units import NS_PER_S
from perfkit.record.format import Sink
from perfkit.record.formats.ascend.communication import is_rank
from perfkit.record.formats.ascend.json import read_json
from perfkit.record.listing import File, Listing, printable
from perfkit.record.rivals import left_out

STEPS, KERNELS, COLLECTIVES, LINKS = "step_trace_time.csv", "kernel_details.csv", "communication.json", "communication_matrix.json"
METADATA = "profiler_metadata.json"
TIMELINE = "trace_view.json"
"""The one large file, which may be compressed; beside that the plain one counts."""
PARTS = {
    STEPS: "step times",
    KERNELS: "kernels",
    COLLECTIVES: "collectives",
    LINKS: "links",
    TIMELINE: "timeline",
    "op_statistic.csv": "operator statistics",
    "api_statistic.csv": "host calls",
    "memory_record.csv": "memory curve",
    "operator_memory.csv": "memory blocks",
    "npu_module_mem.csv": "memory of modules",
    METADATA: "layout",
}
INFO_PART = "profiler settings"
MEMORY = ("memory_record.csv", "operator_memory.csv", "npu_module_mem.csv")
_ANCHORS = (STEPS, KERNELS, COLLECTIVES, LINKS, *MEMORY)
OUTPUT = "ASCEND_PROFILER_OUTPUT"
_INFO = re.compile(r"^profiler_info(?:_(\d{1,6}))?\.json$")
_SUFFIX = re.compile(r"_ascend_(?:pt|ms)$")
_RANK_IN_NAME = re.compile(r"(?:rank[_-]?|[_-]|^)(\d{1,5})$", re.IGNORECASE)
NUMBER_IN_DATABASE = re.compile(
    r"^(?:(?:ascend_\w+_profiler|msmonitor_\d+_\d+)(?:_(\d{1,5}))?|msmonitor_\d+_\d+_-1|msprof_\d+|analysis)\.(?:db|dat)$"
)
_TIME_IN_NAME = re.compile(r"(?:^|_)(20\d{12})\d*(?:_|$)")


@dataclass(frozen=True)
class RankFolder:
    """The files of one rank by name; `folder` is where they lie, `info` its profiler_info file.

    `told` is what the files themselves say as profiler_metadata.json would.
    """

    folder: Path
    label: str
    files: Mapping[str, File]
    info: File | None
    told: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Rank:
    """A rank folder whose rank is known, with the content of its settings files (empty if it has none)."""

    rank: int
    source: RankFolder
    info: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def file(self, name: str) -> File | None:
        """Its file of that name, unless it has none or an empty one."""
        file = self.source.files.get(name)
        return file if file is not None and file.size_bytes else None


def find_folders(listing: Listing) -> list[RankFolder]:
    """The rank folders of a listing, in its order; none if no file of a profiler's output is there."""
    outputs: dict[Path, dict[str, File]] = {}
    for file in listing:
        if file.name in PARTS and file.name != METADATA:
            outputs.setdefault(file.path.parent, {})[file.name] = file
        elif file.name == f"{TIMELINE}.gz":
            outputs.setdefault(file.path.parent, {}).setdefault(TIMELINE, file)
    if listing.is_one_file:
        outputs = {file.path.parent: {name: file} for file in listing if (name := _kind_of_file(file))}
    outputs = {folder: files for folder, files in outputs.items() if any(name in files for name in _ANCHORS)}
    return with_settings(listing, outputs) if outputs else []


def with_settings(listing: Listing, outputs: Mapping[Path, dict[str, File]]) -> list[RankFolder]:
    """Rank folders from the `outputs` of ranks, each with the settings files in or above it."""
    metadata = {file.path.parent: file for file in listing.named(METADATA)}
    infos = {file.path.parent: file for file in listing if _INFO.match(file.name)}
    parents = Counter(folder.parent for folder in outputs)
    found = []
    for folder, files in outputs.items():
        homes = [folder, folder.parent] if parents[folder.parent] == 1 else [folder]
        if folder.name == OUTPUT and not folder.parent.is_relative_to(listing.root):
            _look_beside(folder.parent, infos, metadata)
        info = next((infos.pop(home) for home in homes if home in infos), None)
        if (described := next((metadata[home] for home in homes if home in metadata), None)) is not None:
            files[METADATA] = described
        home = home_of(folder)
        found.append(RankFolder(home, _label(home, listing), files, info))
    without_output = {folder: info for folder, info in infos.items() if folder not in outputs}
    return found + [RankFolder(folder, _label(folder, listing), {}, info) for folder, info in without_output.items()]


def home_of(folder: Path) -> Path:
    """The folder of a rank, of which `folder` may be the output folder."""
    return folder.parent if folder.name == OUTPUT else folder


def _kind_of_file(file: File) -> str | None:
    """Which of the output files a single file is: by its name, else by its header."""
    if file.name in _ANCHORS:
        return file.name
    header = {cell.strip().strip('"') for cell in file.head.split(b"\n")[0].decode("utf-8-sig", "replace").split(",")}
    if {"Name", "Start Time(us)", "Duration(us)"} <= header:
        return KERNELS
    return STEPS if {"Computing", "Communication(Not Overlapped)", "Free"} <= header and "Index" not in header else None


def _look_beside(folder: Path, infos: dict[Path, File], metadata: dict[Path, File]) -> None:
    for path in sorted(folder.glob("profiler_*.json")):
        kind = infos if _INFO.match(path.name) else metadata if path.name == METADATA else None
        if kind is not None and path.is_file():
            kind[folder] = File(path, Path(path.name), path.stat().st_size)


def _label(folder: Path, listing: Listing) -> str:
    inside = folder.is_relative_to(listing.root) and folder != listing.root
    return printable(str(folder.relative_to(listing.root))) if inside else printable(folder.resolve().name)


def resolve_ranks(folders: Iterable[RankFolder], sink: Sink) -> list[Rank]:
    """The folders with their ranks, ascending; of two folders for one rank the later recorded is kept and the other reported."""
    known: dict[int, list[Rank]] = {}
    unnamed: list[Rank] = []
    for folder in folders:
        info = _settings(folder.info, sink)
        metadata = {**folder.told, **_settings(folder.files.get(METADATA), sink)}
        rank = _rank(folder, info, metadata)
        found = Rank(-1 if rank is None else rank, folder, info, metadata)
        (unnamed if rank is None else known.setdefault(found.rank, [])).append(found)
    for found in unnamed:
        rank = next(number for number in range(len(known) + 1) if number not in known)
        known[rank] = [Rank(rank, found.source, found.info, found.metadata)]
        if len(known) > 1:
            sink.note(f"{found.source.label} does not say its rank; it is taken for rank {rank}")
    known = _without_rivals(known, sink)
    num_folders = sum(map(len, known.values()))
    if len(known) < num_folders:
        sink.note(
            f"{num_folders - len(known)} of {num_folders} folders hold a rank that another folder recorded later, perhaps of "
            "another run; the latest of each rank was read. To see the others, open them on their own"
        )
    return [_latest(known[rank], sink) for rank in sorted(known)]


def _without_rivals(known: Mapping[int, list[Rank]], sink: Sink) -> dict[int, list[Rank]]:
    """The ranks without those of folders that are of another job."""
    made = {home_of(found.source.folder): recorded_ns(found) for every in known.values() for found in every}
    homes = {rank: [home_of(found.source.folder) for found in every] for rank, every in known.items()}
    left = left_out(homes, made.__getitem__, sink)
    kept = {rank: [found for found in every if home_of(found.source.folder) not in left] for rank, every in known.items()}
    return {rank: every for rank, every in kept.items() if every}


def _settings(file: File | None, sink: Sink) -> Mapping[str, Any]:
    if file is None or file.size_bytes == 0:
        return {}
    try:
        content, dropped_bytes = read_json(file, depth=1)
    except InputError as error:
        sink.drop("; ".join(error.problems), 1, file)
        return {}
    sink.drop("bytes after the break of a cut file", dropped_bytes, file)
    return content if isinstance(content, Mapping) else {}


def _rank(folder: RankFolder, info: Mapping[str, Any], metadata: Mapping[str, Any]) -> int | None:
    recorded = search(info, "rank_id")
    if is_rank(recorded) or recorded == -1:
        return max(int(recorded), 0)
    if folder.info is not None and (found := _INFO.match(folder.info.name)) is not None:
        return int(found[1] or 0)
    described = search(metadata, "rank")
    if is_rank(described):
        return int(described)
    in_name = _RANK_IN_NAME.search(_SUFFIX.sub("", folder.folder.resolve().name))
    return int(in_name[1]) if in_name else None


def search(content: Any, name: str, depth: int = 4) -> Any:
    """The value of the key `name` (or `_name`) anywhere in nested objects, because versions nest settings differently."""
    if not isinstance(content, Mapping):
        return None
    for key in (name, f"_{name}"):
        if key in content:
            return content[key]
    if depth == 0:
        return None
    return next((value for part in content.values() if (value := search(part, name, depth - 1)) is not None), None)


def _latest(candidates: list[Rank], sink: Sink) -> Rank:
    if len(candidates) == 1:
        return candidates[0]
    ordered = sorted(candidates, key=lambda found: (recorded_ns(found), found.source.label))
    kept = ordered[-1]
    for left in ordered[:-1]:
        sink.drop(f"another folder of rank {left.rank}, recorded earlier than {kept.source.label}", 1, left.source.label)
    return kept


def recorded_ns(rank: Rank) -> int:
    """When the recording of a rank ended: as stated, else from the folder's name, else when its files were written; epoch ns."""
    stated = search(rank.info, "collectionTimeEnd")
    if isinstance(stated, int):
        return stated
    if found := _TIME_IN_NAME.search(rank.source.folder.name):
        try:
            return int(datetime.strptime(found[1], "%Y%m%d%H%M%S").replace(tzinfo=UTC).timestamp()) * NS_PER_S
        except ValueError:
            return 0
    return max((file.path.stat().st_mtime_ns for file in rank.source.files.values()), default=0)
