"""Reads graph files of MindSpore 1.x to 2.10 (`save_graphs`), whole, cut off or damaged, line by line.

Lines are told by their first characters. A line that is none of the known ones is counted, and the first of them are kept with
their number; reading goes on. Nothing that the file says is executed or imported. Only a file of which nothing can be read is an
error. Other outputs of the compiler (actor sets, tracker graphs) have another grammar and are refused by name.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from perfkit.core.errors import InputError
from perfkit.explain.graph._grammar import merge_strategy, node_line, parameter_line, subgraph_line, types_line
from perfkit.explain.graph.model import GraphFile, Node, Parameter, Problem, Subgraph, parameter_of

MAX_PROBLEMS = 100
MAX_LINE_BYTES = 4 * 2**20
"""A line beyond this is skipped: real ones hold some 100 kB at most, where a tuple of all weights is passed on."""

Progress = Callable[[str, int, int], None]

_HEADER = re.compile(r"^#?\s*(IR entry|Total params|Total subgraphs?|Total number of c?nodes)\s*:\s*(.*)$")
_SETTING = re.compile(r"^[\w.$]{1,100}\s*:(?:\s|$)")
_SCOPE = re.compile(r"^#\s*(?:Fullname with scope|[Ss]cope)\s*:\s*(.*)$")
_SOURCE = re.compile(r"^# In file (.{1,1000}?)/?$")
_HEADING = re.compile(r"^(?:indirect: \d|subgraph instance\b|#?\s*(?:subgraph )?[Aa]ttrs?\s*:|jit config \{|Node counting)")
_FOREIGN = ("# shape :", "# AID :", "# device address :")
_TOO_LONG = b"\x00 a line of more than 4 MiB\n"


@dataclass(slots=True)
class _Draft:
    """An operator while its lines are read."""

    graph: int
    line: int
    fields: dict[str, Any]
    complete: bool
    has_types: bool = False
    sources: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _OpenGraph:
    name: str
    line: int
    parameters: tuple[str, ...] = ()
    nodes: dict[int, Node] = field(default_factory=dict)
    returned: bool = False
    closed: bool = False


def read_file(path: Path | str, *, name: str = "", progress: Progress | None = None) -> GraphFile:
    """Read one graph file. Raises InputError if it does not exist or holds nothing of a graph."""
    place = Path(path)
    try:
        with place.open("rb") as stream:
            return read_stream(stream, name=name or place.name, path=str(place), size=place.stat().st_size, progress=progress)
    except OSError as error:
        raise InputError(str(place), [f"cannot be read: {error.strerror}"]) from error


def read_stream(stream: BinaryIO, *, name: str, path: str = "", size: int = 0, progress: Progress | None = None) -> GraphFile:
    """Read a graph from an open binary stream; see `read_file`."""
    reader = _Reader()
    done = 0
    for number, raw in enumerate(_lines(stream), start=1):
        reader.line(number, raw)
        done += len(raw)
        if progress is not None and number % 20_000 == 0:
            progress(name, done, size)
    return reader.finish(name, path)


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    while line := stream.readline(MAX_LINE_BYTES):
        if len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
            while (rest := stream.readline(MAX_LINE_BYTES)) and not rest.endswith(b"\n"):
                pass
            line = _TOO_LONG
        yield line


class _Reader:
    """The state between two lines: the open sub-graph and the open operator."""

    def __init__(self) -> None:
        self.graphs: list[_OpenGraph] = []
        self.parameters: dict[str, Parameter] = {}
        self.header: dict[str, str] = {}
        self.problems: list[Problem] = []
        self.draft: _Draft | None = None
        self.number = self.node_lines = self.skipped = self.repaired = self.num_entries = self.num_returns = self.foreign = 0
        self.cut = self.wants_scope = False
        self.marks: set[str] = set()

    def line(self, number: int, raw: bytes) -> None:
        """Take the next line of the file."""
        self.number = number
        text = raw.decode("utf-8", "replace").lstrip("\ufeff").strip()
        if not text:
            return
        if "\ufffd" in text:
            self.note("bytes that are no UTF-8 were replaced", text, repaired=True)
        wanted, self.wants_scope = self.wants_scope, False
        if wanted and text.startswith("("):
            self.scope(text)
        elif not self.known(text):
            self.skipped += 1
            self.note("is no line of a graph file", text)

    def known(self, text: str) -> bool:
        """Use a line; False if it is none of a graph file."""
        match text[0]:
            case "%":
                return self.parameter(text) if text.startswith("%para") else self.node(text)
            case ":":
                return self.types(text)
            case "{":
                return self.strategy(text)
            case "#":
                return self.comment(text)
            case _:
                return self.word(text)

    def note(self, what: str, text: str = "", *, line: int = 0, repaired: bool = False) -> None:
        """Keep what is wrong with a line, the present one by default."""
        self.repaired += repaired
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(Problem(line or self.number, what, text[:120]))

    def node(self, text: str) -> bool:
        self.flush()
        read = node_line(text)
        if read is None:
            self.foreign += "Actor" in text[:200]
            return False
        for repair in read.repairs:
            self.note(repair, repaired=True)
        if read.whole:
            self.node_lines += 1
        else:
            self.cut_off(text)
        if not self.graphs or (self.graphs[-1].closed and not self.num_entries):
            self.graphs.append(_OpenGraph("", self.number))  # an excerpt names no sub-graph
        self.draft = _Draft(len(self.graphs) - 1, self.number, read.fields, read.whole)
        return True

    def types(self, text: str) -> bool:
        draft = self.draft
        if draft is None:
            return bool(self.graphs)  # those of a Return line
        if draft.has_types:
            return True  # graphs of the back end repeat them as device types and as kinds of objects
        read = types_line(text)
        if read is None:
            draft.complete = False
            self.cut_off(text)
        elif isinstance(read, str):
            self.scope(read)
        else:
            draft.has_types = True
            draft.fields["in_types"], draft.fields["out_types"] = read
            if "[const vector][" in text and "sequence_nodes" not in text:
                self.marks.add("1.x")
        return True

    def cut_off(self, text: str) -> None:
        self.cut = True
        self.note("is cut off or has an open bracket", text)

    def strategy(self, text: str) -> bool:
        rest = merge_strategy(self.draft.fields, text) if self.draft is not None else None
        if rest is None:
            return False
        self.marks.add("1.x")
        return self.types(rest) if rest.startswith(":") else True

    def comment(self, text: str) -> bool:
        if found := _SCOPE.match(text):
            self.marks.add("Fullname" if "Fullname" in text else "scope" if text.startswith("# scope") else "Scope")
            if found[1]:
                self.scope(found[1])
            else:
                self.wants_scope = True
        elif (found := _SOURCE.match(text)) and self.draft is not None:
            self.draft.sources.append(sys.intern(found[1]))
        elif found := _HEADER.match(text):
            self.head(found[1], found[2])
        elif text.startswith(_FOREIGN):
            self.foreign += 1
        return True

    def scope(self, text: str) -> None:
        if self.draft is not None:
            self.draft.fields["scope"] = sys.intern(text[1:-1] if text.endswith(")") else text[1:])

    def head(self, key: str, text: str) -> None:
        if key == "IR entry":
            self.flush()
            self.num_entries += 1
            if self.num_entries > 1:
                self.cut = True
                self.note("begins another graph; its operators are kept apart")
        self.header.setdefault(key, text.strip())

    def word(self, text: str) -> bool:
        if text.startswith("subgraph @"):
            return self.subgraph(text)
        if text.startswith(("Return(", "return(", "}")):
            self.flush()
            self.num_returns += text[0] != "}"
            if self.graphs:
                self.graphs[-1].returned |= text[0] != "}"
                self.graphs[-1].closed |= text[0] == "}"
            return True
        if found := _HEADER.match(text):
            self.head(found[1], found[2])
            return True
        in_body = self.draft is not None or (self.graphs and not self.graphs[-1].closed and self.graphs[-1].nodes)
        return bool(_HEADING.match(text) or (not in_body and _SETTING.match(text)))

    def subgraph(self, text: str) -> bool:
        self.flush()
        found = subgraph_line(text)
        if found is None:
            return False
        own = tuple(name for part in found[1] if (name := parameter_of(part)))
        self.graphs.append(_OpenGraph(found[0], self.number, own))
        return True

    def parameter(self, text: str) -> bool:
        self.flush()
        found = parameter_line(text, self.number)
        if found is not None:
            self.parameters.setdefault(found.name, found)
        return found is not None

    def flush(self) -> None:
        """Close the open operator."""
        draft, self.draft, self.wants_scope = self.draft, None, False
        if draft is None:
            return
        complete = draft.complete and draft.has_types
        node = Node(graph=draft.graph, line=draft.line, complete=complete, sources=tuple(draft.sources), **draft.fields)
        if self.graphs[draft.graph].nodes.setdefault(node.id, node) is not node:
            self.note(f"%{node.id} is defined twice; the first one counts", line=draft.line)

    def finish(self, name: str, path: str) -> GraphFile:
        """The file as read; raises InputError if there was nothing of a graph in it."""
        self.flush()
        if not any(graph.nodes for graph in self.graphs) and not self.header:
            raise InputError(name, [self.refusal()])
        stated = self.header.get("Total number of cnodes", "")
        agrees = not stated.isdecimal() or int(stated) == self.node_lines + self.num_returns
        if not agrees:
            self.note(f"{self.node_lines} operators and {self.num_returns} returns were read, the file says {stated}")
        whole = bool(self.graphs) and all(graph.closed and graph.returned for graph in self.graphs) and bool(self.header)
        return GraphFile(
            name=name,
            path=path,
            subgraphs=tuple(
                Subgraph(graph.name, graph.nodes, graph.parameters, graph.line, graph.returned, graph.closed)
                for graph in self.graphs
            ),
            parameters=self.parameters,
            header=self.header,
            problems=tuple(self.problems),
            node_lines=self.node_lines,
            skipped_lines=self.skipped,
            repaired_lines=self.repaired,
            num_lines=self.number,
            version=self.version(),
            complete=whole and agrees and not self.cut and not self.skipped,
        )

    def version(self) -> str:
        """The MindSpore version as far as the way of printing tells it."""
        known = (("1.x", "1.x"), ("scope", "2.0"), ("Fullname", "2.3 or later"), ("Scope", "2.1 or later"))
        return next((version for mark, version in known if mark in self.marks), "unknown")

    def refusal(self) -> str:
        """Why nothing could be read."""
        if not self.number:
            return "is empty"
        if self.foreign:
            return "is an actor set or tracker graph of the compiler, which holds no attributes; open the *_validate_*.ir file"
        return f"is not a graph file: none of its {self.number} lines is an operator; save_graphs writes files that end in .ir"
