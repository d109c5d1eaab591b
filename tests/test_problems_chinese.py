"""Every problem is told in Chinese: those that the code can say, and those of damaged configurations of every dialect."""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from perfkit.config.dialects.read import read_text
from perfkit.config.dialects.table import problems_of_rows, read_table
from perfkit.config.dialects.table_file import read_frame
from perfkit.config.lint import lint_text
from perfkit.core.errors import InputError
from perfkit.core.texts import told
from tests.core.texts_used import texts_of
from tests.english import is_english

ROOT = Path(__file__).resolve().parents[1]
READ = (".yaml", ".toml", ".sh")
BUNDLED = sorted(
    path for folder in ("tests/data/configs", "data/configs") for path in (ROOT / folder).rglob("*.*") if path.suffix in READ
)
VALUE = re.compile(r"(?<=[:=,\s])[ \t]*(?:\d[\w.]*|True|False|true|false|\"[\w.-]+\"|'[\w.-]+')(?=[\s,\\}]|$)", re.MULTILINE)
WRONG = (" 4O96", " -1", " 0", " 7", " 1.5", " [1, 2]", " {a: 1}", " nosuch", " True", " 1000000000000", " 3", " $X")
BROKEN = (' "', "\t:", ": {", " ]", " [", "'", ' = "')
WORD = re.compile(r"(?<![A-Za-z_{])[a-z]+(?![A-Za-z_])")
"""A word of a sentence; what heads a list of problems may have one or none (`HardwareSpec x`)."""
BY_A_VERB = "{0} = {1} must {2}"
"""Ends with one of three verbs, each of which has a form of its own; damaged files say them below."""
SAID_BY = ("problem", "_problem", "InputError")
"""Functions that are given a problem."""
MORE = {
    "ds.json": '{"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4,\n'
    '"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}},\n"bf16": {"enabled": true}, "fp16": {"enabled": true}}',
    "config.json": '{"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32,\n'
    '"num_key_value_heads": 8, "intermediate_size": 11008, "vocab_size": 32000, "hidden_act": "silu"}',
    "mamba.json": '{"model_type": "jamba", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32}',
    "plans.csv": "name,accelerator,layers,hidden,heads,seq,vocab,tp,pp,dp,mbs,gbs,recompute,zero,gpus\n"
    "a,A100-80GB,32,4096,32,2048,51200,4,4,2,1,64,full,1,32\nb,A100-80GB,32,4096,32,2048,51200,4,4,2,1,64,none,1,32\n",
}


@pytest.mark.parametrize("room", ["config", "core", "explain", "face", "predict", "project", "record"])
def test_every_problem_that_is_stated_has_a_chinese_form(room: str):
    """Each behind a place in a file, or alone."""
    stated = [text for text in _stated(ROOT / "perfkit" / room) if len(WORD.findall(text)) > 1 and text != BY_A_VERB]
    assert len(stated) > 40
    in_english = {}
    for text in stated:
        filled = re.sub(r"\{(\d)\}", r"'q\1'", text)
        shown = [told(alone, "zh") for alone in (filled, f"line 3, key: {filled}")]
        if not any(re.search(r"[\u4e00-\u9fff]", one) and not is_english(one) for one in shown):
            in_english[text] = shown
    assert in_english == {}


def _stated(folder: Path) -> Iterator[str]:
    """Texts with places that stand in the calls of `SAID_BY`, and in what is added to `problems` or returned as a problem."""
    for path in sorted(folder.rglob("*.py")):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and (_name(node) in SAID_BY or ast.unparse(node.func).endswith("problems.append")):
                given = list(node.args)
            elif isinstance(node, ast.AugAssign) and ast.unparse(node.target).endswith("problems"):
                given = [node.value]
            elif isinstance(node, ast.FunctionDef) and "problem" in node.name:
                given = [each.value for each in ast.walk(node) if isinstance(each, ast.Return) and each.value]
            else:
                given = []
            for text in (text for each in given for one in _texts(each) for text in texts_of(one, tree)):
                if " " in text.strip():
                    yield text


def _name(call: ast.Call) -> str:
    return getattr(call.func, "id", getattr(call.func, "attr", ""))


def _texts(node: ast.AST) -> Iterator[ast.expr]:
    """The outermost texts in an expression; what a call makes of texts is none, but for `said` of a row of a table."""
    if isinstance(node, ast.JoinedStr | ast.Constant | ast.BinOp):
        yield node
    elif not isinstance(node, ast.Call) or _name(node) == "said":
        for child in ast.iter_child_nodes(node):
            yield from _texts(child)


def test_a_damaged_configuration_is_refused_in_chinese():
    """Values that no key has, lines left out and syntax broken, in every bundled configuration."""
    texts = {str(path): path.read_text(encoding="utf-8", errors="replace") for path in BUNDLED} | MORE
    said = {problem: name for name, text in texts.items() for one in _damaged(text, 1) for problem in _problems(name, one)}
    assert len(said) > 100
    in_english = {problem: name for problem, name in said.items() if _in_english(problem)}
    assert in_english == {}


def test_a_report_of_damaged_files_is_in_chinese():
    for name, text in MORE.items():
        for one in _damaged(text, 3):
            for problem in lint_text(name, one).problems:
                assert not _in_english(problem.message), problem.message
                assert not is_english(told(problem.fix, "zh")), problem.fix


def _in_english(problem: str) -> bool:
    """Whether a problem is told in English; what is found at a place is a line of the file."""
    shown = re.sub("发现.*", "", told(problem, "zh"))
    return not re.search(r"[\u4e00-\u9fff]", shown) or is_english(shown)


def _damaged(text: str, seed: int) -> Iterator[str]:
    chance = random.Random(seed)
    places = list(VALUE.finditer(text))
    for number in (1, 4, 12):
        damaged = text
        for place in sorted(chance.sample(places, min(number, len(places))), key=lambda one: -one.start()):
            damaged = damaged[: place.start()] + chance.choice(WRONG) + damaged[place.end() :]
        yield damaged
    lines = text.split("\n")
    at = chance.randrange(len(lines))
    yield "\n".join([*lines[:at], lines[at] + chance.choice(BROKEN), *lines[at + 1 :]])
    yield "\n".join([*lines[:at], *lines[at + 1 :]])


def _problems(name: str, text: str) -> list[str]:
    try:
        if name.endswith(".csv"):
            return problems_of_rows(read_table(read_frame(name, text)).problems)
        read_text(text, name, None)
    except InputError as error:
        return list(error.problems)
    return []
