"""MindSpore Insight files: which files of a legacy `profiler/` folder belong to which rank, and how the ranks stand.

Several ranks share one folder; the number in a file name is the rank (the device id in old versions). The file
`ascend_cluster_analyse_<kind>_<stages>_<ranks>_<rank>.csv` also says how many pipeline stages and ranks the job has: ranks are
split evenly over stages in order. So do `profiler_info_<rank>.json` and `parallel_strategy_<rank>.json`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from perfkit.core.errors import InputError
from perfkit.core.run import Position
from perfkit.record.format import Sink
from perfkit.record.formats.ascend.json import read_json
from perfkit.record.formats.mindinsight._strategy import read_strategy
from perfkit.record.listing import File, Listing, printable

PATTERNS = {
    "step trace": re.compile(r"^step_trace_raw_(\d{1,9})_detail_time\.csv$"),
    "pipeline split": re.compile(r"^ascend_cluster_analyse_pipeline-parallel_\d+_\d+_(\d{1,9})\.csv$"),
    "model split": re.compile(r"^ascend_cluster_analyse_model-parallel_\d+_\d+_(\d{1,9})\.csv$"),
    "data split": re.compile(r"^ascend_cluster_analyse_data-parallel_\d+_\d+_(\d{1,9})\.csv$"),
    "hccl": re.compile(r"^hccl_raw_(\d{1,9})\.csv$"),
    "timeline data": re.compile(r"^output_timeline_data_(\d{1,9})\.txt$"),
    "timeline display": re.compile(r"^(?:ascend_|gpu_)?timeline_display_(\d{1,9})\.json$"),
    "operator detail": re.compile(r"^aicore_intermediate_(\d{1,9})_detail\.csv$"),
    "operator type": re.compile(r"^aicore_intermediate_(\d{1,9})_type\.csv$"),
    "ai cpu": re.compile(r"^aicpu_intermediate_(\d{1,9})\.csv$"),
    "framework": re.compile(r"^framework_raw_(\d{1,9})\.csv$"),
    "dataset pipeline": re.compile(r"^minddata_pipeline_raw_(\d{1,9})\.csv$"),
    "pipeline profile": re.compile(r"^pipeline_profiling_(\d{1,9})\.json$"),
    "device queue": re.compile(r"^device_queue_profiling_(\d{1,9})\.txt$"),
    "dataset iterator": re.compile(r"^dataset_iterator_profiling_(\d{1,9})\.txt$"),
    "data queue": re.compile(r"^minddata_aicpu_(\d{1,9})\.txt$"),
    "flops": re.compile(r"^flops_summary_(\d{1,9})\.json$"),
    "strategy": re.compile(r"^parallel_strategy_(\d{1,9})\.json$"),
    "info": re.compile(r"^profiler_info_(\d{1,9})\.json$"),
}
TELLING = frozenset(PATTERNS) - {
    "ai cpu",
    "framework",
    "flops",
    "info",
    "pipeline profile",
    "device queue",
    "dataset iterator",
    "data queue",
}
NEWER_FOLDER = "ASCEND_PROFILER_OUTPUT"
_LAYOUT = re.compile(r"^ascend_cluster_analyse_\w+-parallel_(\d{1,9})_(\d{1,9})_\d{1,9}\.csv$")


@dataclass(frozen=True, slots=True)
class Layout:
    """Pipeline stages and ranks of the job; stages are runs of ranks of equal length."""

    num_stages: int
    num_ranks: int

    @property
    def possible(self) -> bool:
        """Whether the ranks can be split evenly over the stages."""
        return 0 < self.num_stages <= self.num_ranks and self.num_ranks % self.num_stages == 0

    @property
    def ranks_per_stage(self) -> int:
        """Ranks of one stage."""
        return self.num_ranks // self.num_stages

    def stage(self, rank: int) -> int:
        """The 0-based stage of a rank."""
        return rank // self.ranks_per_stage


@dataclass(frozen=True, slots=True)
class RankFiles:
    """The files of one rank in one folder by what they are, keys of PATTERNS."""

    rank: int
    folder: Path
    files: dict[str, File]

    @property
    def label(self) -> str:
        """The folder as text that can be shown."""
        return printable(str(next(iter(self.files.values())).relative.parent))

    def get(self, kind: str) -> File | None:
        """The file of a kind, None if there is none or it is empty (0 bytes)."""
        file = self.files.get(kind)
        return file if file is not None and file.size_bytes else None


def group_files(listing: Listing) -> list[RankFiles]:
    """The files of every rank and folder, only where a folder holds at least one file that no other profiler writes."""
    groups: dict[tuple[Path, int], dict[str, File]] = {}
    for file in listing:
        if NEWER_FOLDER in file.relative.parts[:-1] or file.path.parent.name == NEWER_FOLDER:
            continue
        for kind, pattern in PATTERNS.items():
            if found := pattern.match(file.name):
                groups.setdefault((file.path.parent, int(found[1])), {}).setdefault(kind, file)
    telling = {folder for (folder, _), files in groups.items() if TELLING & set(files)}
    return [RankFiles(rank, folder, files) for (folder, rank), files in groups.items() if folder in telling]


def one_folder_a_rank(groups: Iterable[RankFiles], sink: Sink) -> list[RankFiles]:
    """The groups of folders that share no rank, ascending by rank: folders with more ranks and files first, a note for the rest.

    A folder is taken or left as a whole, because a rank found twice means that the folders belong to different runs.
    """
    folders: dict[Path, list[RankFiles]] = {}
    for group in groups:
        folders.setdefault(group.folder, []).append(group)
    chosen: dict[int, RankFiles] = {}
    for members in sorted(folders.values(), key=lambda members: (-len(members), -sum(len(group.files) for group in members))):
        taken = sorted(group.rank for group in members if group.rank in chosen)
        if taken:
            sink.note(
                f"{members[0].label} was not read: rank {taken[0]} is also in {chosen[taken[0]].label}; open the folder on its own"
            )
            continue
        chosen.update({group.rank: group for group in members})
    return [chosen[rank] for rank in sorted(chosen)]


def read_layouts(groups: Iterable[RankFiles], sink: Sink) -> dict[int, Layout]:
    """The layout of the job by rank where the files say it; also added to the facts and the placement of `sink`."""
    layouts: dict[int, Layout] = {}
    # Every rank has its graph with the strategies, which can be large; the first one that can be read speaks for the job.
    strategy: list[tuple[Layout, str]] = []
    for group in groups:
        strategy = strategy or _strategy(group, sink)
        for layout, where in [*_statements(group, sink), *(strategy if group.get("strategy") else ())]:
            if group.rank in layouts or not layout.possible or group.rank >= layout.num_ranks:
                continue
            layouts[group.rank] = layout
            sink.placement[group.rank] = Position(pipeline=layout.stage(group.rank))
            sink.fact("num_devices", layout.num_ranks, where)
            sink.fact("pipeline_parallel_size", layout.num_stages, where)
    return layouts


def _statements(group: RankFiles, sink: Sink) -> list[tuple[Layout, str]]:
    found = [(file, _LAYOUT.match(file.name)) for file in group.files.values()]
    statements = [(Layout(int(match[1]), int(match[2])), f"{file.label}, file name") for file, match in found if match]
    if info := group.get("info"):
        try:
            content, _ = read_json(info)
            layout = Layout(int(content["stage_num"]), int(content["rank_size"]))
            statements.append((layout, f"{info.label}, stage_num and rank_size"))
        except InputError as error:
            sink.drop(error.problems[0], 1, info)
        except (KeyError, TypeError, ValueError):
            sink.note(f"{info.label} does not state stage_num and rank_size")
    return statements


def _strategy(group: RankFiles, sink: Sink) -> list[tuple[Layout, str]]:
    """The layout that the strategies of a rank state, as in `_statements`; none where it has no such file. Adds facts too."""
    if (file := group.get("strategy")) is None:
        return []
    try:
        strategy = read_strategy(file)
    except InputError as error:
        sink.drop(error.problems[0], 1, file)
        return []
    sink.fact("parallel_mode", strategy.mode, f"{file.label}, parallelType")
    sink.fact("operator_strategies", strategy.text, f"{file.label}, gen_strategy of its operators")
    return [(Layout(len(strategy.stages), sum(map(len, strategy.stages))), f"{file.label}, stageDevices")]
