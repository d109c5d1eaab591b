"""What code checks ask of a syntax tree: which loops are training loops, which code runs in every step, what runs only at times.

Hot code is the body of a training loop, `construct`, `bprop`, `forward` and `backward` of classes, and every function of the same
file that hot code calls by name in every step. What saves, logs at intervals, validates or generates is not followed, and loops
without gradients are none of training. Nothing is imported: a name that is defined elsewhere is not followed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping

from perfkit.config.lint.subjects import Code
from perfkit.core.texts import say

STEP_NAMES = ("step", "train", "net", "network", "model", "forward", "backward", "loss", "grad", "optimizer", "opt")
LOOP_NAMES = ("dataset", "loader", "dataloader", "iterator", "batches", "steps", "epochs", "iter")
ITERATORS = ("create_dict_iterator", "create_tuple_iterator")
STEP_METHODS = frozenset(
    (
        *("construct", "bprop", "forward", "backward", "train_step", "training_step", "train_one_step", "forward_step"),
        *("step_begin", "step_end", "on_step_begin", "on_step_end", "on_train_step_begin", "on_train_step_end"),
        *("on_train_batch_start", "on_train_batch_end", "after_train_iter", "before_train_iter"),
    )
)
"""Methods that run in every step; the last rows are those of callbacks of MindSpore, transformers, Lightning and mmengine."""
UPDATES = frozenset({"step", "zero_grad", "apply_gradients", "optimizer", "opt", "update", "train_step", "train_one_step"})
AT_TIMES = re.compile(
    r"(?:^|_)(?:log|should|last|print|interval|every|freq|frequency|period|epoch_end|save|ckpt|checkpoint|overflow|first|once|calculated|initialized)(?:_|$)"
)
"""Names in a condition of what runs only in some steps."""
ASIDE = re.compile(
    r"(?:^|_)(?:save|saves|eval|evaluate|evaluation|valid|validate|validation|test|generate|predict|inference|infer|export|ckpt|checkpoint|precompute)(?:_|$)"
)
"""Names of functions that do something else than a step of training."""
ASIDE_CLASS = re.compile(r"(?:Val|Valid|Validation|Test|Eval|Evaluation|Predict|Inference)(?:Loop|Step|Epoch|Runner)")
"""Names of classes whose loops are none of training."""
SET_UP = frozenset(
    (
        *("set", "get", "load", "save", "init", "setup", "build", "create", "make", "shard", "prepare", "log", "print", "validate"),
        *("check", "eval", "test", "reset", "export", "convert", "wrap", "compile"),
    )
)
"""Verbs of functions that name a model, an optimizer or a step without running it."""
REPORTS = frozenset({"warning", "warn", "error", "exception", "critical"})
WITHOUT_GRADIENTS = frozenset({"no_grad", "inference_mode", "_no_grad"})

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


def imports(code: Code, package: str) -> bool:
    """Whether a file imports a package or something of it."""
    named = {alias.name for node in code.nodes(ast.Import) for alias in node.names}
    named |= {node.module or "" for node in code.nodes(ast.ImportFrom)}
    return any(name.partition(".")[0] == package for name in named)


def step_loops(code: Code) -> tuple[Loop, ...]:
    """Loops that run training steps: they go over batches or steps, take the next batch, or call a network, a step or an optimizer.

    Of loops inside one another the inner ones, and those around them that update weights (the inner ones then go over micro
    batches); a loop over epochs that calls a function with such a loop is none.
    """
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
    """Whether a node runs only in some steps: where a condition counts or asks whether to log, or on the way to an error."""
    inside = node
    for around in code.around(node):
        if isinstance(around, ast.If) and _is_counted(around.test):
            return True
        if isinstance(around, (ast.Raise, ast.ExceptHandler)) or (isinstance(around, ast.Call) and called_name(around) in REPORTS):
            return True
        if _left_before(around, inside):
            return True
        if isinstance(around, (ast.FunctionDef, ast.AsyncFunctionDef)) or around in step_loops(code):
            return False
        inside = around
    return False


def only_where(code: Code, node: ast.AST) -> str:
    """The condition under which a node runs in every step, as " where x and y", or "".

    It is that of the innermost `if` around the node, those that leave a body before it, and that of the call by which its function
    is reached.
    """
    inside, branch, found = node, "", []
    for around in code.around(node):
        if not branch and isinstance(around, ast.If) and inside is not around.test:
            told = ast.unparse(around.test)[:60]
            branch = told if inside in around.body else say("not ({told})", told=told)
            found.append(branch)
        elif (left := _leaves_before(around, inside)) is not None:
            found.append(say("not ({code})", code=ast.unparse(left.test)[:60]))
        if isinstance(around, (ast.FunctionDef, ast.AsyncFunctionDef)):
            reached = _reached_where(code).get(around, "").removeprefix(" where ")
            found += [reached] if reached else []
            break
        if around in step_loops(code):
            break
        inside = around
    return say(" where {names}", names=" and ".join(found)) if found else ""


def _reached_where(code: Code) -> dict[ast.AST, str]:
    """The conditions of the calls by which hot functions are reached; those that a call reaches always are not among them."""
    found: dict[ast.AST, str] = code.once("reached where", dict)
    return found


def _left_before(around: ast.AST, inside: ast.AST) -> bool:
    """Whether a body leaves before one of its statements in steps that a condition passes over (`if not should_log(): return`)."""
    left = _leaves_before(around, inside)
    return left is not None and _is_counted(left.test)


def _leaves_before(around: ast.AST, inside: ast.AST) -> ast.If | None:
    """The last `if` of a body before one of its statements that leaves the body."""
    body = getattr(around, "body", ())
    if not isinstance(body, list) or inside not in body:
        return None
    leaving = [item for item in body[: body.index(inside)] if isinstance(item, ast.If) and _leaves(item)]
    return leaving[-1] if leaving else None


def _leaves(item: ast.If) -> bool:
    return isinstance(item.body[-1], (ast.Return, ast.Continue)) and not item.orelse


def _step_loops(code: Code) -> tuple[Loop, ...]:
    """Loops that run steps; what lies around them belongs to a step where it updates weights, not where it counts epochs."""
    loops = [loop for loop in code.nodes(ast.For, ast.While) if _runs_steps(loop) and not _is_aside(code, loop)]
    outer = {around for loop in loops for around in code.around(loop)}
    functions = _by_name(code)
    looping = {name for name, found in functions.items() if any(node in loops for one in found for node in ast.walk(one))}
    return tuple(
        loop for loop in loops if _is_step(loop, looping) and (loop not in outer or (_updates(loop) and not _counts_epochs(loop)))
    )


def _counts_epochs(loop: Loop) -> bool:
    """Whether a loop is over epochs: one around batches that updates weights once more takes what their last step left over."""
    return isinstance(loop, ast.For) and "epoch" in ast.unparse(loop.target).lower()


def _is_aside(code: Code, loop: Loop) -> bool:
    """Whether a loop is of something else than training: in a function that says so, or without gradients.

    A loop that goes backward is training, though a part of it, such as a frozen model, has no gradients.
    """
    inner = () if _calls(loop, "backward") else (node for node in loop.body if isinstance(node, ast.With))
    for around in (*inner, *code.around(loop)):
        if isinstance(around, (ast.FunctionDef, ast.AsyncFunctionDef)):
            decorators = [item.func if isinstance(item, ast.Call) else item for item in around.decorator_list]
            last = [dotted(item).rpartition(".")[2] for item in decorators]
            if (owner := _class_of(code, around)) and ASIDE_CLASS.search(owner.name):
                return True
            return _says_aside(around.name) or any(name in WITHOUT_GRADIENTS for name in last)
        if isinstance(around, ast.With) and any(
            isinstance(item.context_expr, ast.Call) and called_name(item.context_expr) in WITHOUT_GRADIENTS for item in around.items
        ):
            return True
    return False


def _says_aside(name: str) -> bool:
    """Whether a function's name says something else than training; `train_and_validate` begins with training."""
    found = ASIDE.search(name)
    return found is not None and "train" not in name[: found.start()].lower()


