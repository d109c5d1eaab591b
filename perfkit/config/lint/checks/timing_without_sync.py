"""A time that is taken without waiting for the device."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfkit.config.lint.check import Check, Found
from perfkit.config.lint.code import called_name, dotted, is_step_call
from perfkit.config.lint.subjects import Code
from perfkit.core.texts import say

WAITS = frozenset({"synchronize", "asnumpy", "item", "block_until_ready"})
CLOCKS = frozenset({"time", "perf_counter", "monotonic", "process_time", "perf_counter_ns", "time_ns"})


def _check(code: Code) -> Iterator[Found]:
    clocks = [node for node in code.nodes(ast.Call) if called_name(node) in CLOCKS and dotted(node.func).startswith("time.")]
    bodies = {id(body): body for clock in clocks if (body := _body_of(code, clock)) is not None}
    for body in bodies.values():
        started = worked = False
        for statement in body:
            calls = [node for node in ast.walk(statement) if isinstance(node, ast.Call)]
            names = [called_name(call) for call in calls]
            clock = next((call for call in calls if call in clocks), None)
            if any(name in WAITS or name.startswith("save") for name in names):  # what saves fetches the weights
                worked = False
            elif any(is_step_call(name.lower()) for name in names):
                worked = started
            if clock is None:
                continue
            if started and worked and any(isinstance(node, ast.Sub) for node in ast.walk(statement)):
                yield Found(message=say("{code} without waiting for the device", code=ast.unparse(clock)), line=clock.lineno)
            started = True


def _body_of(code: Code, node: ast.AST) -> list[ast.stmt] | None:
    """The list of statements that a node is in."""
    for around in code.around(node):
        if isinstance(around, (ast.Module, ast.For, ast.While, ast.FunctionDef, ast.AsyncFunctionDef, ast.With)):
            return around.body
    return None


CHECK = Check(
    name="timing-without-sync",
    title="A time is taken while the device still works",
    kind="code",
    severity="information",
    check=_check,
    why="Launching returns at once: the difference is the time of the host, not of the step.",
    fix="synchronise before both times, in measuring code only",
    bad="""import time
start = time.time()
net(x)
spent = time.time() - start
""",
    repair=(
        "net(x)",
        """net(x)
ms.hal.synchronize()""",
    ),
    example="measure.py",
)
