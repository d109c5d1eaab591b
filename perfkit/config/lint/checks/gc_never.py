"""Garbage collection that is switched off and never called."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.code import dotted, step_loops
from perfkit.config.lint.subjects import Code


def _check(code: Code) -> Iterator[Found]:
    calls = {dotted(node.func): node for node in code.nodes(ast.Call)}
    if "gc.disable" in calls and "gc.collect" not in calls and step_loops(code):
        yield Found(message="gc.disable() without any gc.collect()", line=calls["gc.disable"].lineno)


CHECK = Check(
    name="gc-never",
    title="Garbage is never collected",
    kind="code",
    severity="information",
    check=_check,
    why="With the collector off memory grows until the host has none.",
    fix="call gc.collect() every few hundred steps",
    bad="""gc.disable()
for batch in dataset:
    loss = train_step(batch)
""",
    repair=(
        """for batch in dataset:
    loss = train_step(batch)""",
        """for step, batch in enumerate(dataset):
    loss = train_step(batch)
    if step % 300 == 0:
        gc.collect()""",
    ),
    example="train.py",
)
