"""Layout: where ranks stand in their process groups, and which ranks a communication group has, as the profiler recorded it.

`parallel_group_info` names the groups of a rank with their global ranks in order; the position of a rank in its "pp" group is its
pipeline stage, and so on. Communication files name groups by a hash that those entries do not contain, so groups are matched
through the ranks that used them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import msgspec

from perfkit.core.run import Fact, Position
from perfkit.core.shortening import enumerated
from perfkit.record.format import Sink
from perfkit.record.formats.ascend.communication import Link, are_ranks, is_rank
from perfkit.record.formats.ascend.folders import LINKS, METADATA, Rank, search

_FIELDS = {"tp": "tensor", "pp": "pipeline", "dp": "data", "cp": "context", "exp": "expert", "ep": "expert"}
_SIZES = {
    "tensor_model_parallel_size": "tensor_parallel_size",
    "pipeline_model_parallel_size": "pipeline_parallel_size",
    "data_parallel_size": "data_parallel_size",
    "context_parallel_size": "context_parallel_size",
    "expert_model_parallel_size": "expert_parallel_size",
    "sequence_parallel": "sequence_parallel",
    "world_size": "num_devices",
}
_SETTINGS = {
    "profiler_level": "profiler_level",
    "aic_metrics": "aic_metrics",
    "record_shapes": "record_shapes",
    "profile_memory": "profile_memory",
    "with_stack": "with_stack",
}

_PROFILERS = {"torch_npu_version": "torch_npu", "ms_version": "mindspore"}
_FOLDERS = {"_ascend_pt": "torch_npu", "_ascend_ms": "mindspore"}
"""Which framework's profiler names its folders so."""


def groups_of(ranks: Iterable[Rank]) -> list[tuple[str, tuple[int, ...]]]:
    """The process groups that the ranks name, with the global ranks of each in their order in the group."""
    found: dict[tuple[str, tuple[int, ...]], None] = {}
    for rank in ranks:
        info = rank.metadata.get("parallel_group_info")
        for group in info.values() if isinstance(info, Mapping) else ():
            if not isinstance(group, Mapping):
                continue
            name, members = group.get("group_name"), group.get("global_ranks")
            if isinstance(name, str) and isinstance(members, list) and are_ranks(members):
                found[name, tuple(members)] = None
    return list(found)


def placement(
    groups: Iterable[tuple[str, tuple[int, ...]]], ranks: Iterable[int], facts: Mapping[str, Fact]
) -> dict[int, Position]:
    """The position of every one of `ranks` that a group names; a dimension without a group is None, or 0 if its size is 1.

    Megatron leaves out a "dp" group that equals its "dp_cp" group, so where no context is split that one counts as "dp".
    """
    positions: dict[int, dict[str, int]] = {rank: {} for rank in ranks}
    named = list(groups)
    if not any(name == "cp" and len(members) > 1 for name, members in named):
        named += [("dp", members) for name, members in named if name == "dp_cp"]
    for name, members in named:
        field = _FIELDS.get(name)
        for index, rank in enumerate(members):
            if field is not None and rank in positions:
                positions[rank].setdefault(field, index)
    for field in set(_FIELDS.values()):
        size = facts.get(f"{field}_parallel_size")
        if size is not None and size.value == 1:
            for position in positions.values():
                position.setdefault(field, 0)
    return {rank: Position(**position) for rank, position in positions.items() if position}


def add_facts(sink: Sink, ranks: Iterable[Rank]) -> None:
    """Settings that the ranks state: sizes of the layout, and how the profiler was set. Notes where ranks were profiled unlike."""
    levels: dict[str, list[int]] = {}
    for rank in ranks:
        arguments = rank.metadata.get("distributed_args")
        if METADATA in rank.source.files and isinstance(arguments, Mapping):
            for key, name in _SIZES.items():
                value = arguments.get(key)
                fine = isinstance(value, bool) if name == "sequence_parallel" else is_rank(value) and value != 0
                if fine and isinstance(value, int) and name not in sink.facts:
                    sink.fact(name, value, f"{rank.source.files[METADATA].label}: distributed_args.{key}")
        if rank.source.info is not None:
            for key, name in _SETTINGS.items():
                if name not in sink.facts and isinstance(value := search(rank.info, key), (bool, int, str)):
                    sink.fact(name, value, f"{rank.source.info.label}: {key}")
            levels.setdefault(str(search(rank.info, "profiler_level")), []).append(rank.rank)
        if "profiler" not in sink.facts:
            _add_profiler(sink, rank)
    if len(levels) > 1:
        listed = "; ".join(f"{level} on {rank_list(found)}" for level, found in levels.items())
        sink.note(f"ranks were profiled at different levels, so their times are not comparable: {listed}")


