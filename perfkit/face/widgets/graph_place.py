"""Graph places: links from what a recording names to the operators of the compiler's graph, with its source lines, and back."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from perfkit.core.texts import t
from perfkit.explain.graph.search import search_of
from perfkit.face.widgets.navigation import page_link
from perfkit.face.widgets.page_state import page_state

GRAPH_PAGE, TIMELINE_PAGE = "18_graph_ir", "14_timeline"


def graph_link(kernel: str) -> str:
    """The address that searches in the graph the operator that a kernel or a collective is named by; "" where it names none."""
    search, run = search_of(kernel), page_state().get("run")
    return page_link(GRAPH_PAGE, search=search, **({"recorded": run} if run else {})) if search else ""


def linked_to_graph(slices: pd.DataFrame) -> pd.DataFrame:
    """Kernels or collectives, each `name` that names an operator with a link that searches it in the graph; others have none."""
    if "name" in slices:
        links = [graph_link(name) for name in slices["name"].astype(str)]
        if any(links):
            slices.attrs["links"] = {"name": links}
    return slices


def linked_to_timeline(operator: pd.DataFrame) -> pd.DataFrame:
    """What is known of an operator (`what`, `value`), its scope with a link that searches the kernels of that scope."""
    links = [
        page_link(TIMELINE_PAGE, search=search_of(f"Default/{text.removeprefix('recompute_')}")) if what == "scope" else ""
        for what, text in zip(operator["what"], operator["value"], strict=True)
    ]
    operator.attrs["links"] = {"value": links}
    return operator


def linked_to_slices(sums: pd.DataFrame, path: str | Path) -> pd.DataFrame:
    """Executions of the recording at `path` as `by_rank` or `by_line` sum them, each row with a link to its longest slice."""
    links = []
    for row in sums.to_dict("records"):
        start_ns, length_ns = int(row["start_ns"]), int(row["longest_ns"])
        window = {"from": start_ns - length_ns, "to": start_ns + 2 * length_ns}
        stream = "" if pd.isna(row["stream"]) else row["stream"]
        links.append(page_link(TIMELINE_PAGE, run=path, **window, show=f"{row['rank']}|{stream}|{start_ns}|{row['name']}"))
    frame = sums.drop(columns=["start_ns", "stream"]).assign(see=t("timeline"))
    frame.attrs["links"] = {"see": links}
    return frame
