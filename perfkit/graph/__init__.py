"""Graph files that the MindSpore compiler saves: operators, communications and their causes, recomputation in effect.

`read_graph(path)` reads a file or folder; docs/graphs.md says what the files hold and how the verdicts come about.
"""

from perfkit.graph.configured import against_config
from perfkit.graph.report import GraphAnalysis, GraphReport, read_graph

__all__ = ["GraphAnalysis", "GraphReport", "against_config", "read_graph"]
