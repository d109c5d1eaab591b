"""Placement: the process groups of a run, and where its ranks stand in the parallel layout.

What a group is for follows, in this order, from its label ("tp", "DATA_PARALLEL_GROUP", "mesh_ep"), from its own name, and from how
it is used: pairs that only send and receive join the stages of a pipeline, and of two families of groups that cut the ranks both
ways the one of neighbouring ranks is the tensor group, because every framework puts those next to each other. A label that names
two dimensions at once ("dp_cp", "mp") says nothing about either, unless the other one has size 1.

What the run does not say is None.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit.core.run import Position, Run

_WORDS: Mapping[str, str] = {
    **dict.fromkeys(("dp", "data", "fsdp", "ddp", "zero"), "data"),
    **dict.fromkeys(("tp", "tensor"), "tensor"),
    **dict.fromkeys(("pp", "pipeline", "pipe"), "pipeline"),
    **dict.fromkeys(("cp", "context", "ulysses"), "context"),
    **dict.fromkeys(("ep", "exp", "expert", "moe"), "expert"),
}
_WORD = re.compile(r"[a-z]+")
_POINT_TO_POINT = frozenset({"send", "receive", "send_receive"})
_ENDS = frozenset({"send", "receive"})
_PLACE = re.compile(r"#\d+$")
"""How a reader names operations of which the recording says no more than their order."""
_SHARED = frozenset({"embd", "embedding", "modulo", "replicate", "intra", "inter"})
"""Words of labels whose groups cut a dimension differently from the group that carries its plain name."""


@dataclass(frozen=True, slots=True)
class Group:
    """A process group: its `name` as collectives state it, its `label`, and the `members` in their order.

    `dimension` is data, tensor, pipeline, context or expert; None where the run does not say what the group is for.
    """

    name: str | None
    label: str | None
    members: tuple[int, ...]
    dimension: str | None = None


def groups(run: Run) -> tuple[Group, ...]:
    """The process groups of a run: those that it states, and those whose members all appear in its collectives."""
    stated = _stated(run)
    used = _labelled(_used(run, {group.name for group in stated}), stated)
    of_names = {frozenset(group.members) for group in used}
    stated = [group for group in stated if group.name is not None or frozenset(group.members) not in of_names]
    context_split = any(dimension_of(group.label) == "context" and len(group.members) > 1 for group in stated)
    found = [_named(group, context_split) for group in (*stated, *used)]
    return tuple(_by_use(found, run))


def group_frame(run: Run) -> pd.DataFrame:
    """The groups as a table: `name`, `label`, `dimension`, `size`, `members` (text)."""
    found = groups(run)
    return pd.DataFrame(
        {
            "name": [group.name for group in found],
            "label": [group.label for group in found],
            "dimension": [group.dimension for group in found],
            "size": [len(group.members) for group in found],
            "members": [", ".join(map(str, group.members)) for group in found],
        }
    )


def positions(run: Run) -> dict[int, Position]:
    """The position of every rank that the run or a group of it places; what `run.placement` says already is kept."""
    found: dict[int, dict[str, Any]] = {rank: asdict(position) for rank, position in run.placement.items()}
    own = set(run.ranks)
    for group in sorted(groups(run), key=_plainness):
        for index, rank in enumerate(group.members):
            if group.dimension is not None and rank in own:
                place = found.setdefault(rank, {})
                if place.get(group.dimension) is None:
                    place[group.dimension] = index
    return {rank: Position(**place) for rank, place in sorted(found.items()) if any(at is not None for at in place.values())}


def dimension_of(label: str | None) -> str | None:
    """The one dimension that a label names, such as tensor for "TENSOR_MODEL_PARALLEL_GROUP"; None for none or several."""
    words = _WORD.findall((label or "").lower())
    found = {_WORDS[word] for word in words if word in _WORDS}
    return found.pop() if len(found) == 1 and not _SHARED.intersection(words) else None


def members_of(text: str) -> tuple[int, ...]:
    """The ranks of the column `members`."""
    return tuple(int(rank) for rank in text.split(","))


def members_text(ranks: Iterable[int]) -> str:
    """Ranks as the column `members` has them."""
    return ",".join(map(str, ranks))


def members_by_rank(run: Run) -> dict[tuple[str, int], tuple[int, ...]]:
    """The members of the groups that are known, by the name of a group and each of its ranks."""
    named = [(group.name, group.members) for group in groups(run) if group.name is not None]
    return {(name, rank): members for name, members in named for rank in members}


def told_apart(rows: pd.DataFrame, run: Run) -> pd.DataFrame:
    """Rows of `collectives` with a number of their group (`members`) and, where it is known, its size.

    Several groups may share one name; those whose members are known get numbers of their own. Where operations are named by their
    place in the step and the ranks of a group have not as many of them, some were not recorded: of those nothing says which belong
    together, and each gets a number that no other rank has.
    """
    known = members_by_rank(run)
    pairs = rows[["group", "rank"]].drop_duplicates()
    sets: dict[object, int] = {}
    numbers: list[tuple[Any, int, int, int | None]] = []
    for pair in pairs.to_dict("records"):
        name = None if pd.isna(pair["group"]) else str(pair["group"])
        ranks = known.get((name, int(pair["rank"]))) if name is not None else None
        number = sets.setdefault(ranks if ranks is not None else name, len(sets))
        numbers.append((pair["group"], pair["rank"], number, None if ranks is None else len(ranks)))
    told = pd.DataFrame(numbers, columns=["group", "rank", "members", "known_size"])
    keys = rows.assign(group=rows["group"].astype("object"))
    merged = keys.merge(told.astype({"group": "object", "rank": "int64"}), on=["group", "rank"], how="left")
    sizes = merged["known_size"].astype("Int64")
    known_apart = merged.assign(group_size=merged["group_size"].fillna(sizes).astype("Int64")).drop(columns="known_size")
    uneven = _uneven(known_apart)
    alone = len(sets) + known_apart["rank"].astype("int64")
    return known_apart.assign(members=known_apart["members"].mask(uneven, alone)) if uneven.any() else known_apart


def _uneven(rows: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Which rows are named by their place among the operations of a group in a step, of which its ranks have not as many.

    Sends and receives are left out: the first and last stage of a pipeline have fewer, and they are paired by their ends.
    """
    names = rows["name"].astype("category").cat
    by_place = np.array([*(_PLACE.search(str(name)) is not None for name in names.categories.tolist()), False], dtype=bool)
    found: npt.NDArray[np.bool_] = by_place[names.codes.to_numpy()] & ~rows["operation"].isin(_ENDS).to_numpy(dtype=bool)
    own = rows.loc[found, ["members", "rank"]].assign(step=rows.loc[found, "step"].fillna(-1).astype("int64"))
    of_group = [own["members"], own["step"], pd.Series(pd.factorize(rows.loc[found, "group"])[0], index=own.index)]
    count = own.groupby([*of_group, own["rank"]])["rank"].transform("size").groupby(of_group)
    found[found] = (count.transform("min") != count.transform("max")).to_numpy(dtype=bool)
    return found


