"""What reaches a terminal: text alone, in rows that fit, with colour only where it is wanted; a pipe gets all of it whole."""

from __future__ import annotations

import ast
import io
import json
import re
import unicodedata
from pathlib import Path

import pytest

from perfkit.core.resources import data_folder
from perfkit.core.shortening import shortened, width_of
from perfkit.explain.diagnose import diagnose, to_dict
from perfkit.explain.summary import summarize
from perfkit.face import cli
from perfkit.face.cli._findings import print_diagnosis
from perfkit.face.cli._screen import Styled, say, write_text
from perfkit.face.cli._summaries import print_summary
from perfkit.face.cli._tables import print_table
from perfkit.record.load import load
from tests import two_ranks

TRACES = data_folder() / "traces"
WIDTHS = (40, 80, 200)
OURS = re.compile(r"\x1b\[(0|1|2|31|32|33|36)m|\r\x1b\[K")
HOSTILE = "void k<\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp.\nrank 9 is healthy, 类型>(float const*, 10)"
KERNEL = "aclnn" + "Very" * 40 + "LongMatMul"


class Terminal(io.StringIO):
    """A terminal as commands see one."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(params=WIDTHS)
def width(request, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(request.param))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return request.param


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A recording whose kernels have such names."""
    folder = tmp_path_factory.mktemp("hostile") / "ASCEND_PROFILER_OUTPUT"
    folder.mkdir()
    rows = "".join(f'1,"{name}",Cast,AI_CORE,{10 + 9 * place},5,0\n' for place, name in enumerate((HOSTILE, KERNEL)))
    header = "Step Id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us)\n"
    (folder / "kernel_details.csv").write_text(header + rows, encoding="utf-8")
    return folder.parent


def on_terminal(monkeypatch, *words: str) -> str:
    out = Terminal()
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setattr("sys.stderr", Terminal())
    assert cli.main(list(words)) in (0, 1)
    return out.getvalue()


