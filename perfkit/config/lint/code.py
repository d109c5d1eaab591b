"""What code checks ask of a syntax tree: which loops are training loops, which code runs in every step, what runs only at times.

Hot code is the body of a training loop, `construct`, `bprop`, `forward` and `backward` of classes, and every function of the same
file that hot code calls by name. Nothing is imported: a name that is defined elsewhere is not followed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfkit.config.lint.subjects import Code

STEP_NAMES = ("step", "train", "net", "network", "model", "forward", "loss", "grad", "optimizer", "opt")
LOOP_NAMES = ("dataset", "loader", "dataloader", "iterator", "batches", "steps", "epochs", "iter")
ITERATORS = ("create_dict_iterator", "create_tuple_iterator")
STEP_METHODS = frozenset(
    {"construct", "bprop", "forward", "backward", "train_step", "training_step", "train_one_step", "forward_step"}
)
COUNTERS = ("log_", "should_", "is_last", "do_log", "print_")

Function = ast.FunctionDef | ast.AsyncFunctionDef
Loop = ast.For | ast.While


def called_name(node: ast.Call) -> str:
    """The last name of what is called: `a.b.c(...)` is "c"."""
    return node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id if isinstance(node.func, ast.Name) else ""


def dotted(node: ast.AST) -> str:
    """`a.b.c` as text; "" for anything that is no chain of names."""
    if isinstance(node, ast.Attribute):
        before = dotted(node.value)
        return f"{before}.{node.attr}" if before else ""
    return node.id if isinstance(node, ast.Name) else ""


def step_loops(code: Code) -> tuple[Loop, ...]:
    """Innermost loops that run training steps: they go over batches or steps, or call a network, a step or an optimizer."""
    found: tuple[Loop, ...] = code.once("step loops", lambda: _step_loops(code))
    return found


def hot_nodes(code: Code) -> Iterator[ast.AST]:
    """Every node of the code that runs in every step, once, in the order of the file."""
    yield from code.once("hot nodes", lambda: _hot_nodes(code))


def is_hot(code: Code, node: ast.AST) -> bool:
    """Whether a node runs in every step."""
    return node in code.once("hot set", lambda: frozenset(hot_nodes(code)))


def step_methods(code: Code, *names: str) -> Iterator[tuple[ast.ClassDef, ast.FunctionDef]]:
    """Methods of these names with their classes."""
    for owner in code.nodes(ast.ClassDef):
        for item in owner.body:
            if isinstance(item, ast.FunctionDef) and item.name in names:
                yield owner, item


def keyword(node: ast.Call, name: str) -> ast.expr | None:
    """The value of a keyword argument."""
    return next((item.value for item in node.keywords if item.arg == name), None)


def constant(node: ast.AST | None) -> object:
    """The value of a literal; None for anything else."""
    return node.value if isinstance(node, ast.Constant) else None


def every_nth(code: Code, node: ast.AST) -> bool:
    """Whether a node runs only every n steps: under an `if` with a modulo, or one that asks whether to log."""
    for around in code.around(node):
        if isinstance(around, (ast.For, ast.While, ast.FunctionDef, ast.AsyncFunctionDef)):
            return False
        if isinstance(around, ast.If) and _is_counted(around.test):
            return True
    return False


def _step_loops(code: Code) -> tuple[Loop, ...]:
    loops = [loop for loop in code.nodes(ast.For, ast.While) if _runs_steps(loop)]
    outer = {around for loop in loops for around in code.around(loop)}
    return tuple(loop for loop in loops if loop not in outer)


def _hot_nodes(code: Code) -> tuple[ast.AST, ...]:
    functions: dict[str, list[Function]] = {}
    for function in code.nodes(ast.FunctionDef, ast.AsyncFunctionDef):
        functions.setdefault(function.name, []).append(function)
    waiting: list[ast.AST] = [statement for loop in step_loops(code) for statement in loop.body]
    waiting += [function for name in STEP_METHODS for function in functions.get(name, ()) if _is_method(code, function)]
    hot: dict[ast.AST, None] = {}
    while waiting:
        for node in ast.walk(waiting.pop()):
            if node in hot:
                continue
            hot[node] = None
            if isinstance(node, ast.Call):
                waiting += [function for function in functions.get(called_name(node), ()) if function not in hot]
    return tuple(sorted(hot, key=lambda node: (getattr(node, "lineno", 0), getattr(node, "col_offset", 0))))


def _is_method(code: Code, function: Function) -> bool:
    return isinstance(code.parents.get(function), ast.ClassDef) or function.name not in ("forward", "backward")


def _is_counted(test: ast.expr) -> bool:
    for node in ast.walk(test):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            return True
        if isinstance(node, (ast.Name, ast.Attribute)) and dotted(node).rpartition(".")[2].startswith(COUNTERS):
            return True
    return False


def _runs_steps(loop: Loop) -> bool:
    if isinstance(loop, ast.For) and _names_batches(loop.iter):
        return True
    calls = (node for statement in loop.body for node in ast.walk(statement) if isinstance(node, ast.Call))
    return any(is_step_call(called_name(call).lower()) for call in calls)


def _names_batches(node: ast.expr) -> bool:
    names = {
        part.lower()
        for found in ast.walk(node)
        for part in ([found.id] if isinstance(found, ast.Name) else [found.attr] if isinstance(found, ast.Attribute) else [])
    }
    return any(name == known or name.endswith(f"_{known}") for name in names for known in (*LOOP_NAMES, *ITERATORS))


def is_step_call(name: str) -> bool:
    """Whether a function of this name (in lower case) runs a network, a step or an optimizer."""
    return any(name == known or name.startswith(f"{known}_") or name.endswith(f"_{known}") for known in STEP_NAMES)
