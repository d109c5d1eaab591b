"""Graph places: links from the kernels of a recording to the operators of the compiler's graph, with its source lines, and back."""

from __future__ import annotations

import pandas as pd

from perfkit.explain.graph.search import search_of
from perfkit.face.widgets.navigation import page_link

GRAPH_PAGE, TIMELINE_PAGE = "18_graph_ir", "14_timeline"


def linked_to_graph(kernels: pd.DataFrame) -> pd.DataFrame:
    """The kernels, each `name` that is the scope of an operator with a link that searches it in the graph; others have none."""
    if "name" in kernels:
        searches = [search_of(name) for name in kernels["name"].astype(str)]
        if any(searches):
            kernels.attrs["links"] = {"name": [page_link(GRAPH_PAGE, search=text) if text else "" for text in searches]}
    return kernels


def linked_to_timeline(operator: pd.DataFrame) -> pd.DataFrame:
    """What is known of an operator (`what`, `value`), its scope with a link that searches the kernels of that scope."""
    links = [
        page_link(TIMELINE_PAGE, search=text.removeprefix("recompute_")) if what == "scope" else ""
        for what, text in zip(operator["what"], operator["value"], strict=True)
    ]
    operator.attrs["links"] = {"value": links}
    return operator
