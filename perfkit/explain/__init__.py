"""From a run to why: queries, critical path, findings, comparisons, what-if, compiler graphs."""