def controls(text: str) -> list[str]:
    """Characters that a terminal obeys."""
    return [char for char in OURS.sub("", text) if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") and char != "\n"]


def too_wide(text: str, width: int) -> list[str]:
    """Rows that a terminal would break; one long word, as a path is, may be."""
    rows = OURS.sub("", text).splitlines()
    return [row for row in rows if width_of(row) > width and len(row.split()) > 1]


@pytest.mark.parametrize("question", ["summary", "diagnose", "ask", "ask --csv", "ask --json"])
def test_no_name_of_a_recording_moves_the_cursor(question, hostile, monkeypatch):
    command, *form = question.split()
    monkeypatch.setenv("COLUMNS", "80")
    text = on_terminal(monkeypatch, command, str(hostile), *(["kernels"] if command == "ask" else []), *form)
    assert not controls(text)
    assert form or not too_wide(text, 80)


def test_a_wrong_path_reaches_no_terminal_either(monkeypatch):
    out = Terminal()
    monkeypatch.setattr("sys.stderr", out)
    assert cli.main(["summary", "no\x1b[2Jthing"]) == 2
    with pytest.raises(SystemExit):
        cli.main(["summary", "x", "--no\x1b[2Jthing"])
    assert not controls(out.getvalue())
    assert r"no\x1b[2Jthing" in out.getvalue()


@pytest.fixture(scope="module")
def documents():
    """A summary and a diagnosis of a recording, a kernel of which has a hostile name, and how each is printed."""
    run = load(two_ranks.by_tables())
    summary, diagnosis = summarize(run), to_dict(diagnose(run))
    summary["kernels"][0]["name"] = diagnosis["findings"][0]["title"] = HOSTILE
    return {"summary": (summary, print_summary), "diagnosis": (diagnosis, print_diagnosis)}


@pytest.mark.parametrize("name", ["summary", "diagnosis"])
def test_rows_fit_the_terminal_and_figures_stay_whole(name, documents, width):
    document, printed = documents[name]
    terminal, pipe = Terminal(), io.StringIO()
    printed(document, terminal)
    printed(document, pipe)
    text, whole = OURS.sub("", terminal.getvalue()), pipe.getvalue()
    assert OURS.search(terminal.getvalue())
    assert not OURS.search(whole)
    assert not controls(text + whole)
    assert not too_wide(text, width)
    assert "\nrank 9 is healthy" not in text + whole, "a line end in a name begins no line"
    figures = re.compile(r"\d[\d.]* (?:ns|µs|ms|s) \(\d[\d.]* %\)")
    assert set(figures.findall(whole)) <= set(figures.findall(" ".join(text.split())))


def test_the_waterfall_is_whole_and_ends_in_what_is_explained(documents):
    document, _ = documents["diagnosis"]
    out = io.StringIO()
    print_diagnosis(document, out)
    lines = out.getvalue().split("where the mean step of a rank went:\n")[1].split("\n\n")[0].splitlines()
    assert re.fullmatch(r"explained [\d.]+ %, unexplained [\d.]+ %", lines[-1])
    whole, *parts = [float(re.search(r"([\d.]+) %", line)[1]) for line in lines[:-1]]
    assert whole == 100
    assert sum(parts) == pytest.approx(100, abs=0.5)
    ends = [line.rstrip().rindex("#") for line in lines[1:-1] if "#" in line]
    assert ends == sorted(ends), "each part begins where the one before ends"
    assert ends[-1] == lines[0].rindex("#")


def test_a_pipe_gets_names_whole_and_no_colour(hostile, capsys):
    assert cli.main(["summary", str(hostile)]) == 0
    text = capsys.readouterr().out
    assert KERNEL in text
    assert "…" not in text
    assert not controls(text)
    assert cli.main(["ask", str(hostile), "kernels", "--json"]) == 0
    names = [row["name"] for row in json.loads(capsys.readouterr().out)["rows"]]
    assert HOSTILE.partition("\n")[0] in names, "a document keeps the name as it is"


@pytest.mark.parametrize(("variable", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colour_is_left_out_where_it_is_not_wanted(variable, value, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal, pipe, plain = Terminal(), io.StringIO(), Terminal()
    for out in (terminal, pipe):
        say(out, Styled("loud", "red"), " and quiet")
    monkeypatch.setenv(variable, value)
    say(plain, Styled("loud", "red"), " and quiet")
    assert terminal.getvalue() == "\x1b[31mloud\x1b[0m and quiet\n"
    assert pipe.getvalue() == plain.getvalue() == "loud and quiet\n"


def test_a_document_is_written_as_it_is_but_for_a_terminal():
    text = "a:\tb\n  c: \x1b[1m\n"
    terminal, pipe = Terminal(), io.StringIO()
    write_text(terminal, text)
    write_text(pipe, text)
    assert pipe.getvalue() == text
    assert terminal.getvalue() == "a:\tb\n  c: \\x1b[1m\n"


def test_tables_shorten_names_break_sentences_and_put_what_is_left_below(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("NO_COLOR", "1")
    header = ["name", "count", "time", "a figure more", "why"]
    rows = [
        ["算子" + KERNEL, "12", "1.23 ms (4.56 %)", "2\u2009345 tokens", "the links of the group are slow"],
        ["b", "–", "0 ns", "1", "so"],
    ]
    out, pipe = Terminal(), io.StringIO()
    print_table(header, rows, out, told=["why"])
    print_table(header, rows, pipe)
    parts = out.getvalue().split("\n\n")
    assert len(parts) > 1
    assert all(part.startswith("name") and "算子" in part and "Mul" in part for part in parts), "the first column leads every part"
    assert not too_wide(out.getvalue(), 40)
    for whole in ("1.23 ms (4.56 %)", "2\u2009345 tokens"):
        assert whole in out.getvalue()
    assert "slow" in out.getvalue()
    assert all(cell in pipe.getvalue() for row in rows for cell in row)


def test_chinese_is_broken_between_characters_and_a_path_in_it_stays_whole(width):
    sentence = "单步 3.54 s（80 % 区间 3.15 s 至 4.15 s）；" * 9 + "已写入 /数据/配置/最佳方案.yaml（mindformers）"
    line, table = Terminal(), Terminal()
    say(line, sentence)
    print_table(["方案", "原因"], [["a", sentence]], table, told=["原因"])
    for out in (line, table):
        shown = OURS.sub("", out.getvalue())
        assert "".join(shown.split()).endswith("".join(sentence.split())[-40:])
        assert not too_wide(shown, width)
        assert "/数据/配置/最佳方案.yaml" in shown
        assert not [row for row in shown.splitlines() if row.strip().startswith(("，", "；", "）", "。"))]


@pytest.mark.parametrize("width", [1, 2, 3, 7, 40])
@pytest.mark.parametrize("text", ["", "a", KERNEL, "类型" * 9, "e\u0301" * 30])
def test_a_shortened_name_fits_and_keeps_both_ends(text, width):
    short = shortened(text, width)
    assert width_of(short) <= width
    if width_of(text) <= width:
        assert short == text
    else:
        head, _, tail = short.partition("…")
        assert text.startswith(head)
        assert text.endswith(tail)
        assert abs(width_of(head) - width_of(tail)) <= 3


def test_commands_print_through_the_screen_alone():
    doors = {"_screen.py", "_document.py", "_progress.py"}
    for module in sorted(Path(cli.__file__).parent.glob("*.py")):
        if module.name in doors:
            continue
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            assert called not in ("print", "out.write", "sys.stdout.write", "sys.stderr.write"), f"{module.name}:{node.lineno}"
