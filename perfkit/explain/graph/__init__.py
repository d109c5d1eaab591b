"""Graph files that the MindSpore compiler saves: operators, communications and their causes, recomputation in effect.

`read_graph(path)` reads a file or folder; docs/graphs.md says what the files hold and how the verdicts come about.
"""

from perfkit.explain.graph.configured import against_config
from perfkit.explain.graph.difference import GraphDifference, compare_graphs
from perfkit.explain.graph.report import GraphAnalysis, GraphReport, read_graph

__all__ = ["GraphAnalysis", "GraphDifference", "GraphReport", "against_config", "compare_graphs", "read_graph"]
