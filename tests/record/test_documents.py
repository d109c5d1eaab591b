"""What was said of a recording is kept: said again without the libraries that read tables, and anew once a file changed."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from perfkit.core.resources import data_folder
from perfkit.face.cli import main
from perfkit.record import _state, documents
from perfkit.record.documents import document_of
from perfkit.record.listing import list_files
from perfkit.record.recognise import find

TRACES = data_folder() / "traces"
AGAIN = """
import sys
from perfkit.face.cli import main
code = main(sys.argv[1:])
assert not {"pandas", "polars", "numpy"} & set(sys.modules), "nothing that reads tables is needed"
sys.exit(code)
"""


@pytest.fixture(autouse=True)
def _cache_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFKIT_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(TRACES / "torch_npu_2rank", tmp_path / "own"))


def printed(*command: str | Path) -> str:
    out = io.StringIO()
    with redirect_stdout(out):
        assert main([*map(str, command)]) == 0
    return out.getvalue()


@pytest.mark.parametrize(
    ("command", "name"),
    [
        *(("summary", name) for name in ("torch_npu_2rank", "kineto_resnet", "mindinsight_feed", "cluster_16card")),
        *(("diagnose", name) for name in ("kineto_resnet", "logs")),
    ],
)
def test_an_answer_is_the_same_again_in_words_and_as_a_document(command: str, name: str):
    for more in ([], ["--json"]):
        first = printed(command, TRACES / name, *more)
        assert printed(command, TRACES / name, *more) == first
        again = subprocess.run(
            [sys.executable, "-c", AGAIN, command, str(TRACES / name), *more], capture_output=True, text=True, check=True
        )
        assert again.stdout == first


def test_a_comparison_with_another_recording_is_made_anew(folder: Path):
    other = shutil.copytree(folder, folder.parent / "other")
    alone = printed("diagnose", folder, "--json")
    beside = printed("diagnose", folder, "--baseline", other, "--json")
    assert beside != alone
    shutil.rmtree(other)
    assert main(["diagnose", str(folder), "--baseline", str(other)]) == 2
    assert printed("diagnose", folder, "--json") == alone


def test_another_step_or_grouping_is_another_question(folder: Path):
    whole = printed("summary", folder, "--json")
    assert printed("summary", folder, "--json", "--group", "guide") != whole
    assert printed("summary", folder, "--json", "--step", "50") == printed("summary", folder, "--json", "--step", "50")
    assert main(["summary", str(folder), "--step", "51"]) == 2


class Asked:
    """Makes another document each time, and says whether it had to."""

    def __init__(self, path: Path) -> None:
        self.path, self.made = path, 0

    def made_anew(self, question: str = "asked") -> bool:
        before = self.made
        assert document_of(self.path, question, self.make)["said"] <= self.made
        return self.made > before

    def make(self) -> dict[str, int]:
        self.made += 1
        return {"said": self.made}


def test_a_file_that_changed_or_came_or_another_code_makes_it_anew(folder: Path, monkeypatch: pytest.MonkeyPatch):
    asked = Asked(folder)
    assert asked.made_anew()
    assert not asked.made_anew()
    assert asked.made_anew("asked otherwise")
    file = next(path for path in sorted(folder.rglob("*.csv")) if path.stat().st_size)
    written = file.stat()
    os.utime(file, ns=(written.st_atime_ns, written.st_mtime_ns + 1_000_000_000))
    assert asked.made_anew()
    os.utime(file, ns=(written.st_atime_ns, written.st_mtime_ns))
    assert not asked.made_anew()
    with monkeypatch.context() as patch:
        patch.setattr(documents, "_code", lambda: "of another version")
        assert asked.made_anew()
    (folder / "a_new_file.csv").write_text("x\n1\n")
    assert asked.made_anew()


def test_settings_that_come_go_or_change_above_an_output_folder_count_too(folder: Path):
    output = next(path for path in sorted(folder.rglob("ASCEND_PROFILER_OUTPUT")) if path.is_dir())
    settings = output.parent / "profiler_info_0.json"
    settings.unlink(missing_ok=True)
    for place in (output, output / "kernel_details.csv"):
        asked = Asked(place)
        assert asked.made_anew()
        for text in ('{"rank_id": 0}', '{"rank_id": 11}'):
            settings.write_text(text)
            assert asked.made_anew()
            assert not asked.made_anew()
        settings.unlink()
        assert not asked.made_anew()


@pytest.mark.parametrize("place", ["", "ASCEND_PROFILER_OUTPUT", "ASCEND_PROFILER_OUTPUT/kernel_details.csv"])
def test_formats_need_no_other_files_beside_a_recording_than_settings_above_it(folder: Path, place: str):
    recording = folder / "rank0_ascend_pt" / place
    beside = {file.path for _, match in find(list_files(recording)) for file in match.beside}
    assert bool(beside) == bool(place)
    assert beside <= {file.path for file in _state.settings_above(recording)}


def test_a_recording_that_grows_while_it_is_read_an_archive_and_what_is_damaged_are_not_kept(folder: Path, tmp_path: Path):
    log = folder / "train.log"

    def while_it_grows() -> dict[str, int]:
        log.write_text("one more line\n")
        return {"said": 0}

    assert document_of(folder, "asked", while_it_grows) == {"said": 0}
    asked = Asked(folder)
    assert asked.made_anew()
    for kept in (tmp_path / "cache" / "documents").glob("*/document.json"):
        kept.write_text('{"document": ')
    assert asked.made_anew()
    packed = Asked(Path(shutil.make_archive(str(tmp_path / "packed"), "zip", folder)))
    assert packed.made_anew()
    assert packed.made_anew()
    nothing = Asked(tmp_path / "nothing")
    assert nothing.made_anew()
