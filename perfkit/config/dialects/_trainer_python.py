"""Arguments of Hugging Face's Trainer in Python source: keywords of the calls that set up a training, never executed.

Literals count, sums and products of whole ones, names that the file sets once to such, and whether the device is there
(`torch.cuda.is_available()`). What is computed otherwise stays as its source behind a `$`, as a shell's variable that nothing
sets.
"""

from __future__ import annotations

import ast
import operator
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from perfkit.config.dialects.dialect import Changes, Parsed
from perfkit.config.dialects.key_effects import left_over
from perfkit.core.errors import InputError
from perfkit.core.syntax import tree_of
from perfkit.core.texts import say

ARGUMENTS = re.compile(r"(?:Seq2Seq)?TrainingArguments|(SFT|DPO|KTO|ORPO|CPO|Reward|GRPO|PPO|RLOO)Config")
KNOWN = frozenset(
    (
        *("per_device_train_batch_size", "per_gpu_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps"),
        *("num_train_epochs", "lr_scheduler_type", "warmup_ratio", "output_dir", "logging_steps", "save_steps", "report_to"),
        *("bf16", "fp16", "optim", "deepspeed", "fsdp", "gradient_checkpointing", "max_length", "max_seq_length", "packing"),
    )
)
"""Arguments of a Trainer by which a call is one of TRL's: others have a PPOConfig too, with a learning rate of its own."""
MODELS = re.compile(r"Auto(?:Liger)?Model\w*|FastLanguageModel|FastModel|\w+For(?:CausalLM|ConditionalGeneration)|\w+LMHeadModel")
OF_LOADING = ("torch_dtype", "dtype", "attn_implementation", "load_in_4bit", "load_in_8bit", "use_flash_attention_2")
"""What only the call takes that loads the model."""
OF_A_MODEL = (*OF_LOADING, "max_seq_length")
BESIDE = ("LoraConfig", "BitsAndBytesConfig")
"""Calls whose keywords decide what is trained, and in how many bits it is stored."""
OF_A_TRAINER = ("max_seq_length", "packing")
TRUE = ("is_available", "is_bf16_supported", "is_bfloat16_supported", "is_torch_bf16_gpu_available")
"""What asks whether there is a device, or whether it has bf16."""
WHOLE: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
"""Arithmetic that whole numbers stay whole in."""
LARGEST = 10**18
DIALECT = "huggingface-trainer"
"""By which it is told what a key decides."""
DEEPEST = 8
"""How many names are followed from one to the next."""
STAGE, MODEL, CALL = "stage", "model_name_or_path", "call"


