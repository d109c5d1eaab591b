"""Adding a rule, a format, a dialect, a check or a command is one file: each is dropped into a copy of the package and used."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SAMPLE = ROOT / "data" / "traces" / "torch_npu_2rank"
YAML = ROOT / "data" / "configs" / "pretrain_llama2_13b.yaml"

RULE = '''"""A step that takes longer than a nanosecond, which every step does.

What is measured: the length of a step. What to do: nothing.
"""

from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.rule import Finding, Rule, Threshold, Verdict

LEAST = Threshold(name="any-step-least", value=1.0, unit="ns", origin="chosen: no step is shorter")


def check(case: Case) -> Verdict:
    evidence = {"step_ns": float(case.step_ns or 0)}
    if not case.step_ns or case.step_ns < case.limit(LEAST):
        return Verdict((), evidence)
    found = Finding(
        rule=RULE.name, title="Every step is too long", subject={}, evidence=evidence, actions=("wait",), cost_ns=case.step_ns
    )
    return Verdict((found,), evidence)


RULE = Rule(
    name="any-step",
    title="Any step",
    needs=frozenset({"steps"}),
    how_to_collect="record a step",
    thresholds=(LEAST,),
    check=check,
)
'''

FORMAT = '''"""Lines of `lap RANK STEP MICROSECONDS`, as a stopwatch writes them."""

import re

from perfkit.record.format import Format, Match, Sink
from perfkit.record.listing import Listing

LAP = re.compile(r"^lap (\\d+) (\\d+) (\\d+)$", re.MULTILINE)


def detect(listing: Listing) -> Match | None:
    files = tuple(file for file in listing.files if file.path.suffix == ".laps")
    return Match(files=files) if files else None


def read(match: Match, sink: Sink) -> None:
    for file in match.files:
        for rank, step, length in LAP.findall(file.path.read_text(encoding="utf-8")):
            sink.add("steps", source=file, rank=int(rank), step=int(step), duration_ns=int(length) * 1000)


FORMAT = Format(name="laps", title="laps of a stopwatch", looks_for="files *.laps", detail=2, detect=detect, read=read)
'''

DIALECT = '''"""A TOML of a house of its own: [model] and [workload] as perfkit has them, with other words, and [cluster]."""

import tomllib
from dataclasses import replace

from perfkit.config.dialects import toml
from perfkit.config.dialects.dialect import Dialect, Document
from perfkit.core import catalog
from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.workload import Workload


def detect(document):
    return "[cluster]" in document.text


def read(document):
    said = toml.parse(document.text, document.name).values
    work, ways = said["workload"], said["cluster"]
    return Plan(
        model=catalog.model(said["model"]["which"]),
        workload=Workload(seq_length=work["words"], micro_batch_size=work["at_once"], global_batch_size=work["in_all"]),
        parallel=ParallelPlan(data_parallel_size=ways["copies"], tensor_parallel_size=ways["ways"]),
        document=replace(document, dialect="house", values=said),
    )


def settings(plan):
    work, ways = plan.workload, plan.parallel
    return {
        ("model", "which"): plan.model.name,
        ("workload", "words"): work.seq_length,
        ("workload", "at_once"): work.micro_batch_size,
        ("workload", "in_all"): work.global_batch_size,
        ("cluster", "copies"): ways.data_parallel_size,
        ("cluster", "ways"): ways.tensor_parallel_size,
    }


def new(changes):
    tables = {}
    for (table, key), value in changes.items():
        tables.setdefault(table, []).append(f"{key} = {value!r}")
    return "\\n".join(f"[{table}]\\n" + "\\n".join(lines) for table, lines in tables.items()) + "\\n"


def edit(document, changes):
    said = {(table, key): value for table, keys in tomllib.loads(document.text).items() for key, value in keys.items()}
    return new(said | dict(changes)), ()


DIALECT = Dialect(
    name="house",
    title="TOML of the house",
    looks_for="a table [cluster]",
    detect=detect,
    read=read,
    parse=toml.parse,
    settings=settings,
    edit=edit,
    new=new,
    suffix=".toml",
    sizes={"tensor": ("cluster.ways",), "data": ("cluster.copies",)},
)
'''
HOUSE = """[model]
which = "llama2-7b"
[workload]
words = 4096
at_once = 1
in_all = 32
[cluster]
copies = 4
ways = 2
"""

CHECK = '''"""A key in capitals."""

from perfkit.config.lint.check import Check, Found


def _check(config):
    for key in config.values:
        if str(key).isupper():
            yield Found(message=f"{key} is shouted", key=str(key))


CHECK = Check(
    name="no-shouting",
    title="A key in capitals",
    kind="config",
    severity="warning",
    check=_check,
    why="Nobody reads it.",
    fix="write it small",
    bad="SHOUT: 1\\nuse_parallel: True\\nparallel_config:\\n  data_parallel: 1\\n",
    repair=("SHOUT: 1", ""),
    example="a.yaml",
)
'''

COMMAND = '''"""Say hello.