def _stated(run: Run) -> list[Group]:
    rows = run.frame("groups")[["group", "label", "members"]].drop_duplicates()
    return [Group(_text(row["group"]), _text(row["label"]), members_of(str(row["members"]))) for row in rows.to_dict("records")]


def _used(run: Run, known: set[str | None]) -> list[Group]:
    """Groups that no row states, of which all members are among the ranks that used them."""
    rows = run.distinct("collectives", columns=["rank", "group", "group_size"])
    rows = rows[~rows["group"].isin(known)]
    users: dict[tuple[str, int], set[int]] = {}
    for row in rows.to_dict("records"):
        users.setdefault((str(row["group"]), int(row["group_size"])), set()).add(int(row["rank"]))
    return [Group(name, None, tuple(sorted(ranks))) for (name, size), ranks in users.items() if len(ranks) == size]


def _labelled(used: Sequence[Group], stated: Sequence[Group]) -> list[Group]:
    """Used groups with the label of the stated group of the same members, where labels were recorded apart from names."""
    labels: dict[frozenset[int], Group] = {}
    for group in sorted((group for group in stated if group.name is None), key=_plainness, reverse=True):
        labels[frozenset(group.members)] = group
    found = []
    for group in used:
        like = labels.get(frozenset(group.members))
        found.append(group if like is None else Group(group.name, like.label, like.members))
    return found


