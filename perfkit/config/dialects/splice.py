"""Changing values of a YAML text in place: everything outside of the addressed values stays as it is, byte for byte.

The nodes of the text give the span of every value; only these spans are replaced, in flow style on one line. A missing key becomes
a line after the last key of its section. Afterwards the text is read again, and if anything but the addressed values changed, the
edit is refused. Values are addressed by key paths, tuples of keys, because recompute patterns hold dots.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from perfkit.config.dialects import yaml as _yaml
from perfkit.config.dialects._yaml_values import INDENT, block, flow, key_text, nested
from perfkit.config.dialects.dialect import Document
from perfkit.core.errors import InputError

Path = tuple[str, ...]
ANCHOR, ALIAS = re.compile(r"&[^\s,\[\]{}]+[ \t]*"), re.compile(r"\s*(\*[^\s,\[\]{}]+)")


@dataclass(slots=True)
class _Edits:
    """Replacements by character span, notes and problems of one text."""

    text: str
    root: yaml.Node
    newline: str
    places: Mapping[int, list[Path]]
    spans: list[tuple[int, int, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    allowed: set[Path] = field(default_factory=set)
    added: dict[Path, dict[Path, Any]] = field(default_factory=dict)

    def line_end(self, position: int) -> int:
        """Where the line of a position ends, before its line break."""
        found = re.compile(r"\r?\n|\Z").search(self.text, position)
        return found.start() if found else len(self.text)

    def insert_line(self, position: int, line: str) -> None:
        """Put whole lines after the line of `position`."""
        end = self.line_end(position)
        self.spans.append((end, end, self.newline + line.removesuffix(self.newline)))

    def applied(self) -> str:
        """The text with all replacements; those at one place keep their order."""
        text, position = [], 0
        for start, end, new in sorted(self.spans, key=lambda span: span[:2]):
            text += [self.text[position:start], new]
            position = end
        return "".join([*text, self.text[position:]])


def edit(document: Document, changes: Mapping[Path, Any]) -> tuple[str, tuple[str, ...]]:
    """The text of a document with values changed; all else stays as it is."""
    return splice(document.text, document.name, changes)


def splice(text: str, name: str, changes: Mapping[Path, Any]) -> tuple[str, tuple[str, ...]]:
    """The text with the values at the key paths of `changes` replaced or added, and the places that follow a changed anchor.

    Raises InputError if the text is no YAML mapping, a path leads through a value that is no section, or reading the result shows
    another change than the wanted ones.
    """
    if not changes:
        return text, ()
    before = _yaml.parse(text, name).values
    root = _yaml.composed(text)
    assert root is not None  # it was read above
    edits = _Edits(text, root, "\r\n" if "\r\n" in text else "\n", _places(root))
    for path, value in changes.items():
        for place, part in _parts(root, path, value):
            _change(edits, place, part)
    for parent, values in edits.added.items():
        _add(edits, parent, values)
    if edits.problems:
        raise InputError(name, edits.problems)
    after = edits.applied()
    _check(name, before, _yaml.parse(after, name).values, changes, edits.allowed)
    return after, tuple(edits.notes)


def value_at(values: Any, path: Path) -> Any:
    """The value at a key path of parsed YAML, or None."""
    for key in path:
        if not isinstance(values, Mapping) or key not in values:
            return None
        values = values[key]
    return values


def has_path(values: Any, path: Path) -> bool:
    """Whether the parsed YAML has a value, even null, at a key path."""
    *parents, last = path
    section = value_at(values, tuple(parents)) if parents else values
    return isinstance(section, Mapping) and last in section


def _parts(root: yaml.Node, path: Path, value: Any) -> Iterator[tuple[Path, Any]]:
    """A section of the same keys as the one that stands there is changed key by key, so that its lines and comments stay."""
    node: yaml.Node | None = root
    for key in path:
        node = entry[1] if node is not None and (entry := _entry(node, key)) else None
    if isinstance(value, Mapping) and isinstance(node, yaml.MappingNode):
        names = [str(key.value) for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if len(names) == len(node.value) and sorted(names) == sorted(value):
            yield from (((*path, key), part) for key, part in value.items())
            return
    yield path, value


def _change(edits: _Edits, path: Path, value: Any) -> None:
    """Replace the value at `path`; where it is missing, note it for the deepest section that there is."""
    node, depth = edits.root, 0
    while depth < len(path):
        if not isinstance(node, yaml.MappingNode):
            if _is_null(node):
                break
            place = f"line {node.start_mark.line + 1}, {_dotted(path[:depth])}"
            edits.problems.append(f"{place}: is no section, {path[depth]} has no place")
            return
        found = _entry(node, path[depth])
        if found is None:
            break
        depth += 1
        if depth == len(path):
            edits.allowed.add(path)
            _replace(edits, found, path, value, in_flow=bool(node.flow_style))
            return
        node = found[1]
    edits.allowed.add(path)
    edits.added.setdefault(path[:depth], {})[path[depth:]] = value


def _replace(edits: _Edits, entry: tuple[yaml.Node, yaml.Node], path: Path, value: Any, *, in_flow: bool) -> None:
    key, node = entry
    colon = edits.text.index(":", key.end_mark.index) + 1
    if node.start_mark.index < key.end_mark.index:
        # An alias: only this use of it is replaced.
        if found := ALIAS.match(edits.text, colon):
            edits.spans.append((*found.span(1), flow(value)))
        return
    start, end = node.start_mark.index, _content_end(edits.text, node)
    anchor = ANCHOR.match(edits.text, start)
    if anchor:
        start = anchor.end()
        _note_followers(edits, node, path)
    if isinstance(value, Mapping) and value and not in_flow:
        end = max(end, colon)
        edits.spans.append((colon, end, ""))
        edits.insert_line(end, block(value, " " * key.start_mark.column + INDENT, edits.newline))
        return
    if node.start_mark.line > key.end_mark.line and not anchor:
        start = colon
    lead = "" if start and edits.text[start - 1] in " \t[{," else " "
    edits.spans.append((start, end, lead + flow(value)))


def _note_followers(edits: _Edits, node: yaml.Node, path: Path) -> None:
    """The places of an anchored value that change with it."""
    followers = list(dict.fromkeys(place for place in reversed(edits.places[id(node)]) if place != path))
    if followers:
        edits.allowed.update(followers)
        names = ", ".join(_dotted(place) for place in followers)
        edits.notes.append(f"line {node.start_mark.line + 1}, {_dotted(path)}: the alias makes {names} follow")


def _add(edits: _Edits, parent: Path, values: Mapping[Path, Any]) -> None:
    """New keys of the section at `parent`, after its last key."""
    key, node = None, edits.root
    for name in parent:
        key, node = _entry(node, name) or (key, node)
    tree = nested(values)
    if isinstance(node, yaml.MappingNode) and node.flow_style:
        _add_in_flow(edits, node, tree)
    elif isinstance(node, yaml.MappingNode) and node.value:
        indent = " " * node.value[0][0].start_mark.column
        edits.insert_line(max(0, _content_end(edits.text, node) - 1), block(tree, indent, edits.newline))
    elif key is not None:
        indent = " " * key.start_mark.column + INDENT
        start = edits.text.index(":", key.end_mark.index) + 1
        edits.spans.append((start, max(start, node.end_mark.index), ""))
        edits.insert_line(start, block(tree, indent, edits.newline))


def _add_in_flow(edits: _Edits, node: yaml.MappingNode, tree: Mapping[str, Any]) -> None:
    end = node.end_mark.index - 1
    lead = ", " if node.value else ""
    place = node.value[-1][1].end_mark.index if node.value and node.value[-1][1].end_mark.index <= end else end
    edits.spans.append((place, place, lead + ", ".join(f"{key_text(key)}: {flow(value)}" for key, value in tree.items())))


def _entry(node: yaml.Node, key: str) -> tuple[yaml.Node, yaml.Node] | None:
    """The last entry of a mapping with this key, as in the loader; merged keys are not in it."""
    if not isinstance(node, yaml.MappingNode):
        return None
    found = [entry for entry in node.value if isinstance(entry[0], yaml.ScalarNode) and str(entry[0].value) == key]
    return found[-1] if found else None


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and str(node.tag) == "tag:yaml.org,2002:null"


def _content_end(text: str, node: yaml.Node) -> int:
    """Where the last character of a node stands; the marks of block collections lie behind the comments that follow."""
    if isinstance(node, yaml.ScalarNode):
        end = int(node.end_mark.index)
        return len(text[:end].rstrip()) if node.style in ("|", ">") else end
    if not isinstance(node, yaml.CollectionNode) or node.flow_style:
        return int(node.end_mark.index)
    start = int(node.start_mark.index)
    children = [child for item in node.value for child in (item if isinstance(item, tuple) else (item,))]
    ends = [_content_end(text, child) for child in children if child.start_mark.index >= start]
    last = max(ends, default=start)
    # A last value that is an alias lies elsewhere: it ends its line.
    if children and children[-1].start_mark.index < start:
        found = ALIAS.match(text, text.index(":", last) + 1 if isinstance(node, yaml.MappingNode) else last)
        last = found.end() if found else last
    return last


def _places(root: yaml.Node) -> dict[int, list[Path]]:
    """All key paths by node; an anchored node has one for each alias, and lists count as one value."""
    found: dict[int, list[Path]] = {}
    stack: list[tuple[yaml.Node, Path]] = [(root, ())]
    visits = 0
    while stack:
        node, path = stack.pop()
        visits += 1
        if visits > _yaml.MAX_NODES:
            raise InputError("YAML", [f"aliases unfold to more than {_yaml.MAX_NODES} values; a configuration has a few hundred"])
        found.setdefault(id(node), []).append(path)
        if isinstance(node, yaml.MappingNode):
            stack += [(child, (*path, str(key.value))) for key, child in node.value if isinstance(key, yaml.ScalarNode)]
        elif isinstance(node, yaml.SequenceNode):
            stack += [(child, path) for child in node.value]
    return found


def _check(name: str, before: Any, after: Any, changes: Mapping[Path, Any], allowed: Iterable[Path]) -> None:
    """Refuse the edit if a value is not what was asked for, or another one changed."""
    wanted = set(allowed)
    problems = [
        f"{_dotted(path)}: {value!r} would be read as {value_at(after, path)!r}"
        for path, value in changes.items()
        if not _same(value_at(after, path), value)
    ]
    problems += [
        f"{_dotted(path)}: would change though it was not asked for; the file is left alone"
        for path in _differences(before, after)
        if not any(path[: len(place)] == place for place in wanted)
    ]
    if problems:
        raise InputError(name, problems)


def _same(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, str) and len(wanted) >= 2 and wanted[0] == wanted[-1] and wanted[0] in "\"'":
        return bool(found == yaml.safe_load(wanted))
    if isinstance(wanted, tuple | list):
        return isinstance(found, list) and len(found) == len(wanted) and all(map(_same, found, wanted))
    return bool(found == wanted)


def _differences(before: Any, after: Any, path: Path = ()) -> Iterator[Path]:
    """Paths whose values differ; a section that was missing or empty counts by its keys."""
    if isinstance(after, Mapping) and (before is None or isinstance(before, Mapping)):
        old = before or {}
        for key in {**old, **after}:
            if key not in after:
                yield (*path, str(key))
            elif key not in old or old[key] != after[key]:
                yield from (
                    _differences(old.get(key), after[key], (*path, str(key))) if after[key] is not None else ((*path, str(key)),)
                )
    elif before != after:
        yield path


def _dotted(path: Path) -> str:
    return ".".join(path)
