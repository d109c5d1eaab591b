"""What commands print for people is in Chinese where that is asked for; documents for programs are in English always."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from perfkit.core.texts import told
from perfkit.face import cli
from perfkit.face.cli._parser import Parser, parser_of
from perfkit.predict.plans.search._search_columns import MEMORY, STATIC
from perfkit.predict.plans.search.strategy_space import RULES
from perfkit.project.sample import demo
from tests.english import is_english, is_english_head
from tests.predict.test_own_calibration import nccl_text

ROOT = Path(__file__).resolve().parents[3]
ON = ("--device", "Ascend-910B2")
ROUND, LARGE = "data/case13b/round0.yaml", "data/configs/pretrain_llama2_7b.yaml"
SHELL = "data/configs/pretrain_llama2_13b_megatron.sh"
RECORDED, CLUSTER, RESNET = "data/traces/torch_npu_2rank", "data/traces/cluster_16card", "data/traces/kineto_resnet"
TRACES = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests/data/traces").iterdir() if path.is_dir())
CONFIGS = sorted(path for folder in ("data", "tests/data") for path in (ROOT / folder / "configs").rglob("*.*") if path.is_file())
COMMANDS: list[tuple[str, ...]] = [
    ("plan", ROUND, *ON, "--top", "3"),
    ("plan", ROUND, *ON, "--memory-limit-gib", "4"),
    ("plan", LARGE, *ON, "--devices", "16", "--out", "{new}/best.yaml"),
    *(("summary", path) for path in (RECORDED, CLUSTER, RESNET, "data/traces/logs", "data/traces/mindinsight_feed", *TRACES)),
    ("summary", RECORDED, "--group", "guide"),
    ("summary", RECORDED, "--group", "pynative"),
    *(("estimate", path, *ON) for path in (ROUND, LARGE, SHELL, "data/configs/pretrain_mixtral-8x7b.yaml")),
    ("estimate", "data/reference/step_time.csv", "--out", "{new}/predicted.csv"),
    ("balance", "data/case13b/round5.yaml", *ON, "--out", "{new}/balanced.yaml", "--time-limit-s", "5"),
    ("balance", "data/plans/dense_moe_4_stages.json"),
    ("balance", "tests/data/plans/d11_plan_infeasible.json"),
    ("compare", RECORDED, "tests/data/traces/torch_npu_level0", "--operators"),
    ("compare", ROUND, "data/case13b/round5.yaml", *ON),
    ("compare", "data/ir/silu_mul_in_effect.ir", "data/ir/silu_mul_without.ir"),
    ("compare", "data/losses/reference.csv", "data/losses/diverged.csv"),
    ("compare", "data/losses/reference.csv", "data/losses/drift.csv"),
    ("lint", "data/configs", "data/code"),
    ("explain", SHELL),
    *(("graph", path) for path in ("data/ir/sequence_parallel.ir", "data/ir/silu_mul_not_in_effect.ir", "tests/data/ir/malformed")),
    ("graph", "data/ir/strategy_mismatch.ir", "--config", ROUND),
    ("schedule", "data/plans/schedules_4_stages.json"),
    ("simulate", LARGE, *ON, "--out", "{new}/run", "--fault", "slow_rank:1:1.5", "--steps", "2"),
    ("convert", ROUND, "--to", "megatron", "--out", "{new}/round0.sh", *ON),
    *(("ask", RECORDED, question) for question in ("kernels", "collectives", "waiting", "idle", "memory")),
    ("log", "--folder", "{demo}", "diff", "0", "1"),
    ("log", "--folder", "{demo}", "export", "--out", "{new}/log.md"),
    ("log", "--folder", "{demo}", "restore", "1", "--out", "{new}/round1.yaml"),
    ("log", "--folder", "{new}", "start", "pp 2", "--hypothesis", "two stages amortise the update"),
    ("notebooks", "--folder", "{demo}"),
    ("class", "answers", "--seed", "1", "--student", "s01"),
    ("class", "paper", "--seed", "1", "--student", "s01", "--rounds", "1", "--out", "{new}/sheets.html"),
    ("class", "notes", "--out", "{new}/notes.html"),
    ("class", "purge", "--folder", "{demo}"),
    ("demo", "{new}/demo"),
    ("calibrate", "{demo}/all_reduce.log", "--device", "A100-80GB-SXM", "--out", "{new}/mine.toml"),
    ("report", RECORDED, "--out", "{new}/report.html"),
]
OURS = re.compile(r"\x1b\[\d+m")
BOLD = re.compile(r"\x1b\[1m(.*?)\x1b\[0m")


class Terminal(io.StringIO):
    """A terminal, on which heads are bold."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample project, with what nccl-tests printed beside it."""
    folder = demo(tmp_path_factory.mktemp("chinese") / "demo").folder
    (folder / "all_reduce.log").write_text(nccl_text(), encoding="utf-8")
    return folder


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A wide terminal of somebody who reads Chinese, in the repository."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("PERFKIT_LANGUAGE", "zh")
    monkeypatch.setenv("COLUMNS", "900")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return Terminal()


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_prints_chinese(words: tuple[str, ...], terminal: Terminal, project: Path, tmp_path: Path):
    with redirect_stdout(terminal):
        assert cli.main([word.format(new=tmp_path, demo=project) for word in words]) in (0, 1)
    assert terminal.getvalue()
    assert list(_english(terminal.getvalue())) == []


