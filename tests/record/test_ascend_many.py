"""Runs of many ranks: the summaries at once, the rest when asked for, and all of it equal to reading everything."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from perfkit.core.resources import data_folder
from perfkit.core.run import LazyTables, Run
from perfkit.explain.summary import summarize
from perfkit.record import _state
from perfkit.record.formats.ascend import _many, ascend_text
from perfkit.record.formats.ascend._recording import groups_of_use
from perfkit.record.load import load

SAMPLE = data_folder() / "traces" / "torch_npu_2rank"


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """A recording that a test may change."""
    return Path(shutil.copytree(SAMPLE, tmp_path / "recording"))


def lazily(path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The run as if two ranks were many."""
    with monkeypatch.context() as patch:
        patch.setattr(ascend_text, "MANY_RANKS", 2)
        return load(path)


def ordered(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.sort_values([name for name in ("rank", "step", "path") if name in frame], ignore_index=True, kind="stable")


def test_many_is_more_than_the_ranks_of_a_node():
    assert ascend_text.MANY_RANKS == _many.MANY_RANKS >= 16


@pytest.mark.parametrize("table", ["kernels", "collectives", "links", "memory_curve", "memory_blocks", "host", "launches"])
def test_what_is_read_later_equals_what_is_read_at_once(table: str, monkeypatch: pytest.MonkeyPatch):
    lazy, eager = lazily(SAMPLE, monkeypatch), load(SAMPLE)
    assert isinstance(lazy.tables, LazyTables)
    for rank in (1, 0):
        part = eager.frame(table, ranks=[rank]).reset_index(drop=True)
        found = lazy.frame(table, ranks=[rank])
        pd.testing.assert_frame_equal(found.astype(object), part.astype(object))
    pd.testing.assert_frame_equal(lazy.frame(table), eager.frame(table))


def test_operations_without_kernels_are_at_once_what_they_are_rank_by_rank(recording: Path, monkeypatch: pytest.MonkeyPatch):
    for file in recording.rglob("kernel_details.csv"):
        file.unlink()
    eager, parts = load(recording), lazily(recording, monkeypatch)
    one_by_one = pd.concat([parts.frame("collectives", ranks=[rank]).astype(object) for rank in (0, 1)], ignore_index=True)
    whole = lazily(recording, monkeypatch)
    monkeypatch.setattr(_many, "read_use", None)  # what groups are used for was told by what was read
    found = whole.frame("collectives")
    assert len(found)
    pd.testing.assert_frame_equal(found.astype(object), one_by_one)
    pd.testing.assert_frame_equal(found, eager.frame("collectives"))


USES = (["rank", "group"], ["group", "operation"], ["rank", "group", "group_size", "operation"])


def use_of(run: Run, columns: list[str]) -> list[tuple[object, ...]]:
    rows = run.distinct("collectives", columns=columns)
    return sorted(rows.astype(object).itertuples(index=False, name=None), key=str)


@pytest.mark.parametrize("columns", USES)
def test_what_groups_are_used_for_is_known_without_the_times_of_operations(columns: list[str], monkeypatch: pytest.MonkeyPatch):
    eager = use_of(load(SAMPLE), columns)
    lazy = lazily(SAMPLE, monkeypatch)
    monkeypatch.setattr(ascend_text, "read_operations", None)
    monkeypatch.setattr(ascend_text, "read_kernels", None)
    assert use_of(lazy, columns) == eager
    assert eager or "group_size" in columns  # most ranks of these groups were not recorded


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text[: len(text) // 2],
        lambda text: text.replace(b"{", b"{\x01", 1),
        lambda text: text.replace(b"@", b"#"),
        lambda text: b"{}",
        None,
    ],
)
def test_groups_are_known_though_a_communication_file_is_damaged(recording: Path, monkeypatch: pytest.MonkeyPatch, change):
    file = next(recording.glob("rank1*/**/communication.json"))
    if change is None:
        file.unlink()
    else:
        file.write_bytes(change(file.read_bytes()))
    lazy, eager = lazily(recording, monkeypatch), load(recording)
    for columns in USES:
        assert use_of(lazy, columns) == use_of(eager, columns)
    lazy.frame("collectives")
    assert list(lazy.dropped) == list(eager.dropped)


def test_groups_are_the_same_whichever_question_comes_first(recording: Path, monkeypatch: pytest.MonkeyPatch):
    file = next(recording.glob("rank1*/**/communication.json"))
    content = json.loads(file.read_bytes())
    lost = [(key, told) for kinds in content.values() for told_of in kinds.values() for key, told in told_of.items() if "@" in key]
    of_one = lost[0][0].partition("@")[2]
    for key, told in lost:
        if key.partition("@")[2] == of_one:
            del told["Communication Time Info"]["Elapse Time(ms)"]
    file.write_text(json.dumps(content))
    first, last = lazily(recording, monkeypatch), lazily(recording, monkeypatch)
    rows, links = first.frame("collectives"), first.frame("links")
    assert first.dropped
    for columns in USES:
        assert use_of(last, columns) == use_of(first, columns)
    pd.testing.assert_frame_equal(last.frame("links"), links)
    pd.testing.assert_frame_equal(last.frame("collectives"), rows)


def test_the_summary_tells_the_losses_of_what_it_reads_later(recording: Path, monkeypatch: pytest.MonkeyPatch):
    file = next(recording.glob("rank1*/**/communication.json"))
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    lost = [(loss.what, loss.count, loss.file) for loss in load(recording).dropped if loss.file.endswith("communication.json")]
    assert lost
    told = [(entry["what"], entry["count"], entry["file"]) for entry in summarize(lazily(recording, monkeypatch))["dropped"]]
    assert set(lost) <= set(told)


