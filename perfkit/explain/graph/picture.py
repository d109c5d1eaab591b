"""The neighbourhood of an operator, laid out to be drawn: operators in rows from top to bottom, edges with their way points.

Operators that only order or rename values (Load, Depend, MakeTuple, ...) are left out and their edges joined; so are constants and
the path of a weight to its product, except where it communicates. Rows are longest paths; within a row operators are placed by the
mean place of their neighbours, swept down and up (Sugiyama et al. 1981), with way points for edges that cross rows.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from perfkit.explain.graph.communications import is_communication
from perfkit.explain.graph.links import Key, Links
from perfkit.explain.graph.model import GraphFile, Node, parameter_of
from perfkit.explain.graph.recompute import block_of
from perfkit.explain.graph.report import GraphAnalysis

MAX_NODES = 60
REACH = 5
NEAR = 2
SWEEPS = 6
MAX_WAY_POINTS = 1_000
WAY_POINT_WIDTH = 0.3
HALF_PLACE = 0.5
_JOINED = frozenset({"Load", "Depend", "MakeTuple", "TupleGetItem", "UpdateState", "Return"})

Around = Literal["operator", "layer", "layer backward"]
AROUND: tuple[tuple[str, Around], ...] = (
    ("around the operator", "operator"),
    ("its layer, forward", "layer"),
    ("its layer, backward", "layer backward"),
)
"""What can be drawn of an operator, in words."""


@dataclass(frozen=True, slots=True)
class Placed:
    """An operator at a row (0 on top) and a place in its row (0 in the middle)."""

    node: Node
    row: int
    x: float


@dataclass(frozen=True, slots=True)
class Picture:
    """What to draw. `edges` are pairs of operators with the points between; `left_out` counts neighbours beyond the limit."""

    nodes: tuple[Placed, ...]
    edges: tuple[tuple[Key, Key, tuple[tuple[float, float], ...]], ...]
    left_out: int

    def told(self) -> str:
        """How many neighbours are left out; "" if none is."""
        return f"The picture stops at {MAX_NODES} operators; {self.left_out} neighbours are left out." if self.left_out else ""


def picture_of(analysis: GraphAnalysis, node: Node, around: Around = "operator") -> tuple[str, Picture]:
    """The title and the picture of what is around `node`, or of its layer in one pass."""
    if around == "operator":
        return f"What is around {node.key} {node.op}", neighbourhood(analysis.file, analysis.links, node)
    backward, block = around == "layer backward", block_of(node)
    title = f"{block}, {'backward' if backward else 'forward'} pass"
    return title, layer(analysis.file, analysis.links, block, backward=backward)


def neighbourhood(file: GraphFile, links: Links, center: Node, *, also: Sequence[Node] = (), max_nodes: int = MAX_NODES) -> Picture:
    """The operators up to `REACH` steps from `center`, at most `max_nodes`, nearest first; and `also` with what is next to them.

    Only operators of the same layer and pass are passed through; what they read or feed elsewhere is drawn where it ends, close to
    `center` only, so that a forward neighbourhood is not buried under the gradients that read it.
    """
    before, after = _neighbours(file, links)
    chosen: dict[Key, Node] = {}
    queue = deque([(center, 0)])
    for one in also:
        key = (one.graph, one.id)
        queue += [(near, REACH) for near in (one, *before.get(key, ()), *after.get(key, ()))]
    left_out = 0
    while queue:
        node, distance = queue.popleft()
        key = (node.graph, node.id)
        if key in chosen:
            continue
        if len(chosen) == max_nodes:
            left_out += 1
            continue
        chosen[key] = node
        if distance == REACH or not _together(center, node):
            continue
        near = [*before.get(key, ()), *after.get(key, ())]
        queue += [(one, distance + 1) for one in near if distance < NEAR or _together(center, one)]
    return _laid_out(chosen, before, left_out)


def _together(one: Node, other: Node) -> bool:
    return one.is_backward == other.is_backward and (block_of(one) == block_of(other) or one.scope == "")


def layer(file: GraphFile, links: Links, block: str, *, backward: bool = False, max_nodes: int = MAX_NODES) -> Picture:
    """The operators of one layer such as "layers/0", of the forward or the backward pass, the first `max_nodes` of them."""
    before, _ = _neighbours(file, links)
    own = [node for node in file.nodes() if node.is_backward == backward and block_of(node) == block and _drawn(file, node)]
    chosen = {(node.graph, node.id): node for node in own[:max_nodes]}
    return _laid_out(chosen, before, max(0, len(own) - max_nodes))


def _neighbours(file: GraphFile, links: Links) -> tuple[dict[Key, list[Node]], dict[Key, list[Node]]]:
    """Drawn operators before and after each drawn one, with the joined ones skipped."""
    before: dict[Key, list[Node]] = defaultdict(list)
    after: dict[Key, list[Node]] = defaultdict(list)
    for node in file.nodes():
        if not _drawn(file, node):
            continue
        for source in _drawn_sources(file, node):
            before[node.graph, node.id].append(source)
            after[source.graph, source.id].append(node)
    return before, after


def _drawn(file: GraphFile, node: Node) -> bool:
    return node.op not in _JOINED and (is_communication(node) or not _on_weight_path(file, node))


def _on_weight_path(file: GraphFile, node: Node) -> bool:
    """Whether `node` only casts a weight."""
    if node.op != "Cast" or not node.arguments:
        return False
    source = file.source(node, 0)
    if source is not None and source.op == "Load":
        return True
    name = parameter_of(node.arguments[0])
    known = file.parameters.get(name) if name else None
    return source is None and known is not None and known.is_weight


def _drawn_sources(file: GraphFile, node: Node) -> list[Node]:
    found: dict[Key, Node] = {}
    queue = deque(file.sources(node))
    seen: set[Key] = set()
    while queue:
        at = queue.popleft()
        key = (at.graph, at.id)
        if key in seen:
            continue
        seen.add(key)
        if at.op in ("Depend", "Load"):
            first = file.source(at, 0)
            queue += [first] if first is not None else []
        elif at.op in ("MakeTuple", "TupleGetItem"):
            queue += file.sources(at)
        elif at.op != "UpdateState" and _drawn(file, at):
            found[key] = at
    return list(found.values())


def _laid_out(chosen: dict[Key, Node], before: dict[Key, list[Node]], left_out: int) -> Picture:
    sources = {key: [(one.graph, one.id) for one in before.get(key, ()) if (one.graph, one.id) in chosen] for key in chosen}
    rows = _rows(chosen, sources)
    crossed = sum(max(0, rows[key] - rows[source] - 1) for key, given in sources.items() for source in given)
    bends = crossed <= MAX_WAY_POINTS  # a graph this tangled is no clearer with them
    # A way point is named by its edge and row, so that every step of an edge joins neighbouring rows.
    steps: dict[object, list[object]] = defaultdict(list)
    by_row: dict[int, list[object]] = defaultdict(list)
    for key in sorted(chosen):
        by_row[rows[key]].append(key)
    for key, given in sources.items():
        for source in given:
            chain: list[object] = [source, *_way(source, key, rows, bends=bends), key]
            for offset, point in enumerate(chain[1:-1], start=1):
                by_row[rows[source] + offset].append(point)
            for one, other in pairwise(chain):
                steps[one].append(other)
                steps[other].append(one)
    x = _places(by_row, steps)
    edges = tuple(
        (source, key, tuple((x[point], float(point[2])) for point in _way(source, key, rows, bends=bends)))
        for key, given in sources.items()
        for source in given
    )
    return Picture(tuple(Placed(node, rows[key], x[key]) for key, node in chosen.items()), edges, left_out)


def _way(source: Key, key: Key, rows: dict[Key, int], *, bends: bool) -> list[tuple[Key, Key, int]]:
    """The way points of an edge, one in each row that it crosses."""
    return [(source, key, row) for row in range(rows[source] + 1, rows[key])] if bends else []


def _rows(chosen: dict[Key, Node], sources: dict[Key, list[Key]]) -> dict[Key, int]:
    rows: dict[Key, int] = {}
    for key in sorted(chosen):  # ids are in order of execution; an argument that comes later (damage) is left aside
        rows[key] = max((rows[source] + 1 for source in sources[key] if source in rows), default=0)
    for key in sorted(chosen, reverse=True):  # what has no source moves down to its first reader
        readers = [rows[other] for other in chosen if key in sources[other] and rows[other] > rows[key]]
        if not sources[key] and readers:
            rows[key] = min(readers) - 1
    return rows


def _places(by_row: dict[int, list[object]], steps: dict[object, list[object]]) -> dict[object, float]:
    x = {item: place - (len(items) - 1) / 2 for items in by_row.values() for place, item in enumerate(items)}
    order = sorted(by_row)
    for sweep in range(SWEEPS):
        for row in order if sweep % 2 == 0 else reversed(order):
            items = by_row[row]
            wished = {item: sum(x[near] for near in steps[item]) / len(steps[item]) if steps[item] else x[item] for item in items}
            items.sort(key=wished.__getitem__)
            x |= _spread([wished[item] for item in items], items)
    return x


def _spread(wished: list[float], items: list[object]) -> dict[object, float]:
    """Places as wished, pushed apart as far as the items are wide, and centred on the wishes."""
    placed: list[float] = []
    for place, (wish, item) in enumerate(zip(wished, items, strict=True)):
        gap = (_width(items[place - 1]) + _width(item)) / 2 if place else 0.0
        placed.append(max(wish, placed[-1] + gap) if placed else wish)
    shift = sum(wish - place for wish, place in zip(wished, placed, strict=True)) / len(placed)
    return {item: place + shift for item, place in zip(items, placed, strict=True)}


def _width(item: object) -> float:
    """An operator needs one place, the way point of an edge a third."""
    return WAY_POINT_WIDTH if isinstance(item, tuple) and len(item) == 3 else 2 * HALF_PLACE
