"""Two jobs in one folder: one of them is shown, whole, and the other is said to be left out."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from perfkit.core.resources import data_folder
from perfkit.explain.diagnose import diagnose
from perfkit.record.format import Sink
from perfkit.record.load import load
from perfkit.record.rivals import left_out

TRACES = Path(__file__).parents[1] / "data" / "traces"


def kept(*paths: str, made: dict[str, int] | None = None) -> tuple[set[str], Sink]:
    """What is left of recordings of ranks: the rank is the number at the end of each path."""
    places: dict[int, list[Path]] = {}
    for path in paths:
        places.setdefault(int(path[-1]), []).append(Path("/") / path)
    sink = Sink()
    left = left_out(places, lambda path: (made or {}).get(str(path)[1:], 0), sink)
    return {path for path in paths if Path("/") / path not in left}, sink


def test_the_folder_with_most_ranks_is_kept_whole():
    paths = ["a/r0", "a/r1", "a/r2", "b/r0", "b/r1"]
    found, sink = kept(*paths)
    assert found == {"a/r0", "a/r1", "a/r2"}
    assert sum(dropped.count for dropped in sink.dropped) == 2
    assert "a, b hold recordings of the same ranks" in " ".join(sink.notes)


def test_of_equal_ones_the_latest_is_kept_with_the_ranks_that_the_other_does_not_have():
    assert kept("a/r0", "a/r1", "b/r0", "b/r2", made={"b/r0": 1})[0] == {"b/r0", "b/r2"}
    assert kept("a/r0", "a/r1", "b/r0", "b/r2", made={"a/r1": 1})[0] == {"a/r0", "a/r1"}


def test_a_job_over_several_folders_stays_whole():
    nodes = [f"{job}_node{node}/r{rank}" for job in ("job1", "job2") for node, rank in ((0, 0), (0, 1), (1, 2), (1, 3))]
    assert kept(*nodes, made={path: path.startswith("job2") for path in nodes})[0] == set(nodes[4:])
    cycles = ["x0_a/r0", "x0_b/r0", "x1_a/r1", "x1_b/r1"]
    assert kept(*cycles, made={"x0_b/r0": 1, "x1_b/r1": 1})[0] == {"x0_b/r0", "x1_b/r1"}


@pytest.mark.parametrize(
    "paths",
    [
        ("first_r0", "again_r0", "first_r1", "again_r1"),  # of one rank beside each other: the latest counts
        ("node0/r0", "node0/r1", "node1/r2", "node1/r3"),
        ("r0", "r1"),
    ],
)
def test_ranks_of_one_job_stay(paths: tuple[str, ...]):
    found, sink = kept(*paths)
    assert (found, sink.notes, sink.dropped) == (set(paths), [], [])


@pytest.mark.parametrize(
    ("one", "other"), [(data_folder() / "traces" / "torch_npu_2rank", TRACES / "torch_npu_pp2dp2"), (TRACES / "dlrm_8xV100",) * 2]
)
def test_two_recordings_in_one_folder_are_answered_as_the_one_that_is_shown(tmp_path: Path, one: Path, other: Path):
    for name, source in (("a", one), ("b", other)):
        shutil.copytree(source, tmp_path / name)
    run = load(tmp_path, cache=False)
    (shown,) = [name for name in ("a", "b") if any(f"shown is {name}," in note for note in run.notes)]
    alone = load(tmp_path / shown, cache=False)
    assert run.ranks == alone.ranks
    told, expected = diagnose(run), diagnose(alone)
    assert [(finding.rule, finding.cost_ns) for finding in told.findings] == [
        (finding.rule, finding.cost_ns) for finding in expected.findings
    ]
    assert any("hold recordings of the same ranks" in note for note in told.notes)
