"""Deterministic operators in a run that is timed."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.code import called_name, constant, keyword
from perfkit.config.lint.subjects import Code


def _check(code: Code) -> Iterator[Found]:
    for node in code.nodes(ast.Call):
        if any(isinstance(around, ast.If) for around in code.around(node)):
            continue  # an option that the file offers, not one that it sets
        if str(constant(keyword(node, "deterministic"))).upper() == "ON":
            yield Found(message="deterministic='ON'", line=node.lineno)
        elif (
            called_name(node) in ("set_deterministic", "use_deterministic_algorithms")
            and node.args
            and constant(node.args[0]) is True
        ):
            yield Found(message=f"{called_name(node)}(True)", line=node.lineno)


CHECK = Check(
    name="deterministic-on",
    title="Deterministic operators are on",
    kind="code",
    severity="warning",
    check=_check,
    why="Deterministic operators and communication are slower; they are for accuracy runs.",
    fix="switch it off outside of accuracy runs",
    bad="""import mindspore as ms
ms.set_context(deterministic='ON')
""",
    repair=("ms.set_context(deterministic='ON')", "ms.set_context(deterministic='OFF')"),
    example="train.py",
)
