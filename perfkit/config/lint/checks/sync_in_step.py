"""A value of a tensor that is fetched to the host in every step."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.code import called_name, dotted, every_nth, hot_nodes
from perfkit.config.lint.subjects import Code

METHODS = frozenset({"asnumpy", "item", "tolist", "cpu", "numpy"})
CASTS = frozenset({"float", "int", "bool"})
FETCHED = ("loss", "grad", "norm", "output", "logits", "acc")


def _check(code: Code) -> Iterator[Found]:
    for node in hot_nodes(code):
        if isinstance(node, ast.Call) and _fetches(node) and not every_nth(code, node):
            yield Found(message=f"{ast.unparse(node)[:80]} waits for the device in every step", line=node.lineno)


def _fetches(node: ast.Call) -> bool:
    if isinstance(node.func, ast.Attribute):
        if node.func.attr == "synchronize":
            return True
        return node.func.attr in METHODS and not node.args and not dotted(node.func.value).startswith(("np", "numpy", "os"))
    if called_name(node) in CASTS and len(node.args) == 1:
        return dotted(node.args[0]).rpartition(".")[2].lower().startswith(FETCHED)
    if called_name(node) == "print":
        return any(dotted(item).rpartition(".")[2].lower().startswith(FETCHED) for item in node.args)
    return False


CHECK = Check(
    name="sync-in-step",
    title="The host waits for the device in every step",
    kind="code",
    severity="warning",
    check=_check,
    why="The host can launch nothing while it waits, so that the device runs dry after every step.",
    fix="fetch the value every n steps",
    bad="""for step, batch in enumerate(dataset):
    loss = train_step(batch)
    print(loss.asnumpy())
""",
    repair=(
        "    print(loss.asnumpy())",
        """    if step % 100 == 0:
        print(loss.asnumpy())""",
    ),
    example="train.py",
)