example: perfkit hello you
"""

from perfkit.face.cli._command import Command


def _add(parser):
    parser.add_argument("name")


def _run(arguments):
    print(f"hello {arguments.name}")
    return 0


COMMAND = Command(name="hello", add=_add, run=_run)
'''


@pytest.fixture(scope="module")
def extended(tmp_path_factory) -> Path:
    """A copy of the package with one more file of every kind."""
    folder = tmp_path_factory.mktemp("extended")
    shutil.copytree(ROOT / "perfkit", folder / "perfkit", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("data", "notebooks"):
        (folder / name).symlink_to(ROOT / name)
    for place, text in {
        "explain/diagnose/rules/any_step.py": RULE,
        "record/formats/laps.py": FORMAT,
        "config/dialects/house_toml.py": DIALECT,
        "config/lint/checks/no_shouting.py": CHECK,
        "face/cli/hello.py": COMMAND,
    }.items():
        (folder / "perfkit" / place).write_text(text, encoding="utf-8")
    return folder


def perfkit(extended: Path, *words: str | Path, wanted: int = 0) -> str:
    environment = {**os.environ, "PYTHONPATH": str(extended), "PERFKIT_CACHE": str(extended / "cache")}
    done = subprocess.run(
        [sys.executable, "-m", "perfkit", *map(str, words)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
        cwd=extended,
    )
    assert done.returncode == wanted, done.stderr
    return done.stdout


def test_a_rule_is_one_file(extended):
    found = json.loads(perfkit(extended, "diagnose", SAMPLE, "--json"))["findings"]
    assert [item["actions"] for item in found if item["rule"] == "any-step"] == [["wait"]]


def test_a_rule_without_a_translation_speaks_english(extended):
    code = "from perfkit.core.texts import told; print(told('Every step is too long', 'zh'))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": str(extended)}
    )
    assert done.stdout.strip() == "Every step is too long"


def test_a_format_is_one_file(extended, tmp_path):
    (tmp_path / "run.laps").write_text("lap 0 1 1500\nlap 0 2 1700\n", encoding="utf-8")
    told = json.loads(perfkit(extended, "summary", tmp_path, "--json"))
    assert told["format"] == "laps"
    assert [step["duration_ns"] for step in told["ranks"][0]["steps"]] == [1_500_000, 1_700_000]


def test_a_toml_dialect_is_one_file_and_is_not_taken_for_perfkits_own(extended, tmp_path):
    house = tmp_path / "plan.toml"
    house.write_text(HOUSE, encoding="utf-8")
    told = json.loads(perfkit(extended, "estimate", house, "--device", "A100 80GB SXM", "--json"))
    assert told["step_time_s"] > 0
    own = perfkit(extended, "convert", house, "--to", "perfkit")
    assert "tensor_parallel_size = 2" in own
    (tmp_path / "own.toml").write_text(own, encoding="utf-8")
    assert perfkit(extended, "convert", tmp_path / "own.toml", "--to", "house") == HOUSE.replace('"', "'")
    assert "copies = 8" in perfkit(extended, "convert", house, "--set", "cluster.copies=8")
    problems = json.loads(perfkit(extended, "lint", house, "--json", wanted=1))["problems"]
    wheres = [problem["where"] for problem in problems if problem["rule"] == "tp-without-seq-parallel"]
    assert wheres == [{"file": str(house), "line": 9, "key": "cluster.ways"}]


def test_a_check_is_one_file(extended, tmp_path):
    text = YAML.read_text(encoding="utf-8")
    (tmp_path / "loud.yaml").write_text(f"{text}\nSHOUT: 1\n", encoding="utf-8")
    found = json.loads(perfkit(extended, "lint", tmp_path / "loud.yaml", "--json", wanted=1))["problems"]
    (problem,) = [item for item in found if item["rule"] == "no-shouting"]
    assert problem["where"] == {"file": str(tmp_path / "loud.yaml"), "line": text.count("\n") + 2, "key": "SHOUT"}


def test_a_command_is_one_file(extended):
    assert perfkit(extended, "hello", "you") == "hello you\n"
    assert "hello" in perfkit(extended, "--help")
