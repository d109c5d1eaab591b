"""Repair of a MindFormers YAML, or of a piece of one: broken lists and patterns, a proposal for each, and the text that results.

A proposal is not applied to the file: the result is a new text, the diff of the two, and a sentence for every change. Three things
are repaired: text behind a closed list, patterns that name no operator, and lists of layers that break the rules (`repair`).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from perfkit.config.dialects import yaml as _yaml
from perfkit.config.dialects.splice import has_path, splice, value_at
from perfkit.core.patterns import PatternCheck, check_patterns
from perfkit.predict.plans.repair import ListRepair, repair_counts, repair_offset

TRAILING = re.compile(r"^([^#\n]*:[ \t]*\[[^\[\]\n]*\])([^\s#,\]}:][^\n]*?)([ \t]*\r?)$", re.MULTILINE)
PATTERN_KEYS = ("select_recompute", "select_comm_recompute", "select_recompute_exclude", "select_comm_recompute_exclude")
CHECKED_KEYS = PATTERN_KEYS[::2]  # communication patterns name operators of other paths
SECTION, CONFIG = ("recompute_config",), ("model", "model_config")
COUNT_KEYS = ("recompute", *PATTERN_KEYS)


@dataclass(frozen=True, kw_only=True, slots=True)
class Proposal:
    """One change: line, rule, the text as it stands, what it would become, and the other candidates."""

    line: int
    rule: str
    before: str
    after: str
    why: str
    candidates: tuple[Any, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class RepairedText:
    """The proposals, the text with all of them, and every pattern with what it names."""

    name: str
    before: str
    text: str
    proposals: tuple[Proposal, ...]
    patterns: tuple[PatternCheck, ...]

    def diff(self) -> str:
        """The changed lines as a unified diff; empty if there is nothing to repair."""
        before, after = (text.replace("\r\n", "\n").splitlines() for text in (self.before, self.text))
        return "".join(
            f"{line}\n" for line in difflib.unified_diff(before, after, fromfile=self.name, tofile=self.name, lineterm="")
        )


def repair_text(
    text: str, name: str, *, paths: Collection[str] | None = None, num_layers: int = 0, num_stages: int = 0
) -> RepairedText:
    """Repair a configuration, or a piece of one such as a `select_recompute` block.

    `paths` are the operators of the model's layer; layers and stages are taken from the text where it has them. Raises InputError
    if the text is no YAML even then.
    """
    cut, proposals = _without_trailing(text)
    parsed = _yaml.parse(cut, name)
    root = SECTION if has_path(parsed.values, SECTION) else ()
    checks = check_patterns([pattern for pattern, _ in _patterns(parsed.values, root)], paths)
    renamed, more = _renamed(cut, root, {check.pattern: check for check in checks if check.repaired})
    fixed, lists = _with_lists(renamed, name, root, num_layers, num_stages)
    return RepairedText(name=name, before=text, text=fixed, proposals=(*proposals, *more, *lists), patterns=tuple(checks))


def _without_trailing(text: str) -> tuple[str, list[Proposal]]:
    proposals = [
        Proposal(
            line=text.count("\n", 0, found.start()) + 1,
            rule="trailing_text",
            before=found[0].strip(),
            after=found[1].strip(),
            why=f"{found[2]!r} stands behind a closed list; it is dropped",
        )
        for found in TRAILING.finditer(text)
    ]
    return TRAILING.sub(r"\1\3", text), proposals


def _patterns(values: Any, root: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Patterns of operators with the key that they stand under."""
    for key in CHECKED_KEYS:
        value = value_at(values, (*root, key))
        found = list(value) if isinstance(value, Mapping | list) else []
        yield from ((str(pattern), key) for pattern in found if isinstance(pattern, str))


