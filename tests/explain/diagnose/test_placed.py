"""Bad recordings: what is in no step, or has no cause, is said with the reason, and what is not known has no price."""

from __future__ import annotations

import gzip
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perfkit.explain.diagnose import Diagnosis, diagnose
from perfkit.explain.ledger import causes
from perfkit.record.load import load

TRACES = Path(__file__).parents[2] / "data" / "traces"
DLRM = TRACES / "dlrm_8xV100"
FIRST = DLRM / "worker0.json.gz"


def events() -> dict[str, Any]:
    return dict(json.loads(gzip.decompress(FIRST.read_bytes())))


def told(path: Path) -> Diagnosis:
    found = diagnose(load(path, cache=False))
    assert found.failed == ()
    lasts = found.ledger.entries.groupby(["rank", "step"])["ns"].sum()
    assert (lasts > 0).all()
    return found


def written(path: Path, document: dict[str, Any]) -> Path:
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def unexplained(found: Diagnosis, detail: str) -> float:
    rows = found.ledger.entries
    chosen = (rows["cause"] == causes.UNEXPLAINED) & (rows["detail"] == detail)
    return float(rows.loc[chosen, "ns"].sum() / found.ledger.total_ns)


def test_a_file_that_ends_inside_an_event_among_eight_says_what_was_lost(tmp_path: Path):
    shutil.copytree(DLRM, tmp_path / "job")
    whole = gzip.decompress(FIRST.read_bytes())
    (tmp_path / "job" / FIRST.name).write_bytes(gzip.compress(whole[: 2 * len(whole) // 3]))
    found = told(tmp_path / "job")
    assert any("lost when it was read: bytes after the last complete event" in note for note in found.notes)
    assert found.ledger.entries["rank"].nunique() == 8


@pytest.mark.parametrize("ranks", [(3,), (0, 3, 5)])
def test_some_ranks_of_eight_say_that_who_waits_and_who_moves_data_is_not_known(tmp_path: Path, ranks: tuple[int, ...]):
    for rank in ranks:
        shutil.copy(DLRM / f"worker{rank}.json.gz", tmp_path)
    found = told(tmp_path)
    share = unexplained(found, "communication")
    assert share > 0.2
    assert any("not all members of which were read" in note for note in found.notes)
    waits = any(cause.startswith("waiting/") for cause in found.ledger.entries["cause"])
    assert waits == (len(ranks) > 1), "ranks that were read may be seen to wait for one another"
    assert not {finding.rule for finding in found.findings} & {"late-rank", "slow-link"}, "others may have come as late"


@pytest.mark.parametrize("kept", [0.1, 0.25, 0.5])
def test_a_sample_of_the_events_is_said_to_be_one_and_idle_times_have_neither_cause_nor_price(tmp_path: Path, kept: float):
    draw = random.Random(1)
    document = events()
    document["traceEvents"] = [
        event
        for event in document["traceEvents"]
        if event.get("ph") != "X" or event.get("cat") == "user_annotation" or draw.random() < kept
    ]
    found = told(written(tmp_path / "worker0.json", document))
    assert any("a sample of the events" in note for note in found.notes)
    assert found.ledger.sampled.keys() == {0}
    assert not any(cause.startswith("host/") for cause in found.ledger.entries["cause"])
    assert unexplained(found, "idle") > 0.3
    assert {finding.cost_ns for finding in found.findings if finding.part == "free"} <= {None}


def test_a_whole_recording_is_no_sample():
    assert told(DLRM).ledger.sampled == {}


def test_of_two_jobs_in_one_folder_the_other_is_named_in_the_diagnosis(tmp_path: Path):
    shutil.copytree(DLRM, tmp_path / "a")
    shutil.copytree(TRACES / "hta" / "nccl_parser_config", tmp_path / "b")
    found = told(tmp_path)
    assert any("another job" in note or "later one of rank" in note for note in found.notes)


def moved(by_us: float) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def change(document: dict[str, Any]) -> dict[str, Any]:
        starts = sorted(event["ts"] for event in document["traceEvents"] if event.get("ph") == "X")
        for event in document["traceEvents"]:
            if event.get("ph") == "X" and event["ts"] > starts[len(starts) // 2]:
                event["ts"] += by_us
        return document

    return change


def test_after_a_clock_that_jumps_what_lies_beyond_the_step_is_said_to_be_in_none(tmp_path: Path):
    found = told(written(tmp_path / "worker0.json", moved(30e6)(events())))
    assert any("is in no step and has no price" in note for note in found.notes)
    (step_ns,) = found.ledger.entries.groupby(["rank", "step"])["ns"].sum()
    assert step_ns < 1_000_000_000, "30 s of the jump are in no step"
