"""Operators that are run one after the other."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.code import called_name, constant, keyword
from perfkit.config.lint.subjects import Code


def _check(code: Code) -> Iterator[Found]:
    for node in code.nodes(ast.Call):
        if constant(keyword(node, "pynative_synchronize")) is True or (
            called_name(node) == "launch_blocking" and not node.args and not node.keywords
        ):
            yield Found(message="operators are run one after the other", line=node.lineno)


CHECK = Check(
    name="pynative-sync-on",
    title="Synchronous execution is on",
    kind="code",
    severity="warning",
    check=_check,
    why="Every operator waits for the one before it; the host cannot run ahead.",
    fix="switch it off, except with the memory tracker or to find a failing operator",
    bad="""import mindspore as ms
ms.set_context(pynative_synchronize=True)
""",
    repair=("ms.set_context(pynative_synchronize=True)", "ms.set_context(pynative_synchronize=False)"),
    example="train.py",
)