def _calls(node: ast.AST, name: str) -> bool:
    return any(isinstance(found, ast.Call) and called_name(found) == name for found in ast.walk(node))


def _is_step(loop: Loop, looping: set[str]) -> bool:
    """Whether a loop runs steps by itself, and not only functions of the file that have such a loop, as one over epochs does."""
    if isinstance(loop, ast.For) and _names_batches(loop.iter) and not _counts_epochs(loop):
        return True
    calls = [called_name(node) for node in _own_calls(loop) if not _is_schedule(node)]
    steps = [name for name in calls if is_step_call(name.lower())]
    return any(name not in looping for name in steps) or (_advances(loop) and not any(name in looping for name in calls))


def _updates(loop: Loop) -> bool:
    """Whether a loop around another one updates weights itself: then the inner one is over micro batches."""
    return any(_is_update(node) for node in _own_calls(loop))


def _is_update(node: ast.Call) -> bool:
    """Whether a call changes the weights; to forget old gradients, as at the beginning of an epoch, changes none.

    `update` is also what meters, bars and dicts have: it counts of an optimizer.
    """
    name, whose = called_name(node).lower(), dotted(node.func).rpartition(".")[0].lower()
    return name in UPDATES - {"zero_grad"} and not _is_schedule(node) and (name != "update" or "opt" in whose)