@dataclass(slots=True)
class _Source:
    """The values that a file gives names once, its call, what was found by key (value, line, place), and what loads the model."""

    names: dict[str, ast.expr]
    call: ast.Call
    values: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    places: dict[str, ast.expr] = field(default_factory=dict)
    repeated: list[str] = field(default_factory=list)
    loads: ast.Call | None = None

    def take(self, key: str, node: ast.expr) -> None:
        """Keep the value of a key, of several the first; one that a condition chooses is left to the program, and said."""
        if key in self.places:
            return
        value, self.lines[key] = self.value(node), node.lineno
        self.places[key] = place = self.names.get(node.id, node) if isinstance(node, ast.Name) else node
        if not isinstance(place, ast.IfExp) or not str(value).startswith("$"):
            self.values[key] = value
        elif (left := left_over(DIALECT, {key: True}, set())).unread or left.unknown:
            form = "line {line}: {name} is chosen by a condition; it is taken as not stated"
            self.repeated.append(say(form, line=str(node.lineno), name=key))

    def value(self, node: ast.expr) -> Any:
        """The value of an expression; one that is nested too deeply is computed, as far as this goes."""
        try:
            return self._value(node, DEEPEST)
        except RecursionError:
            return "$..."

    def _value(self, node: ast.expr, depth: int) -> Any:
        if isinstance(node, ast.Name) and node.id in self.names and depth:
            return self._value(self.names[node.id], depth - 1)
        if isinstance(node, ast.Call) and _last(node.func) in TRUE:
            return True
        if (
            isinstance(node, ast.UnaryOp)
            and isinstance(node.op, ast.Not)
            and isinstance(found := self._value(node.operand, depth), bool)
        ):
            return not found
        if isinstance(node, ast.Attribute) and re.fullmatch(r"(?:torch\.)?(?:b?float\d+|half)", _shown(node)):
            return node.attr
        if isinstance(node, ast.Dict) and all(isinstance(key, ast.Constant) for key in node.keys):
            pairs = zip(node.keys, node.values, strict=True)
            return {str(key.value): self._value(item, depth) for key, item in pairs if isinstance(key, ast.Constant)}
        if isinstance(node, ast.IfExp) and isinstance(chosen := self._value(node.test, depth), bool):
            return self._value(node.body if chosen else node.orelse, depth)
        if isinstance(node, ast.BinOp) and (computed := self._computed(node, min(depth, 2))) is not None:
            return computed
        try:
            found = ast.literal_eval(node)
            return sorted(found, key=str) if isinstance(found, set) else found
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            return f"${_shown(node)}"

    def _computed(self, node: ast.BinOp, depth: int) -> int | None:
        """A sum, product or quotient of whole numbers; None for what is none, or is larger than any of a training."""
        left, right = self._value(node.left, depth), self._value(node.right, depth)
        if type(left) is not int or type(right) is not int or type(node.op) not in WHOLE:
            return None
        try:
            found = WHOLE[type(node.op)](left, right)
        except ZeroDivisionError:
            return None
        return found if abs(found) < LARGEST else None


def makes_arguments(text: str) -> bool:
    """Whether a text is Python in which arguments of a Trainer are made, which a comment, string or log only shows."""
    tree = _tree(text) if ARGUMENTS.search(text) else None
    return tree is not None and _first(tree, _constants(tree)) is not None


def parse(text: str) -> Parsed:
    """Values and lines of the arguments of the first Trainer of a text that makes some."""
    source = _source(text)
    return Parsed(source.values, source.lines, tuple(source.repeated))