def _named(group: Group, context_split: bool) -> Group:
    words = set(_WORD.findall((group.label or "").lower()))
    dimension = dimension_of(group.label) or dimension_of(group.name)
    if dimension is None and words == {"dp", "cp"} and not context_split:
        dimension = "data"
    return Group(group.name, group.label, group.members, dimension)


def _plainness(group: Group) -> tuple[int, int]:
    """Groups whose label is the bare dimension first, so that they decide where several name one dimension."""
    return len(_WORD.findall((group.label or group.name or "").lower())), len(group.members)


def _by_use(found: Sequence[Group], run: Run) -> list[Group]:
    """Unlabelled groups told apart by what runs in them and by how they cut the ranks."""
    named = {group.dimension for group in found} - {None}
    open_groups = [group for group in found if group.dimension is None and group.name is not None and len(group.members) > 1]
    if not open_groups or any(group.label is not None and dimension_of(group.label) for group in found):
        return list(found)
    operations = _operations(run)
    pairs = [group for group in open_groups if operations.get(str(group.name), set()) <= _POINT_TO_POINT]
    chains = [] if "pipeline" in named else _chains([group.members for group in pairs])
    wide = [group for group in open_groups if group not in pairs]
    families: dict[tuple[int, int], list[Group]] = {}
    for group in wide:
        families.setdefault((len(group.members), group.members[1] - group.members[0]), []).append(group)
    ranks = {rank for group in open_groups for rank in group.members}
    cutting = [family for family in families.values() if len(family) > 1 and _cuts(family, ranks)]
    told: dict[Group, str] = {}
    if len(cutting) == 2:
        near, far = sorted(cutting, key=lambda family: family[0].members[1] - family[0].members[0])
        if near[0].members[1] - near[0].members[0] == 1 != far[0].members[1] - far[0].members[0]:
            told = {**dict.fromkeys(near, "tensor"), **dict.fromkeys(far, "data")}
    kept = [Group(group.name, group.label, group.members, told.get(group, group.dimension)) for group in found]
    return kept + [Group(None, None, chain, "pipeline") for chain in chains]


def _operations(run: Run) -> dict[str, set[str]]:
    rows = run.distinct("collectives", columns=["group", "operation"])
    by_group: dict[str, set[str]] = {}
    for row in rows.to_dict("records"):
        by_group.setdefault(str(row["group"]), set()).add(str(row["operation"]))
    return by_group


def _cuts(family: Sequence[Group], ranks: set[int]) -> bool:
    """Whether the groups hold every rank exactly once."""
    members = [rank for group in family for rank in group.members]
    return len(members) == len(set(members)) and set(members) == ranks


def _chains(pairs: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The ranks that pairs join, ascending, if all chains are equally long."""
    joined: dict[int, set[int]] = {}
    for pair in pairs:
        whole = set(pair).union(*(joined.get(rank, set()) for rank in pair))
        joined.update(dict.fromkeys(whole, whole))
    chains = {tuple(sorted(chain)) for chain in joined.values()}
    return sorted(chains) if len({len(chain) for chain in chains}) == 1 else []


def _text(value: Any) -> str | None:
    return None if pd.isna(value) else str(value)