def _is_schedule(node: ast.Call) -> bool:
    """Whether a call steps a schedule of the learning rate."""
    return "sched" in dotted(node.func).lower()


def _own_calls(loop: Loop) -> Iterator[ast.Call]:
    """Calls of a loop outside of loops and functions inside it."""
    waiting: list[ast.AST] = [*loop.body]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Call):
            yield node
        if not isinstance(node, (ast.For, ast.While, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            waiting.extend(ast.iter_child_nodes(node))


def _advances(loop: Loop) -> bool:
    """Whether a loop takes the next item of an iterator by itself and hands it to a call."""
    taken = {
        found.id
        for node in ast.walk(ast.Module(body=loop.body, type_ignores=[]))
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and called_name(node.value) == "next"
        for target in node.targets
        for found in ast.walk(target)
        if isinstance(found, ast.Name)
    }
    used = (found.id for node in _own_calls(loop) for item in node.args for found in ast.walk(item) if isinstance(found, ast.Name))
    return bool(taken & set(used))


def _by_name(code: Code) -> dict[str, list[Function]]:
    functions: dict[str, list[Function]] = {}
    for function in code.nodes(ast.FunctionDef, ast.AsyncFunctionDef):
        functions.setdefault(function.name, []).append(function)
    return functions


def _hot_nodes(code: Code) -> tuple[ast.AST, ...]:
    functions, loops = _by_name(code), step_loops(code)
    # A function that has the loop runs once, what is in the loop every step.
    around = {node for loop in loops for node in code.around(loop)}
    waiting: list[ast.AST] = [statement for loop in loops for statement in loop.body]
    waiting += [function for name in STEP_METHODS for function in functions.get(name, ()) if _is_method(code, function)]
    waiting += [function for found in functions.values() for function in found if _is_whole_step(function, loops)]
    hot: dict[ast.AST, None] = {}
    while waiting:
        for node in ast.walk(waiting.pop()):
            if node in hot:
                continue
            hot[node] = None
            if isinstance(node, ast.Call) and not _says_aside(called_name(node)) and not every_nth(code, node):
                called = [function for function in _called(code, node, functions) if function not in around]
                _note_reached(code, node, called)
                waiting += [function for function in called if function not in hot]
    return tuple(sorted(hot, key=lambda node: (getattr(node, "lineno", 0), getattr(node, "col_offset", 0))))


def _called(code: Code, node: ast.Call, functions: Mapping[str, list[Function]]) -> list[Function]:
    """The functions that a call may mean: those of its own class where that has one of the name (`self.run_iter(batch)`)."""
    found = functions.get(called_name(node), [])
    if dotted(node.func).rpartition(".")[0] != "self":
        return found
    own = _class_of(code, node)
    return [function for function in found if own is not None and _class_of(code, function) is own] or found


def _class_of(code: Code, node: ast.AST) -> ast.ClassDef | None:
    return next((around for around in code.around(node) if isinstance(around, ast.ClassDef)), None)


def _is_whole_step(function: Function, loops: tuple[Loop, ...]) -> bool:
    """Whether a function is one step around a loop over its micro batches: it updates weights outside of that loop.

    What a function over an epoch does so after its loop is what the last step left over; its name says no step.
    """
    own = {node for item in function.body for node in (item, *getattr(item, "body", ()))}
    inner = [loop for loop in loops if loop in own and not _goes_over_optimizers(loop)]
    if not inner or "step" not in function.name.lower().split("_") or not is_step_call(function.name.lower()):
        return False
    within = {node for loop in inner for node in ast.walk(loop)}
    outside = (node for node in ast.walk(function) if isinstance(node, ast.Call) and node not in within)
    return any(_is_update(node) for node in outside)


def _goes_over_optimizers(loop: Loop) -> bool:
    """Whether a loop goes over the optimizers of a model, not over batches."""
    return isinstance(loop, ast.For) and "opt" in ast.unparse(loop.iter).lower() and not _calls(loop, "backward")


def _note_reached(code: Code, call: ast.Call, functions: Iterable[Function]) -> None:
    where, reached = only_where(code, call), _reached_where(code)
    for function in functions:
        if reached.get(function, where) != where:
            reached[function] = ""
        else:
            reached[function] = where


def _is_method(code: Code, function: Function) -> bool:
    return isinstance(code.parents.get(function), ast.ClassDef) or function.name not in ("forward", "backward")


def _is_counted(test: ast.expr) -> bool:
    for node in ast.walk(test):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and "accum" not in ast.unparse(node.right).lower():
            return True  # once in as many micro batches as are summed is once a step
        if isinstance(node, ast.Compare) and _is_one_step(node):
            return True
        if isinstance(node, (ast.Name, ast.Attribute)) and AT_TIMES.search(dotted(node).rpartition(".")[2]):
            return True
    return False


def _is_one_step(test: ast.Compare) -> bool:
    """Whether a condition holds in one step alone: `step == 1`."""
    same = isinstance(test.ops[0], ast.Eq) and isinstance(test.comparators[0], ast.Constant)
    return same and isinstance(test.left, (ast.Name, ast.Attribute)) and "step" in dotted(test.left).lower()


def _runs_steps(loop: Loop) -> bool:
    if isinstance(loop, ast.For) and _names_batches(loop.iter):
        return True
    calls = (node for statement in loop.body for node in ast.walk(statement) if isinstance(node, ast.Call))
    return any(is_step_call(called_name(call).lower()) for call in calls) or _advances(loop)


def _names_batches(node: ast.expr) -> bool:
    names = {
        part.lower()
        for found in ast.walk(node)
        for part in ([found.id] if isinstance(found, ast.Name) else [found.attr] if isinstance(found, ast.Attribute) else [])
    }
    return any(name == known or name.endswith(f"_{known}") for name in names for known in (*LOOP_NAMES, *ITERATORS))


def is_step_call(name: str) -> bool:
    """Whether a function of this name (in lower case) runs a network, a step or an optimizer."""
    if "epoch" in name or name.strip("_").partition("_")[0] in SET_UP:
        return False
    return any(name == known or name.startswith(f"{known}_") or name.endswith(f"_{known}") for known in STEP_NAMES)
