"""The engine: files by what they are, silenced lines, broken files beside whole ones, reports as text, JSON and SARIF."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.config.lint import lint, lint_text
from perfkit.config.lint.sarif import to_sarif
from perfkit.core.errors import InputError
from perfkit.face.cli import main

BAD_CODE = "for batch in dataset:\n    loss = train_step(batch)\n    print(loss.asnumpy())\n"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a.py").write_text(BAD_CODE)
    (tmp_path / "b.py").write_text("def (:\n")
    (tmp_path / "env.sh").write_text("export MS_ALLOC_CONF=a:1\nexport MS_ALLOC_CONF=b:2\n")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "c.py").write_text(BAD_CODE)
    return tmp_path


def test_a_folder_is_searched_and_a_broken_file_does_not_stop_the_others(folder):
    report = lint(folder)
    assert [(problem.rule, problem.line) for problem in report.problems] == [
        ("sync-in-step", 3),
        ("syntax-error", 1),
        ("alloc-conf-overwritten", 2),
    ]
    assert report.checked == {"code": 2, "environment": 1}


def test_a_comment_silences_one_rule_on_its_line():
    report = lint_text("a.py", BAD_CODE.replace("asnumpy())", "asnumpy())  # perfkit: ignore[sync-in-step]"))
    assert (report.problems, report.num_silenced) == ((), 1)
    assert lint_text("a.py", BAD_CODE.replace("asnumpy())", "asnumpy())  # perfkit: ignore[other]")).problems


def test_cells_of_a_notebook_are_one_program_and_places_are_those_of_the_cell():
    cells = [
        {"cell_type": "markdown", "source": ["# title"]},
        {"cell_type": "code", "source": ["%matplotlib inline\n", "!ls\n", "x = 1"]},
        {"cell_type": "code", "source": BAD_CODE},
    ]
    report = lint_text("a.ipynb", json.dumps({"cells": cells}))
    assert [(problem.cell, problem.line) for problem in report.problems] == [(2, 3)]
    assert lint_text("b.ipynb", "{}").problems[0].rule == "syntax-error"


def test_nothing_that_is_read_is_executed(tmp_path):
    flag = tmp_path / "flag"
    (tmp_path / "evil.py").write_text(f"open({str(flag)!r}, 'w')\n")
    (tmp_path / "evil.yaml").write_text(
        f"parallel_config: !!python/object/apply:os.system ['touch {flag}']\nrunner_config:\n  a: 1\n"
    )
    report = lint(tmp_path)
    assert not flag.exists()
    assert [problem.rule for problem in report.problems if problem.file.endswith(".yaml")]


def test_paths_that_do_not_exist_are_all_named(tmp_path):
    with pytest.raises(InputError) as raised:
        lint(tmp_path / "a", tmp_path / "b")
    assert len(raised.value.problems) == 2


def test_a_named_file_of_no_kind_is_said_to_be_left_out(tmp_path):
    file = tmp_path / "notes.md"
    file.write_text("hello")
    assert lint(file).skipped[0][0] == str(file)
    binary = tmp_path / "x.py"
    binary.write_bytes(b"\0\1")
    assert lint(binary).skipped == ((str(binary), "is binary"),)


def test_exit_codes_and_forms(folder, capsys):
    assert main(["lint", str(folder), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["problems"][0]["where"] == {"file": str(folder / "a.py"), "line": 3, "key": ""}
    assert set(document["problems"][0]) == {"rule", "severity", "where", "message", "fix"}
    assert main(["lint", str(folder), "--format", "sarif"]) == 1
    sarif = json.loads(capsys.readouterr().out)
    assert sarif["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["region"] == {"startLine": 3}
    assert main(["lint", str(folder)]) == 1
    assert "a.py:3: warning sync-in-step" in capsys.readouterr().out
    (folder / "clean").mkdir()
    (folder / "clean" / "a.py").write_text("x = 1\n")
    assert main(["lint", str(folder / "clean")]) == 0
    assert main(["lint", str(folder / "nowhere")]) == 2


def test_every_rule_that_is_reported_is_described_in_sarif(folder):
    sarif = to_sarif(lint(folder), "1")
    known = {rule["id"] for rule in sarif["runs"][0]["tool"]["driver"]["rules"]}
    assert {result["ruleId"] for result in sarif["runs"][0]["results"]} <= known


@given(st.binary(max_size=400), st.sampled_from(["a.py", "a.yaml", "a.sh", "a.ipynb", "a.toml", "a.json", "a.log", "a.txt"]))
def test_any_bytes_are_reported_and_never_raise(raw, name):
    report = lint_text(name, raw.decode("utf-8", errors="replace"))
    assert report.failed == ()


@given(st.text(max_size=300))
def test_any_text_behind_a_section_of_a_configuration_never_raises(text):
    report = lint_text("a.yaml", f"parallel_config:\n  data_parallel: 2\nrunner_config:\n{text}")
    assert report.failed == ()


SIZES = "--num-layers 8 --hidden-size 64 --num-attention-heads 4 --vocab-size 1000"
JOB = "--micro-batch-size 1 --seq-length 16 --optimizer-cpu-offload --newest-of-all 3 --bf16"


def test_what_decides_and_is_not_counted_is_said_by_lint_and_by_the_estimate_alike(tmp_path, capsys):
    script = tmp_path / "run.sh"
    script.write_text(f"pretrain_gpt.py {SIZES} {JOB}\n")
    assert any("optimizer_cpu_offload is not counted" in problem.message for problem in lint(script).problems)
    assert main(["estimate", str(script), "--device", "H100-80GB-SXM"]) == 0
    said = capsys.readouterr().out
    assert "not counted: optimizer_cpu_offload: memory and time: optimizer states wait on the host" in said
    assert "not counted: newest_of_all: not known to perfkit; it may decide time or memory" in said
    assert main(["estimate", str(script), "--device", "H100-80GB-SXM", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["not_counted"]
    assert found == [
        {"key": "optimizer_cpu_offload", "decides": "memory and time: optimizer states wait on the host"},
        {"key": "newest_of_all", "decides": "not known to perfkit; it may decide time or memory"},
    ]


def test_an_estimate_says_what_the_reader_of_its_file_says(tmp_path, capsys):
    """What of it moves a figure stood in the plan's document alone: swapped activations, modules that are computed again."""
    script = tmp_path / "run.sh"
    more = "--swap-attention --recompute-granularity selective --recompute-modules core_attn shared_experts"
    script.write_text(f"pretrain_gpt.py {SIZES} {JOB} {more}\n")
    assert main(["estimate", str(script), "--device", "H100-80GB-SXM"]) == 0
    said = capsys.readouterr().out
    assert "note: --swap-attention: attention activations go to the host" in said
    assert "note: --recompute-modules shared_experts: neither the work done again nor the memory that it frees is counted" in said
    assert main(["estimate", str(script), "--device", "H100-80GB-SXM", "--json"]) == 0
    named = {note.partition(":")[0] for note in json.loads(capsys.readouterr().out)["notes"]}
    assert named >= {"--recompute-modules shared_experts", "--swap-attention"}


def test_lint_reads_what_a_file_refers_to_as_the_estimate_does(tmp_path):
    (tmp_path / "model.sh").write_text(f"ARGS=({SIZES})\n")
    script = tmp_path / "run.sh"
    script.write_text(f"source model.sh\npretrain_gpt.py ${{ARGS[@]}} {JOB} --num-layers 8\n")
    assert any("optimizer_cpu_offload is not counted" in problem.message for problem in lint(script).problems)
