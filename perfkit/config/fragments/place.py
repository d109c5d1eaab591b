"""Placing: where in a whole configuration the keys of a fragment belong, and the fragment as text with its parents.

A guide prints `select_recompute: [...]` without `recompute_config:`, or `dataset_config.batch_size` as a dotted name. Which parents
are missing follows from the keys: of all places that a dialect has, the one that knows most of them.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import yaml

from perfkit.config.dialects import nemo_keys, neox_keys
from perfkit.config.dialects.mindformers_keys import OPEN, STRICT
from perfkit.config.fragments.meanings import dialects_explained, meanings

Path = tuple[str, ...]
KEY = re.compile(
    r"^(?P<indent>\s*)(?:-\s+)?(?P<key>'[^']+'|\"[^\"]+\"|[A-Za-z_][\w.\\-]*(?: [A-Za-z_]\w*){0,2})\s*"
    r"(?P<colon>:(?=\s|$))(?P<value>.*)$"
)
DOTTED = re.compile(r"^(?P<key>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)\s*(?:(?P<sign>[:=])\s*(?P<value>[^#]*?))?\s*(?P<comment>#.*)?$")
LIKENESS = 0.8
OTHER_SECTIONS = {
    "mindformers": "trainer train_dataset train_dataset_task optimizer lr_schedule callbacks runner_wrapper context model "
    "processor moe_config parallel monitor_config metric eval_dataset",
    "mindspeed-core": "model_config parallel_config dataset_config training_config optimizer_config moe_config accelerate_config "
    "train_config checkpoint_config lr_scheduler_config",
}


@dataclass(frozen=True, slots=True)
class Placed:
    """A fragment in its place: YAML text of `dialect` with all parents, and for every line of it the line in the fragment.

    `belongs` says for each key of the fragment without its parents where it belongs, `asked` are keys without a value, `unknown`
    those that no place of any dialect has, `misspelled` the line of each key that is read as another one, and both.
    """

    dialect: str
    text: str
    lines: Mapping[int, int]
    belongs: tuple[tuple[str, str], ...] = ()
    asked: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    misspelled: tuple[tuple[int, str, str], ...] = ()
    also: tuple[str, ...] = ()


@dataclass(slots=True)
class _Block:
    """A key of the fragment with the lines below it: its path, its lines without their common indentation, its first line."""

    path: Path
    first: int
    lines: list[str]
    value: bool = True
    repaired: str = ""


@dataclass(slots=True)
class _Section:
    """A section of the placed text while it is made."""

    blocks: list[_Block] = field(default_factory=list)
    inner: dict[str, _Section] = field(default_factory=dict)


def placed(text: str, prefer: str = "") -> Placed | None:
    """The fragment in the dialect that knows most of its keys (`prefer` wins where several do); None if it knows few of them."""
    blocks = _blocks(text)
    if not blocks or neox_keys.MARK.search(text) or nemo_keys.MARK.search(text):
        return None
    found = {name: _fit(blocks, name) for name in dialects_explained()}
    scores = {name: _score(blocks, name, places) for name, places in found.items()}
    best = max(found, key=lambda name: (scores[name], name == prefer, name == "mindformers"))
    if 2 * len(found[best]) < len(blocks):
        near = {name: sum(_nearest(block, name) is not None for block in blocks) for name in found}
        best = max(near, key=lambda name: (near[name], name == prefer, name == "mindformers"))
        if 2 * near[best] < len(blocks):
            return None
    others = [name for name in found if name != best and scores[name] == scores[best]]
    return _placed(blocks, best, others)


@cache
def _paths(dialect: str) -> frozenset[Path]:
    """Every key that the dialect is known to have, and its sections."""
    paths = {tuple(key.split(".")) for key in meanings(dialect)}
    paths |= {tuple(key.split(".")[:depth]) for key in meanings(dialect) for depth in range(1, key.count(".") + 1)}
    paths |= {(name,) for name in OTHER_SECTIONS[dialect].split()}
    if dialect == "mindformers":
        for section, names in (*STRICT.items(), *OPEN.items()):
            parents = tuple(section.split(".")) if section else ()
            paths |= {(*parents, name) for name in names.split()} | {parents} - {()}
    return frozenset(paths - {()})


@cache
def _known_places(dialect: str) -> Mapping[str, tuple[Path, ...]]:
    """The sections that have a key, by its name; those of the top level are the empty path."""
    found: dict[str, list[Path]] = {}
    for path in sorted(_paths(dialect), key=lambda path: (len(path), path)):
        found.setdefault(path[-1], []).append(path[:-1])
    return {name: tuple(places) for name, places in found.items()}


def _blocks(text: str) -> list[_Block]:
    """The outermost keys of the fragment with their lines; dotted names are paths."""
    lines = text.split("\n")
    indents = [len(line) - len(line.lstrip()) for line in lines if KEY.match(line) or DOTTED.match(line.strip())]
    outer = min(indents, default=0)
    blocks: list[_Block] = []
    for number, line in enumerate(lines, 1):
        body, indent = line[outer:] if line[:outer].strip() == "" else line.lstrip(), len(line) - len(line.lstrip())
        if not line.strip() or line.lstrip().startswith("#"):
            if blocks and line.strip():
                blocks[-1].lines.append(body)
            continue
        if indent <= outer and (dotted := DOTTED.match(line.strip())):
            value = (dotted["value"] or "").strip()
            name = dotted["key"].split(".")
            blocks.append(_Block(tuple(name), number, [f"{name[-1]}: {value}"], bool(value)))
        elif indent <= outer and (found := KEY.match(line)):
            name = found["key"].strip("'\"") if found["key"][0] in "'\"" else found["key"]
            blocks.append(_Block((name,), number, [body]))
        elif blocks:
            blocks[-1].lines.append(body)
    return blocks


def _fit(blocks: Iterable[_Block], dialect: str) -> dict[int, Path]:
    """Where each block belongs, by its first line: the sections that hold most of the keys, the fewest sections first."""
    known = _known_places(dialect)
    options = {block.first: _places(block.path, known) for block in blocks}
    votes: dict[Path, int] = {}
    for places in options.values():
        for place in places:
            votes[place] = votes.get(place, 0) + 1
    return {first: max(places, key=lambda place: (votes[place], -len(place))) for first, places in options.items() if places}


def _score(blocks: Iterable[_Block], dialect: str, places: Mapping[int, Path]) -> int:
    """How many keys of the fragment, inner ones too, the dialect has where they would stand."""
    known, score = _paths(dialect), 0
    for block in blocks:
        if (parents := places.get(block.first)) is None:
            continue
        path = (*parents, block.path[-1])
        score += path in known
        score += sum((*path[:-1], *inner) in known for inner in _inner(block) if len(inner) > 1)
    return score


def _inner(block: _Block) -> Iterable[Path]:
    """The key paths of a block; none where it is no YAML."""
    try:
        values = yaml.safe_load("\n".join(block.lines))
    except (yaml.YAMLError, ValueError, RecursionError):
        return ()
    return flat(values) if isinstance(values, Mapping) else ()


def _places(path: Path, known: Mapping[str, tuple[Path, ...]]) -> tuple[Path, ...]:
    """Parents that a key may have; a dotted name is found by its end, and must agree with what it says of its parents."""
    *above, name = path
    found = known.get(name, ())
    if above and above[-1] in known:
        exact = tuple(place for place in found if place[-len(above) :] == tuple(above))
        return exact or tuple((*place, *above) for place in known.get(above[0], ()))
    return found if not above else tuple(place for place in found if place[-len(above) :] == tuple(above))


def _repair_names(blocks: list[_Block], dialect: str) -> tuple[list[_Block], list[tuple[int, str, str]]]:
    """Misspelled keys by the nearest one that the dialect has; the line of each, and both."""
    misspelled = []
    for block in blocks:
        name, near = block.path[-1], _nearest(block, dialect)
        if near is not None:
            misspelled.append((block.first, name, near))
            block.lines[0] = block.lines[0].replace(name, near, 1)
            block.path, block.repaired = (*block.path[:-1], near), name
    return blocks, misspelled


def _nearest(block: _Block, dialect: str) -> str | None:
    """The key of the dialect that a misspelled one is meant to be; None for one that it has, and for one like none."""
    known, name = _known_places(dialect), block.path[-1]
    if name in known or _places(block.path, known):
        return None
    plain = re.sub(r"[\s-]+", "_", name)
    return plain if plain in known else next(iter(difflib.get_close_matches(plain, known, n=1, cutoff=LIKENESS)), None)


def _placed(blocks: list[_Block], dialect: str, others: list[str]) -> Placed:
    blocks, misspelled = _repair_names(blocks, dialect)
    places = _fit(blocks, dialect)
    root = _Section()
    belongs, asked, unknown = [], [], []
    for block in blocks:
        parents = places.get(block.first)
        if parents is None:
            unknown.append(".".join(block.path))
            parents = block.path[:-1] or next(iter(places.values()), ())
        elif parents and len(block.path) == 1:
            belongs.append((block.path[-1], ".".join(parents)))
        if not block.value:
            asked.append(".".join((*parents, block.path[-1])))
            continue
        section = root
        for name in parents:
            section = section.inner.setdefault(name, _Section())
        section.blocks.append(block)
    out: list[str] = []
    lines: dict[int, int] = {}
    _write(root, 0, out, lines)
    also = tuple(f"{name}: {'.'.join(place)}" for name in others for place in dict.fromkeys(_fit(blocks, name).values()) if place)
    return Placed(dialect, "\n".join(out) + "\n", lines, tuple(belongs), tuple(asked), tuple(unknown), tuple(misspelled), also)


def _write(section: _Section, depth: int, out: list[str], lines: dict[int, int]) -> None:
    indent = "  " * depth
    for block in section.blocks:
        for offset, line in enumerate(block.lines):
            out.append(indent + line if line.strip() else "")
            lines[len(out)] = block.first + offset
    for name, inner in section.inner.items():
        if inner.blocks or inner.inner:
            out.append(f"{indent}{name}:")
            lines[len(out)] = _first(inner)
            _write(inner, depth + 1, out, lines)


def _first(section: _Section) -> int:
    found = [block.first for block in section.blocks] + [_first(inner) for inner in section.inner.values()]
    return min(found, default=1)


def flat(values: Mapping[str, Any], parents: Path = ()) -> dict[Path, Any]:
    """Nested values by key path; lists and tables of patterns, whose names hold dots, are one value."""
    found: dict[Path, Any] = {}
    for name, value in values.items():
        path = (*parents, str(name))
        if isinstance(value, Mapping) and value and not any("\\" in str(key) for key in value):
            found |= flat(value, path)
        else:
            found[path] = value
    return found