def _tree(text: str) -> ast.Module | None:
    try:
        return tree_of(_plain(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _source(text: str) -> _Source:
    tree = _tree(text)
    assert tree is not None  # else it makes no arguments
    names = _constants(tree)
    call = _first(tree, names)
    assert call is not None
    source = _Source(names, call)
    for node in _calls(tree):
        _read(source, node)
    return source


def _plain(text: str) -> str:
    """The source as a file of its own: a piece begins at the margin, and lines for the shell of a notebook do nothing."""
    lines = ["pass" if line[:1] in ("!", "%") else line for line in textwrap.dedent(text).split("\n")]
    return "\n".join(lines)


def _constants(tree: ast.Module) -> dict[str, ast.expr]:
    """Names that the whole file binds once, by setting them, and to what; loops, imports and arguments bind to anything."""
    bound: Counter[str] = Counter()
    found: dict[str, ast.expr] = {}
    for node in ast.walk(tree):
        bound.update(_bound(node))
        match node:
            case ast.Assign(targets=targets, value=value):
                found |= {target.id: value for target in targets if isinstance(target, ast.Name)}
            case (
                ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
                | ast.NamedExpr(target=ast.Name(id=name), value=value)
            ):
                found[name] = value
            case ast.AnnAssign(target=ast.Name(id=name)):
                bound[name] -= 1  # says of what type it is, and sets nothing
    return {name: value for name, value in found.items() if bound[name] == 1 and not isinstance(value, ast.Call)}


def _bound(node: ast.AST) -> tuple[str, ...]:
    """The names that a part of a file binds by itself."""
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
            return (name,)
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return (name,)
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            return (name,)
        case ast.MatchMapping(rest=str(name)):
            return (name,)
        case ast.alias(name=name, asname=other):
            return (other or name.partition(".")[0],)
    return ()


def _calls(tree: ast.Module) -> Iterator[ast.Call]:
    """All calls in the order of the file."""
    found = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    yield from sorted(found, key=lambda node: (node.lineno, node.col_offset))


def _arguments(node: ast.Call, names: Mapping[str, ast.expr]) -> re.Match[str] | None:
    """The name of a call that makes arguments of a Trainer."""
    found = ARGUMENTS.fullmatch(_last(node.func))
    return found if found and (not found[1] or not KNOWN.isdisjoint(_keys(node, names))) else None


def _keys(node: ast.Call, names: Mapping[str, ast.expr]) -> Iterator[str]:
    """The keywords of a call, with those of a dict that it unpacks."""
    for word in node.keywords:
        held = names.get(word.value.id) if isinstance(word.value, ast.Name) else word.value
        if word.arg:
            yield word.arg
        elif isinstance(held, ast.Dict):
            yield from (str(key.value) for key in held.keys if isinstance(key, ast.Constant))


def _first(tree: ast.Module, names: Mapping[str, ast.expr]) -> ast.Call | None:
    """The first call that makes arguments of a Trainer."""
    return next((node for node in _calls(tree) if _arguments(node, names)), None)


def _read(source: _Source, node: ast.Call) -> None:
    called = _last(node.func)
    if arguments := _arguments(node, source.names):
        if source.call is not node:
            line, first = str(node.lineno), str(source.call.lineno)
            form = "line {line}: {name} is made again; the first one counts, of line {first}"
            source.repeated.append(say(form, line=line, name=called, first=first))
            return
        source.values[CALL] = called
        if arguments[1]:
            source.values[STAGE], source.lines[STAGE] = arguments[1].lower(), node.lineno
        for word in node.keywords:
            if word.arg:
                source.take(word.arg, word.value)
            else:
                _take_all(source, word.value)
    elif called == "from_pretrained" and MODELS.fullmatch(_last(node.func.value) if isinstance(node.func, ast.Attribute) else ""):
        source.loads = source.loads or node
        named = [
            *node.args[:1],
            *(word.value for word in node.keywords if word.arg in ("pretrained_model_name_or_path", "model_name")),
        ]
        for one in named[:1]:
            source.take(MODEL, one)
        _take(source, node, OF_A_MODEL)
    elif called in BESIDE:
        _take_as(source, node, called)
    elif called == "get_peft_model" and any(word.arg == "r" for word in node.keywords):
        _take_as(source, node, BESIDE[0])
        _take(source, node, ("use_gradient_checkpointing",))
    elif called.endswith("Trainer"):
        for word in node.keywords:
            if word.arg == "model" and isinstance(source.value(word.value), str) and "$" not in source.value(word.value):
                source.take(MODEL, word.value)
        _take(source, node, OF_A_TRAINER)


def _take(source: _Source, node: ast.Call, names: tuple[str, ...]) -> None:
    for word in node.keywords:
        if word.arg in names:
            source.take(word.arg, word.value)


def _take_all(source: _Source, node: ast.expr) -> None:
    """The arguments of a dict that a call unpacks; what is no literal is told."""
    held = source.names.get(node.id) if isinstance(node, ast.Name) else node
    if not isinstance(held, ast.Dict):
        form = "line {line}: what **{name} holds is not read; it may decide time or memory"
        source.repeated.append(say(form, line=str(node.lineno), name=_shown(node)))
        return
    for key, value in zip(held.keys, held.values, strict=True):
        if isinstance(key, ast.Constant):
            source.take(str(key.value), value)


def _take_as(source: _Source, node: ast.Call, section: str) -> None:
    if section not in source.values:
        source.values[section] = {word.arg: source.value(word.value) for word in node.keywords if word.arg}
        source.lines[section] = node.lineno
        source.lines |= {f"{section}.{word.arg}": word.value.lineno for word in node.keywords if word.arg}


def _shown(node: ast.expr) -> str:
    """What is computed, as the source has it, as far as it can be said."""
    try:
        return ast.unparse(node)
    except RecursionError:
        return "..."


def _last(node: ast.expr) -> str:
    """The last name of what is called."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def edit(text: str, name: str, changes: Changes) -> tuple[str, tuple[str, ...]]:
    """The source with keywords changed where they stand, or added behind the last one of the call; nothing else moves."""
    source = _source(text)
    call, notes, lacking = source.call, list[str](), list[str]()
    spans: list[tuple[int, int, str]] = []
    lines = text.split("\n")
    first = next(number for number, line in enumerate(lines) if line.strip())
    margin = len(lines[first]) - len(textwrap.dedent(text).split("\n")[first])
    for key, value in _merged(source.values, changes, name).items():
        place = source.places.get(key)
        if place is None and value is not None:
            taking = call if key not in (MODEL, *OF_LOADING) else source.loads if key != MODEL else None
            if taking is None:
                lacking.append(f"{key}: {_last(call.func)} has no such argument; change it where samples or model are made")
                continue
            spans.append(_added(text, lines, taking, margin, f"{key}={value!r}"))
            if taking is not call:
                notes.append(f"line {taking.lineno}: {key} is set there")
        elif place is not None:
            start, end = (_offset(lines, line, column, margin) for line, column in _ends(place))
            spans.append((start, end, repr(value)))
            if place not in [word.value for word in call.keywords] and key != MODEL:
                notes.append(f"line {place.lineno}: {key} is set there")
    if lacking:
        raise InputError(name, lacking)
    for start, end, new in sorted(spans, key=lambda span: span[:2], reverse=True):
        text = text[:start] + new + text[end:]
    return text, tuple(notes)


def _merged(values: Mapping[str, Any], changes: Changes, name: str) -> dict[str, Any]:
    """New values by keyword; what lies in a dict changes the dict."""
    found: dict[str, Any] = {}
    for path, value in changes.items():
        if len(path) == 1:
            found[path[0]] = value
            continue
        held = found.get(path[0], values.get(path[0]))
        if held is not None and not isinstance(held, dict):
            raise InputError(name, [f"{path[0]}: is no section, {'.'.join(path[1:])} has no place"])
        found[path[0]] = place = _copied(held or {})
        for key in path[1:-1]:
            place = place.setdefault(key, {})
        place[path[-1]] = value
    return found


def _copied(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _copied(value) if isinstance(value, dict) else value for key, value in values.items()}


def _ends(node: ast.expr) -> tuple[tuple[int, int], tuple[int, int]]:
    assert node.end_lineno is not None  # of a parsed text
    assert node.end_col_offset is not None
    return (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)


def _added(text: str, lines: list[str], call: ast.Call, margin: int, word: str) -> tuple[int, int, str]:
    """A further keyword of a call, before its first one: on a line of its own where that one has one."""
    if not call.keywords:
        place = _offset(lines, *_ends(call)[1], margin) - 1
        behind = text[_offset(lines, *_ends(call.args[-1])[1], margin) : place] if call.args else ","
        return place, place, word if "," in re.sub(r"#.*", "", behind) else f", {word}"
    first = call.keywords[0]
    place = _offset(lines, first.lineno, first.col_offset, margin)
    indent = text[text.rfind("\n", 0, place) + 1 : place]
    return place, place, f"{word}, " if indent.strip() else f"{word},\n{indent}"


def _offset(lines: list[str], line: int, column: int, margin: int) -> int:
    """The place of a line and a column, which counts bytes, in a text whose margin the syntax tree leaves out."""
    before = sum(len(one) + 1 for one in lines[: line - 1])
    return before + margin + len(lines[line - 1][margin:].encode("utf-8")[:column].decode("utf-8", errors="ignore"))
