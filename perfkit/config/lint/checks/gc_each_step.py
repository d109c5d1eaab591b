"""Garbage collection in every step."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.code import dotted, every_nth, hot_nodes, only_where
from perfkit.config.lint.subjects import Code
from perfkit.core.texts import say


def _check(code: Code) -> Iterator[Found]:
    for node in hot_nodes(code):
        if (
            isinstance(node, ast.Call)
            and dotted(node.func) in ("gc.collect", "torch.cuda.empty_cache", "ms.hal.empty_cache")
            and not every_nth(code, node)
        ):
            yield Found(
                message=say("{code} in every step{where}", code=ast.unparse(node), where=only_where(code, node)), line=node.lineno
            )


CHECK = Check(
    name="gc-each-step",
    title="Garbage is collected in every step",
    kind="code",
    severity="warning",
    check=_check,
    why="A full collection takes tens of milliseconds, while nothing is launched.",
    fix="collect every few hundred steps",
    bad="""for step, batch in enumerate(dataset):
    loss = train_step(batch)
    gc.collect()
""",
    repair=(
        "    gc.collect()",
        """    if step % 300 == 0:
        gc.collect()""",
    ),
    example="train.py",
)