def rank_list(ranks: Iterable[int]) -> str:
    """Ranks as text with runs joined: "rank 3" or "ranks 0 to 3, 7"."""
    ordered = sorted(set(ranks))
    runs: list[list[int]] = []
    for rank in ordered:
        if runs and runs[-1][-1] == rank - 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    pieces = [str(run[0]) if len(run) == 1 else f"{run[0]}{' to ' if len(run) > 2 else ', '}{run[-1]}" for run in runs]
    return f"rank{'' if len(ordered) == 1 else 's'} {enumerated(pieces, 10)}"


@dataclass(frozen=True)
class Groups:
    """Which ranks a group hash stands for: those that used it, completed by the process groups that the run names."""

    users: Mapping[str, frozenset[int]]
    named: tuple[tuple[int, ...], ...]
    found: frozenset[int]

    def members(self, group: str) -> tuple[int, ...] | None:
        """The global ranks of a group in their order; None if no or more than one named group fits its users."""
        users = self.users.get(group, frozenset())
        fitting = self._named_by_ranks.get(users, ()) if users else ()
        return fitting[0] if len(fitting) == 1 else None

    @cached_property
    def _named_by_ranks(self) -> Mapping[frozenset[int], list[tuple[int, ...]]]:
        """The named groups by those of their ranks that have a folder."""
        by_ranks: dict[frozenset[int], list[tuple[int, ...]]] = {}
        for members in dict.fromkeys(self.named):
            by_ranks.setdefault(self.found.intersection(members), []).append(members)
        return by_ranks


def to_global(links: list[Link], groups: Groups) -> tuple[list[Link], int]:
    """The links with global ranks at both ends, and how many were left out because an end cannot be told.

    Recorded numbers are positions in the process group, which equal the ranks only in groups that begin with rank 0. The link of a
    rank to itself tells its position; other members are known from their own folders or from the named groups. Totals over all
    groups mix positions of several, so they are left out where positions and ranks differ.
    """
    positions: dict[str | None, dict[int, int]] = {}
    for link in links:
        if link.source == link.target:
            positions.setdefault(link.group, {})[link.source] = link.rank
    renumbered = {
        group for group, ranks in positions.items() if group is not None and any(at != rank for at, rank in ranks.items())
    }
    at_zero = {group for group, ranks in positions.items() if set(ranks.values()) == {0}}
    placed: list[Link] = []
    for link in links:
        group = link.group
        ranks = positions.get(group, {})
        members = groups.members(group) if group is not None else None
        unsure = bool(renumbered) and (group is None or group in at_zero)
        if not (group in renumbered or unsure or (members is not None and link.target not in members)):
            placed.append(link)
            continue
        source, target = _rank_at(link.source, ranks, members), _rank_at(link.target, ranks, members)
        if source is not None and target is not None and not (unsure and group is None):
            placed.append(msgspec.structs.replace(link, source=source, target=target))
    return placed, len(links) - len(placed)


def _rank_at(position: int, ranks: Mapping[int, int], members: tuple[int, ...] | None) -> int | None:
    if position in ranks:
        return ranks[position]
    return members[position] if members is not None and position < len(members) else None


def missing_ranks(found: Iterable[int], num_devices: int | None, peers: Iterable[int], links: str = LINKS) -> str | None:
    """A sentence about ranks that took part and have no folder; None if there are none. `links` names the file of the peers."""
    have = set(found)
    reasons = (
        (set(range(num_devices or 0)), f"the job had {num_devices} devices"),
        (set(peers), f"{links} names peers there"),
        (set(range(max(have) + 1)) if len(have) > 1 else set(), "a higher rank has one"),
    )
    for expected, reason in reasons:
        if missing := expected - have:
            return f"no folder of {rank_list(missing)} was found, though {reason}; read: {rank_list(have)}"
    return None


def _add_profiler(sink: Sink, rank: Rank) -> None:
    """Which framework recorded, with its release where it says that: by its own file, else by how it names the folder."""
    for key, framework in _PROFILERS.items():
        if rank.source.info is not None and isinstance(release := rank.info.get(key), str):
            sink.fact("profiler", f"{framework} {release}".strip(), f"{rank.source.info.label}: {key}")
            return
    for suffix, framework in _FOLDERS.items():
        if rank.source.folder.name.endswith(suffix):
            sink.fact("profiler", framework, f"{rank.source.label}: *{suffix}")
