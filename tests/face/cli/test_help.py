"""Help as a manual whose every example runs, misspelt words answered with what was meant, and the device named in two ways."""

from __future__ import annotations

import io
import json
import shlex
import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest

from perfkit.core import catalog
from perfkit.core.resources import data_folder
from perfkit.face import cli
from perfkit.face.cli._completion import SHELLS
from perfkit.face.cli._devices import FORM
from perfkit.face.cli._parser import Parser, manual_of, parser_of
from perfkit.face.report.notebook import Finished
from perfkit.predict.calibration import node
from perfkit.project.sample import demo
from tests.predict.test_estimate import ROW as TABLE
from tests.predict.test_measured_node import Made
from tests.predict.test_own_calibration import nccl_text

DATA = data_folder()
CONFIG = DATA / "configs" / "pretrain_llama2_13b.yaml"
GIVEN = {
    "profile": DATA / "traces" / "torch_npu_2rank",
    "profile_of_last_week": DATA / "traces" / "torch_npu_2rank",
    "before": DATA / "traces" / "torch_npu_2rank",
    "after": DATA / "traces" / "torch_npu_2rank",
    "pretrain.yaml": DATA / "case13b" / "round5.yaml",
    "llama2_13b.yaml": CONFIG,
    "two_layers.yaml": CONFIG,
    "old.yaml": DATA / "case13b" / "round4.yaml",
    "run.sh": DATA / "code" / "launch.sh",
    "train.py": DATA / "code" / "train_tuned.py",
    "graph": DATA / "ir",
    "data": DATA,
}
"""What the examples call by these names."""
MINE = """[MyDevice]
memory_bytes = 68719476736
memory_bytes_per_s = 1.6e12
peak_flops_per_s = { bfloat16 = 3.5e14, float16 = 3.5e14 }
links.intra_node = { bytes_per_s = 300e9, topology = "switch" }
links.inter_node = { bytes_per_s = 50e9, topology = "network" }
"""
EXAMPLES = [example for command in cli.commands() for example in manual_of(command).examples]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder in which everything lies that the examples name."""
    folder = tmp_path_factory.mktemp("examples")
    for name, source in GIVEN.items():
        if name != "graph":
            (folder / name).symlink_to(source)
    (folder / "graph").mkdir()
    (folder / "graph" / "rank_0").symlink_to(GIVEN["graph"] / "column_row.ir")
    (folder / "all_reduce.log").write_text(nccl_text(), encoding="utf-8")
    (folder / "pasted.txt").write_text("recompute: True\n", encoding="utf-8")
    (folder / "devices.toml").write_text(MINE, encoding="utf-8")
    pd.DataFrame([TABLE]).to_csv(folder / "runs.csv", index=False)
    pd.DataFrame([{**TABLE, "accelerator": "Ascend-910B2", "step_time_s": 9.0}]).to_csv(folder / "measured.csv", index=False)
    demo(folder / "my-project")
    return folder


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_of_the_help_runs(example, place, monkeypatch, capsys):
    monkeypatch.chdir(place / "my-project" if example.startswith("perfkit log") else place)
    served = []
    monkeypatch.setattr("perfkit.face.app.server.serve", lambda *paths, **_: served.extend(paths))
    run_page = lambda page, parameters: Finished(page=f"{page} {sorted(parameters)}", empty=(), failed=())  # noqa: E731  (tests/face/report runs it)
    monkeypatch.setattr("perfkit.face.report.notebook.run_notebook", run_page)
    made = Made("NVIDIA A100-SXM4-80GB", rate=0.1, share=0.4)
    monkeypatch.setattr(node, "find_backend", lambda _: made)
    monkeypatch.setattr(node.measure_node, "__kwdefaults__", {"seconds": 300.0, "clock": lambda: made.now})
    for call in example.split("   ")[0].split("&&"):
        words = shlex.split(call)
        into = Path(words.pop(words.index(">") + 1)) if ">" in words else None
        if "<" in words:
            file = Path(words.pop(words.index("<") + 1))
            monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(file.read_bytes())))
        if words[0] != "perfkit":
            assert words[0] == "source"
            continue
        found = cli.main([word for word in words[1:] if word not in "<>"])
        captured = capsys.readouterr()
        assert found in (0, 1), captured.err
        if into is not None:
            into.write_text(captured.out, encoding="utf-8")
            assert captured.out
    assert all(Path(path).exists() or path == "my-demo" for path in served)


def parsers(parser: Parser, path: tuple[str, ...] = ()):
    """Every parser with the words that lead to it."""
    yield path, parser
    for word, part in parser.parts().items():
        yield from parsers(part, (*path, word))


@pytest.fixture(scope="module")
def whole() -> Parser:
    known = cli.commands()
    return parser_of(known, [command.name for command in known])


def wrong(capsys, *words: str) -> str:
    with pytest.raises(SystemExit) as ended:
        cli.main(list(words))
    assert ended.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


def _value(action) -> str:
    return str(next(iter(action.choices))) if action.choices else "1"


def test_a_misspelt_word_is_answered_with_what_was_meant(whole, capsys):
    for path, parser in parsers(whole):
        if parser.parts():
            continue
        given = [_value(action) for action in parser.known if not action.option_strings]
        given += [
            word
            for action in parser.known
            if action.required and action.option_strings
            for word in (action.option_strings[0], _value(action))
        ]
        for spelling in parser.options():
            if len(spelling) > 6 and path[0] != "ask":
                assert f"did you mean {spelling}?" in wrong(capsys, *path, *given, f"{spelling}~"), path
    assert "did you mean estimate?" in wrong(capsys, "estimte")
    assert "did you mean kernels?" in wrong(capsys, "ask", "profile", "kernel")


def with_device(whole):
    return sorted(path[0] for path, parser in parsers(whole) if any(action.metavar == FORM for action in parser.known))


def test_every_command_understands_the_device_alike(whole):
    assert with_device(whole) == ["balance", "calibrate", "compare", "convert", "estimate", "measure", "plan", "simulate"]
    for path, parser in parsers(whole):
        options = parser.options()
        assert options.get("--device") is options.get("--hardware"), path


@pytest.mark.parametrize("given", [["--device", "ascend-910b2"], ["--hardware", "Ascend-910B2"]])
def test_both_spellings_give_one_answer(given, capsys):
    assert cli.main(["estimate", str(CONFIG), "--device", "Ascend-910B2", "--json"]) == 0
    wanted = capsys.readouterr().out
    assert cli.main(["estimate", str(CONFIG), *given, "--json"]) == 0
    assert capsys.readouterr().out == wanted


def test_a_file_gives_its_only_device_and_a_name_chooses_among_more(tmp_path, capsys):
    one, two = tmp_path / "one.toml", tmp_path / "two.toml"
    one.write_text(MINE, encoding="utf-8")
    two.write_text(MINE + MINE.replace("MyDevice", "Other").replace("3.5e14", "7e14"), encoding="utf-8")
    times = []
    for given in (
        ["--device", str(one)],
        ["--hardware", "MyDevice", "--device", str(two)],
        ["--device", "Other", "--hardware", str(two)],
    ):
        assert cli.main(["estimate", str(CONFIG), *given, "--json"]) == 0
        times.append(json.loads(capsys.readouterr().out)["step_time_s"])
    assert times[0] == times[1] > times[2]
    assert cli.main(["plan", str(CONFIG), "--device", str(two)]) == 2
    assert "--device" in (told := capsys.readouterr().err)
    assert "MyDevice, Other" in told
    assert cli.main(["plan", str(CONFIG), "--device", "MyDevise", "--device", str(two)]) == 2
    assert "two.toml has MyDevice, Other" in capsys.readouterr().err
    assert cli.main(["plan", str(CONFIG), "--device", "A", "--hardware", "B"]) == 2
    assert "one device is needed, not 2: A, B" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["estimate"], ["plan"], ["simulate", "--out", "new"], ["compare", str(DATA / "case13b" / "round4.yaml")]]
)
def test_what_lacks_a_device_is_told_the_option(words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main([words[0], str(CONFIG), *words[1:]]) == 2
    assert "give it with --device" in capsys.readouterr().err


def completed(script: Path, *words: str) -> list[str]:
    asked = f"source {script}; COMP_WORDS=({' '.join(map(shlex.quote, words))}); COMP_CWORD={len(words) - 1}; _perfkit"
    done = subprocess.run(["bash", "-c", asked + '; printf "%s\\n" "${COMPREPLY[@]}"'], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_bash_completes_commands_what_follows_options_and_devices(tmp_path, capsys):
    script = tmp_path / "perfkit.bash"
    assert cli.main(["completion", "bash"]) == 0
    script.write_text(capsys.readouterr().out, encoding="utf-8")
    names = sorted(command.name for command in cli.commands())
    assert sorted(word for word in completed(script, "perfkit", "") if not word.startswith("-")) == names
    assert completed(script, "perfkit", "diag") == ["diagnose"]
    assert completed(script, "perfkit", "log", "sh") == ["show"]
    assert completed(script, "perfkit", "ask", "profile", "kern") == ["kernels", "kernel_sequences", "kernel_counters"]
    assert "--top" in completed(script, "perfkit", "ask", "profile", "kernels", "--")
    for option in ("--device", "--hardware"):
        found = completed(script, "perfkit", "plan", "pretrain.yaml", option, "Ascend-")
        assert found == [name for name in catalog.hardware() if name.startswith("Ascend-")]
    assert completed(script, "perfkit", "simulate", "a.yaml", "--format", "k") == ["kineto"]
    assert completed(script, "perfkit", "summary", "pro") == [], "the shell completes files"


@pytest.mark.parametrize("shell", SHELLS)
def test_every_word_of_every_command_is_in_the_script(shell, whole, capsys, tmp_path):
    assert cli.main(["completion", shell]) == 0
    text = capsys.readouterr().out
    words = set(text.replace("'", " ").replace(")", " ").split())
    for path, parser in parsers(whole):
        assert set(path) <= words
        for spelling in parser.options():
            assert spelling.lstrip("-") in words or spelling in words or len(spelling) == 2, (path, spelling)
    if shutil.which(shell):
        (tmp_path / "script").write_text(text, encoding="utf-8")
        subprocess.run([shell, "-n", str(tmp_path / "script")], check=True)
