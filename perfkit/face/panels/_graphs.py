"""Graphs: what pages 18 and 31 share: the files that can be opened, the last one read, and the rows of a picture."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Lock

from perfkit.core.resources import data_folder
from perfkit.explain.graph import GraphAnalysis, GraphReport, read_graph
from perfkit.explain.graph.model import Node
from perfkit.explain.graph.picture import Picture
from perfkit.face.charts.graph import HALF_HEIGHT, HALF_WIDTH, Rows
from perfkit.face.widgets import context
from perfkit.face.widgets.status import NothingYet

SAMPLES = {
    "Strategy mismatch (8 devices)": "ir/strategy_mismatch.ir",
    "Column and row cuts (8 devices)": "ir/column_row.ir",
    "Sequence parallel (8 devices)": "ir/sequence_parallel.ir",
    "No recomputation (4 devices)": "ir/silu_mul_without.ir",
    "SiLU and Mul, not in effect (4 devices)": "ir/silu_mul_not_in_effect.ir",
    "SiLU and Mul, in effect (4 devices)": "ir/silu_mul_in_effect.ir",
    "Loop and branch (source lines kept)": "ir/control_flow.ir",
}
_open: dict[tuple[str, int], GraphReport] = {}
_lock = Lock()


def options(_state: object = None) -> list[tuple[str, str, str]]:
    """Graph files to choose from: those of the project, then the bundled samples."""
    project = context.current_project()
    own = sorted(project.folder.glob("uploads/**/*.ir")) if project is not None else []
    found = [(path.name, str(path), "Project") for path in own]
    return [*found, *((label, str(data_folder() / path), "Samples") for label, path in SAMPLES.items())]


def sample(name: str) -> str:
    """The path of a bundled sample."""
    return str(data_folder() / "ir" / name)


def read(path: str, progress: Callable[[str, int, int], None] | None = None) -> GraphReport:
    """The graphs at `path`, read once as long as the file does not change; NothingYet for an empty path."""
    if not path:
        raise NothingYet("No graph is open yet. Choose a .ir file that save_graphs wrote, or a folder of them.")
    place = Path(path).expanduser()
    key = (str(place), place.stat().st_mtime_ns if place.exists() else 0)
    with _lock:
        if key not in _open:
            report = read_graph(place, progress=progress)
            if len(_open) >= len(SAMPLES):
                _open.clear()
            _open[key] = report
        return _open[key]


def picture_rows(analysis: GraphAnalysis, picture: Picture, chosen: Node | None) -> Rows:
    """The data sets of `charts.graph.dataflow`."""
    places = {(placed.node.graph, placed.node.id): placed for placed in picture.nodes}
    notes = {(entry.node.graph, entry.node.id): (entry.verdict, entry.why) for entry in analysis.communications}
    edges = []
    for number, (source, target, between) in enumerate(picture.edges):
        start, end = places[source], places[target]
        points = [(start.x, start.row + HALF_HEIGHT), *between, (end.x, end.row - HALF_HEIGHT)]
        edges += [{"edge": number, "point": place, "x": x, "y": y} for place, (x, y) in enumerate(points)]
    nodes = []
    for placed in picture.nodes:
        node = placed.node
        verdict, why = notes.get((node.graph, node.id), ("", ""))
        nodes.append(
            {
                "node": node_key(node),
                "op": node.op,
                "label": f"⇄ {node.op}" if verdict else node.op,
                "cell": _cell(node),
                "scope": node.short_scope,
                "result": type_text(node),
                "strategy": strategy_text(node),
                "note": f"{verdict}: {why}" if verdict else "",
                "source": node.sources[-1] if node.sources else "",
                "kind": kind_of(node, verdict),
                "chosen": chosen is not None and node is chosen,
                "x": placed.x,
                "y": placed.row,
                "left": placed.x - HALF_WIDTH,
                "right": placed.x + HALF_WIDTH,
                "top": placed.row - HALF_HEIGHT,
                "bottom": placed.row + HALF_HEIGHT,
            }
        )
    return {"edges": edges, "nodes": nodes}


def kind_of(node: Node, verdict: str) -> str:
    """The class of colour of an operator in a picture."""
    if verdict:
        return "communication" if verdict == "expected" else "avoidable communication"
    if node.is_copy:
        return "recomputed copy"
    return "backward" if node.is_backward else "forward"


def node_key(node: Node) -> str:
    """How pages name an operator: its id, with the sub-graph in front where there are several."""
    return node.label if node.graph == 0 else f"{node.graph}:{node.label}"


def find_node(analysis: GraphAnalysis, key: str) -> Node | None:
    """The operator of a `node_key`."""
    graph, _, label = key.rpartition(":")
    number = label.removeprefix("%")
    place = int(graph) if graph.isdecimal() else 0
    if not number.isdecimal() or place >= len(analysis.file.subgraphs):
        return None
    return analysis.file.subgraphs[place].nodes.get(int(number))


def type_text(node: Node) -> str:
    """The type of the result in words."""
    if node.out.dtype is None:
        return ""
    return f"{node.out.dtype} {'?' if node.out.shape is None else node.out.shape}"


def strategy_text(node: Node) -> str:
    """The declared strategy as printed, without spaces between its tuples."""
    text = node.primitive_attrs.get("in_strategy", "")
    out = node.primitive_attrs.get("out_strategy", "")
    return text + (f" out {out}" if out not in ("", "None") else "")


def _cell(node: Node) -> str:
    """The cell that an operator belongs to, such as "w2"."""
    parts = node.short_scope.split("/")[:-1]
    names = (part.partition("-")[0] for part in reversed(parts) if "-" in part and not part.startswith("Grad_"))
    name = next(names, "")
    return name if name[:1].isalpha() else ""