def test_steps_come_from_the_summaries_alone(monkeypatch: pytest.MonkeyPatch):
    lazy, eager = lazily(SAMPLE, monkeypatch), load(SAMPLE)
    monkeypatch.setattr(ascend_text, "read_kernels", None)
    pd.testing.assert_frame_equal(lazy.steps().drop(columns="start_ns"), eager.steps().drop(columns="start_ns"))
    assert lazy.steps()["start_ns"].isna().all()
    pd.testing.assert_frame_equal(ordered(lazy.frame("step_parts")), ordered(eager.frame("step_parts")))
    assert lazy.ranks == eager.ranks
    assert lazy.placement == eager.placement
    assert any("are read when they are asked for" in note for note in lazy.notes)


def test_a_rank_without_a_summary_gets_its_steps_from_its_kernels(recording: Path, monkeypatch: pytest.MonkeyPatch):
    next(recording.glob("rank1*/**/step_trace_time.csv")).unlink()
    lazy, eager = lazily(recording, monkeypatch), load(recording)
    columns = ["rank", "step", "duration_ns", "computing_ns"]
    pd.testing.assert_frame_equal(lazy.steps()[columns], eager.steps()[columns])


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace(b"\n", b"\r\n"),
        lambda text: b"\xef\xbb\xbf" + text,
        lambda text: text.replace(b",", b"\t,"),
        lambda text: text + b"\n\n",
        lambda text: text + b"9,1,2\n",
        lambda text: text.replace(b"Computing", b"Something"),
        lambda text: text[:-20],
        lambda text: b"",
    ],
)
def test_an_odd_summary_is_read_with_care_and_the_others_are_not_harmed(recording: Path, monkeypatch: pytest.MonkeyPatch, change):
    file = next(recording.glob("rank0*/**/step_trace_time.csv"))
    file.write_bytes(change(file.read_bytes()))
    lazy, eager = lazily(recording, monkeypatch), load(recording)
    numbers = [name for name in lazy.steps() if name != "start_ns"]
    pd.testing.assert_frame_equal(ordered(lazy.steps())[numbers], ordered(eager.steps())[numbers])
    assert list(lazy.dropped) == list(eager.dropped)


def test_a_negative_time_is_counted_against_its_file(recording: Path, monkeypatch: pytest.MonkeyPatch):
    file = next(recording.glob("rank1*/**/step_trace_time.csv"))
    header, row = file.read_text().splitlines()[:2]
    cells = row.split(",")
    cells[header.split(",").index("Free")] = "-5"
    file.write_text("\n".join([header, ",".join(cells)]) + "\n")
    lazy = lazily(recording, monkeypatch)
    assert [(lost.what, lost.file.split("/")[0]) for lost in lazy.dropped] == [("step row with a negative time", "rank1_ascend_pt")]


def test_losses_of_a_file_read_later_are_counted_once(recording: Path, monkeypatch: pytest.MonkeyPatch):
    file = next(recording.glob("rank1*/**/kernel_details.csv"))
    file.write_text(file.read_text() + "1,2,3\n")
    lazy = lazily(recording, monkeypatch)
    assert not lazy.dropped
    for _ in range(6):
        lazy.frame("kernels", ranks=[1])
        lazy.frame("kernels", ranks=[0])
    assert [(lost.what, lost.count) for lost in lazy.dropped] == [("row with more or fewer cells than the header", 1)]
    assert list(lazy.dropped) == list(load(recording).dropped)


def test_only_the_ranks_asked_for_are_read(monkeypatch: pytest.MonkeyPatch):
    seen: list[int] = []
    read_kernels = ascend_text.read_kernels

    def spy(file, rank, sink):
        seen.append(rank)
        return read_kernels(file, rank, sink)

    monkeypatch.setattr(ascend_text, "read_kernels", spy)
    lazy = lazily(SAMPLE, monkeypatch)
    assert lazy.has("kernels")
    lazy.frame("kernels", ranks=[0], columns=["name"])
    assert seen == [0]


def test_progress_ends_at_all_bytes_though_few_were_read(monkeypatch: pytest.MonkeyPatch):
    seen: list[tuple[str, int, int]] = []
    monkeypatch.setattr(ascend_text, "MANY_RANKS", 2)
    load(SAMPLE, progress=lambda *report: seen.append(report))
    assert seen[-1][1] == seen[-1][2] > 0


def test_many_ranks_are_kept_and_answer_the_same_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PERFKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(_state, "MIN_BYTES", 0)
    monkeypatch.setattr(ascend_text, "MANY_RANKS", 2)
    first = load(SAMPLE)
    with monkeypatch.context() as patch:
        patch.setattr(ascend_text, "read", None)
        again = load(SAMPLE)
    for table in ("steps", "step_parts", "coverage", "kernels", "collectives", "links"):
        pd.testing.assert_frame_equal(again.frame(table), first.frame(table), check_dtype=False, check_categorical=False)
    columns = ["rank", "group", "group_size", "operation"]
    pd.testing.assert_frame_equal(again.distinct("collectives", columns=columns), first.distinct("collectives", columns=columns))
    assert [*again.dropped] == [*first.dropped]
    assert again.placement == first.placement


def test_groups_of_the_same_members_are_named_alike_in_whatever_order_they_are_met():
    names = ["40", "7", "100", None]
    met = [groups_of_use({0: order, 1: order}, []) for order in (names, names[::-1])]
    assert list(met[0].users) == list(met[1].users)
