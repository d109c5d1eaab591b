"""Opening: every sample is recognised as what it is, leads to the page that shows it, and is opened where it lies."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder, pages
from perfkit.project import create_project, open_project
from perfkit.project.opening import Given, first_page, opened_in, recognise, recognise_all

SAMPLES = {"configs": "configuration", "ir": "graph", "traces": "recording", "traces/logs": "log"}
NUMBER = {"recording": "00", "log": "01", "configuration": "02", "graph": "18"}


def samples() -> list[tuple[Path, str]]:
    return [
        (path, kind)
        for folder, kind in SAMPLES.items()
        for path in sorted((data_folder() / folder).iterdir())
        if path.suffix != ".md" and path.name != "logs"
    ]


@pytest.fixture(autouse=True)
def _own_projects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFKIT_PROJECTS", str(tmp_path / "projects"))


@pytest.mark.parametrize(("path", "kind"), samples(), ids=lambda value: Path(value).name)
def test_every_sample_is_recognised_and_leads_to_a_page_that_exists(path: Path, kind: str):
    given = recognise(path)
    assert [one.kind for one in given] == [kind]
    number, values = first_page(given)
    assert number == NUMBER[kind]
    assert number in {page.number for page in pages()}
    assert list(values.values()) == [str(path)]


def test_what_is_opened_is_not_copied_and_is_found_again_in_the_same_project():
    trace = data_folder() / "traces" / "torch_npu_2rank"
    first, again = opened_in(recognise(trace)), opened_in(recognise(trace))
    assert first.folder == again.folder
    assert (again.open_run, again.recent) == (trace, (trace,))
    assert sum(path.stat().st_size for path in first.folder.rglob("*")) < 100_000
    assert first_page(recognise(trace), again) == ("00", {})


def test_two_kinds_in_a_folder_are_both_opened(tmp_path: Path):
    folder = tmp_path / "job"
    shutil.copytree(data_folder() / "traces" / "torch_npu_2rank", folder)
    shutil.copy(data_folder() / "configs" / "llama2_13b.toml", folder)
    project = opened_in(recognise(folder))
    assert (project.open_run, project.open_config) == (folder, folder / "llama2_13b.toml")
    assert first_page(recognise(folder))[0] == "00"


def test_python_that_makes_the_arguments_of_a_training_is_a_configuration_where_it_is_named(tmp_path: Path):
    train = tmp_path / "train.py"
    train.write_text(
        'model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-4B")\nargs = SFTConfig(max_length=2048, bf16=True)\n'
    )
    assert [one.kind for one in recognise(train)] == ["configuration"]
    usage = "torchrun pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096"
    sizes = "--max-position-embeddings 4096 --micro-batch-size 1 --global-batch-size 8"
    for text in ("print(1)\n", f'"""Usage:\n\n    {usage} {sizes}\n"""\nprint(1)\n'):
        train.write_text(text)
        with pytest.raises(InputError) as error:
            recognise(train)
        assert "hidden_size: is missing" not in str(error.value), "nobody takes it for a configuration"


def test_recordings_of_several_formats_are_compared():
    number, values = first_page(recognise(data_folder() / "traces"))
    assert number == "21"
    assert set(values) == {"a", "b"}
    assert values["a"] != values["b"]


def test_several_paths_are_opened_together_and_all_that_fail_are_named(tmp_path: Path):
    traces = data_folder() / "traces"
    given = recognise_all([traces / "torch_npu_2rank", traces / "kineto_resnet"])
    assert first_page(given) == ("21", {"a": str(traces / "torch_npu_2rank"), "b": str(traces / "kineto_resnet")})
    (tmp_path / "model.safetensors").write_bytes(b"\0" * 64)
    (tmp_path / "paper.pdf").write_bytes(b"%PDF-1.4")
    with pytest.raises(InputError) as raised:
        recognise_all([tmp_path / "model.safetensors", tmp_path / "paper.pdf", traces / "kineto_resnet"])
    assert ["weights" in problem or "a document" in problem for problem in raised.value.problems] == [True, True]


def test_a_recording_in_a_project_is_opened_in_that_project(tmp_path: Path):
    project = create_project(tmp_path / "tuning", "mine")
    run = project.folder / "uploads" / "run"
    shutil.copytree(data_folder() / "traces" / "torch_npu_2rank", run)
    assert opened_in(recognise(run)).folder == project.folder
    assert open_project(project.folder).open_run == run
    assert recognise(project.folder) == (Given("project", project.folder),)


def test_what_is_opened_stays_as_it_was(tmp_path: Path):
    run = tmp_path / "run"
    shutil.copytree(data_folder() / "traces" / "torch_npu_2rank", run)
    before = sorted(tmp_path.rglob("*"))
    opened_in(recognise(run))
    assert [path for path in sorted(tmp_path.rglob("*")) if "projects" not in path.parts] == before


def test_a_home_that_cannot_be_written_gives_a_temporary_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    monkeypatch.setenv("PERFKIT_PROJECTS", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert opened_in(recognise(data_folder() / "traces" / "kineto_resnet")).folder.name.startswith("perfkit-kineto_resnet")


def test_several_projects_at_once_are_refused(tmp_path: Path):
    folders = [create_project(tmp_path / name, name).folder for name in ("one", "two")]
    with pytest.raises(InputError, match="2 projects were named"):
        opened_in(recognise_all(folders))


def test_a_name_full_of_markup_becomes_a_plain_folder(tmp_path: Path):
    run = tmp_path / "<img src=x onerror=alert(1)>"
    shutil.copytree(data_folder() / "traces" / "torch_npu_2rank", run)
    assert opened_in(recognise(run)).folder.name.startswith("img_src_x_onerror_alert_1-")