def _renamed(text: str, root: tuple[str, ...], repairs: Mapping[str, PatternCheck]) -> tuple[str, list[Proposal]]:
    """The text with patterns renamed where they stand, in their own quotes."""
    node = _yaml.composed(text)
    for key in root:
        node = next((child for name, child in _entries(node) if name.value == key), node)
    places = [place for name, child in _entries(node) if name.value in CHECKED_KEYS for place in _scalars(child)]
    proposals = []
    for place in sorted(places, key=lambda scalar: -scalar.start_mark.index):
        check = repairs.get(str(place.value))
        if check is None:
            continue
        quote = place.style if place.style in ("'", '"') else "'"
        new = check.repaired.replace("\\", "\\\\") if quote == '"' else check.repaired
        text = f"{text[: place.start_mark.index]}{quote}{new}{quote}{text[place.end_mark.index :]}"
        proposals.append(
            Proposal(
                line=place.start_mark.line + 1,
                rule="unknown_pattern",
                before=check.pattern,
                after=check.repaired,
                why=f"{check.pattern!r} names no operator and has no effect",
                candidates=check.candidates,
            )
        )
    return text, proposals[::-1]


def _entries(node: yaml.Node | None) -> list[tuple[Any, Any]]:
    return [entry for entry in node.value if isinstance(entry[0], yaml.ScalarNode)] if isinstance(node, yaml.MappingNode) else []


def _scalars(node: yaml.Node) -> list[yaml.ScalarNode]:
    if isinstance(node, yaml.MappingNode):
        return [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
    return [item for item in node.value if isinstance(item, yaml.ScalarNode)] if isinstance(node, yaml.SequenceNode) else []


def _with_lists(text: str, name: str, root: tuple[str, ...], num_layers: int, num_stages: int) -> tuple[str, list[Proposal]]:
    """The text with offset and counts brought within the layers, where their number is known."""
    parsed = _yaml.parse(text, name)
    values = parsed.values
    layers, stages, chunks = _sizes(values, num_layers, num_stages)
    if not layers or not stages:
        return text, []
    changes: dict[tuple[str, ...], Any] = {}
    proposals = []
    offset = value_at(values, (*CONFIG, "offset"))
    found = repair_offset(0 if offset is None else offset, layers, stages, chunks)
    if not found.is_valid:
        changes[*CONFIG, "offset"] = found.nearest[0]
        proposals.append(_proposal(parsed.lines, (*CONFIG, "offset"), found))
        offset = found.nearest[0]
    rooms = _rooms(offset, layers, stages, chunks)
    for path, value in _count_places(values, root):
        counts = repair_counts(".".join(path[len(root) :]), value, rooms)
        if not counts.is_valid:
            changes[path] = counts.nearest[0]
            proposals.append(_proposal(parsed.lines, path, counts))
    return splice(text, name, changes)[0], proposals


def _proposal(lines: Mapping[str, int], path: tuple[str, ...], found: ListRepair) -> Proposal:
    return Proposal(
        line=lines.get(".".join(path), 0),
        rule=found.problems[0][0],
        before=f"{'.'.join(path)}: {found.value}",
        after=str(found.nearest[0]),
        why="; ".join(sentence for _, sentence in found.problems),
        candidates=found.nearest,
    )


def _count_places(values: Any, root: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key in COUNT_KEYS:
        value = value_at(values, (*root, key))
        if isinstance(value, Mapping):
            yield from (((*root, key, str(pattern)), counts) for pattern, counts in value.items() if isinstance(counts, list))
        elif isinstance(value, list) and value and not all(isinstance(item, str) for item in value):
            yield (*root, key), value


def _sizes(values: Any, num_layers: int, num_stages: int) -> tuple[int, int, int]:
    config = value_at(values, CONFIG)
    config = config if isinstance(config, Mapping) else {}
    layers = config.get("num_layers", config.get("num_hidden_layers", num_layers))
    stages = value_at(values, ("parallel_config", "pipeline_stage")) or num_stages
    interleaved = value_at(values, ("parallel", "pipeline_config", "pipeline_interleave")) is True
    chunks = config.get("pp_interleave_num", 1) if interleaved else 1
    whole = all(isinstance(size, int) and not isinstance(size, bool) and size > 0 for size in (layers, stages, chunks))
    return (int(layers), int(stages), int(chunks)) if whole and stages * chunks <= layers else (0, 0, 1)


def _rooms(offset: Any, layers: int, stages: int, chunks: int) -> list[list[int]]:
    average = layers // (stages * chunks)
    rows = offset if isinstance(offset, list) and offset and isinstance(offset[0], list) else [offset or [0] * stages] * chunks
    return [[average + extra for extra in row] for row in rows]
