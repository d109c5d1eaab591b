"""From a path to a run: what is recognised, and what a user is told when nothing is."""

import shutil
from pathlib import Path

import pytest

from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder
from perfkit.record import _state
from perfkit.record.listing import list_files
from perfkit.record.load import load
from perfkit.record.recognise import find, formats

TWO_RANKS = data_folder() / "traces" / "torch_npu_2rank"
CARDS_16 = data_folder() / "traces" / "cluster_16card"


def test_every_format_says_what_it_is_and_names_are_unique():
    names = [format.name for format in formats()]
    assert len(set(names)) == len(names)
    assert {"ascend-text", "cluster-analysis"} <= set(names)
    for format in formats():
        assert format.title
        assert format.looks_for
        assert format.detail in {0, 1, 2, 3}


@pytest.mark.parametrize("table", ["steps", "step_parts", "kernels", "collectives", "links", "coverage"])
def test_the_sample_run_fills_its_tables(table: str):
    run = load(TWO_RANKS)
    assert run.has(table)
    assert (run.name, run.kind, run.format) == ("torch_npu_2rank", "measured", "ascend-text")


def test_a_path_that_does_not_exist_is_named(tmp_path: Path):
    with pytest.raises(InputError, match="nowhere: 1 problem\n  - no such file or folder"):
        load(tmp_path / "nowhere")


def test_an_empty_folder_is_named(tmp_path: Path):
    with pytest.raises(InputError, match="the folder is empty"):
        load(tmp_path)


def test_an_unknown_folder_says_what_it_holds_and_what_was_looked_for(tmp_path: Path):
    for name in "abcdefg":
        (tmp_path / f"{name}.txt").write_text("" if name == "a" else "words")
    with pytest.raises(InputError) as error:
        load(tmp_path)
    problems = error.value.problems
    assert problems[0] == "no known format in 7 files: a.txt, b.txt, c.txt, d.txt, e.txt and 2 more"
    assert problems[1] == "1 of them is empty (0 bytes)"
    assert len(problems) == 2 + len(formats())
    assert "looked for Ascend profiler folders (text): kernel_details.csv" in str(error.value)


def test_a_format_that_does_not_exist_is_answered_with_those_that_do():
    with pytest.raises(InputError, match=r"'perfetto' is no format; known are .*ascend-text, .*cluster-analysis"):
        load(TWO_RANKS, format="perfetto")


def test_a_forced_format_is_the_only_one_asked():
    with pytest.raises(InputError, match="looked for Ascend cluster analysis") as error:
        load(TWO_RANKS, format="cluster-analysis")
    assert "looked for Ascend profiler folders" not in str(error.value)


def test_of_two_formats_the_more_detailed_is_read_and_the_other_named(tmp_path: Path):
    shutil.copytree(TWO_RANKS, tmp_path / "ranks")
    shutil.copytree(CARDS_16, tmp_path / "all")
    assert [format.name for format, _ in find(list_files(tmp_path))] == ["ascend-text", "cluster-analysis"]
    run = load(tmp_path)
    assert run.format == "ascend-text"
    assert any(note.startswith("also found and not read: Ascend cluster analysis, 4 file(s) from all/") for note in run.notes)
    assert load(tmp_path, format="cluster-analysis").ranks == tuple(range(16))


def test_progress_ends_at_the_bytes_of_all_files_read():
    seen: list[tuple[str, int, int]] = []
    load(TWO_RANKS, progress=lambda *report: seen.append(report))
    done = [bytes_done for _, bytes_done, _ in seen]
    assert done == sorted(done)
    assert done[-1] == seen[-1][2] > 0


def test_a_run_that_only_tells_the_layout_is_a_run(tmp_path: Path):
    shutil.copy(CARDS_16 / "communication_group.json", tmp_path)
    run = load(tmp_path)
    assert run.ranks == tuple(range(16))
    assert not run.has("steps")


def test_a_file_that_is_still_written_is_said_and_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PERFKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(_state, "MIN_BYTES", 0)
    event = '{"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 100, "dur": 10}'
    path = tmp_path / "run" / "rank0.json"
    path.parent.mkdir()
    path.write_text('{"traceEvents": [' + event)

    def grow(what: str, done: int, total: int) -> None:
        if path.stat().st_size < 3 * len(event):
            with path.open("a") as stream:
                stream.write("," + event)

    run = load(path.parent, progress=grow)
    assert any("grew while it was read" in note for note in run.notes)
    assert not run.cache_key