def test_the_help_of_every_command_is_in_chinese(terminal: Terminal):
    """All but the lines of usage and the examples, which are typed, and what `ask` says of the columns of its answers."""
    known = cli.commands()
    with redirect_stdout(terminal):
        for parser in _parsers(parser_of(known, [command.name for command in known])):
            if not parser.prog.startswith("perfkit ask "):
                parser.print_help()
    shown = terminal.getvalue().split("\n")
    assert len(shown) > 500
    assert [line for line in shown if is_english(line) and not re.match(r"\s+(perfkit|\[)|用法", line)] == []


def _parsers(parser: Parser) -> Iterator[Parser]:
    yield parser
    for part in parser.parts().values():
        yield from _parsers(part)


@pytest.mark.parametrize(
    "words", [("pln",), ("plan",), ("plan", "x", "--devces", "4"), ("log", "skip", "what"), ("estimate", "x", "--out")]
)
def test_a_wrong_call_is_told_in_chinese(words: tuple[str, ...], terminal: Terminal, capsys):
    with pytest.raises(SystemExit):
        cli.main(list(words))
    problems = [line for line in capsys.readouterr().err.splitlines() if line.startswith("perfkit: ")]
    assert problems
    assert not [line for line in problems if is_english(line) or not re.search(r"[\u4e00-\u9fff]", line)]


def test_a_log_is_shown_in_chinese(terminal: Terminal, tmp_path: Path):
    """All but the titles of rounds, which somebody chose."""
    log = ("log", "--folder", str(tmp_path))
    with redirect_stdout(terminal):
        done = [
            cli.main([*log, *words])
            for words in (
                ("start", "pp2", "--hypothesis", "less to reduce"),
                ("predict", "step_time_ns", "4e9", "--low", "3.5e9", "--high", "4.5e9", "--method", "estimate"),
                ("attach", RECORDED, "--as", "run"),
                ("measure", "tokens_per_s_per_device", "2000", "--source", "log"),
                ("skip", "align", "--reason", "nothing was recorded of it"),
                ("accuracy", "not_checked", "--note", "the same losses as before"),
                ("decide", "revert", "--reason", "slower than it was before"),
                ("show",),
            )
        ]
    assert done == [0] * len(done)
    assert list(_english(terminal.getvalue())) == []


def test_what_is_assumed_of_any_configuration_is_told_in_chinese(terminal: Terminal):
    """Each dialect takes something else for what a file leaves out; files that are no whole configuration are refused."""
    with redirect_stdout(terminal):
        done = [cli.main(["estimate", str(path), *ON]) for path in CONFIGS]
    assert done.count(0) > 60
    assert list(_english(terminal.getvalue())) == []


def test_why_a_strategy_lost_is_told_in_chinese():
    for reason in (*(rule.reason for rule in RULES), STATIC, MEMORY):
        said = told(reason, "zh")
        assert re.search(r"[\u4e00-\u9fff]", said), reason
        assert not re.search(r"\b(divide|the|need|and)\b", said), said


@pytest.mark.parametrize("words", [("summary", RECORDED), ("plan", ROUND, *ON), ("estimate", LARGE, *ON)], ids=" ".join)
def test_a_document_is_the_same_in_every_language(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.chdir(ROOT)
    documents = []
    for language in ("en", "zh"):
        monkeypatch.setenv("PERFKIT_LANGUAGE", language)
        assert cli.main([*words, "--json"]) == 0
        documents.append(json.loads(capsys.readouterr().out) | {"seconds": 0})
    assert documents[0] == documents[1]


def _english(printed: str) -> Iterator[str]:
    """Heads in English, and cells of rows and whole lines that are sentences."""
    for line in printed.splitlines():
        yield from (cell for head in BOLD.findall(line) for cell in _cells(head) if is_english_head(cell))
        yield from (cell for cell in _cells(OURS.sub("", line)) if is_english(cell))


def _cells(line: str) -> list[str]:
    return re.split(r"\s{2,}", line.strip())
