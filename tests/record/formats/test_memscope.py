"""Dumps of msMemScope and msLeaks: blocks from allocation to release, and the curve of each pool."""

from pathlib import Path

import pytest

import perfkit

DATA = Path(__file__).parents[2] / "data" / "traces" / "memscope"
HEADER = "ID,Event,Event Type,Name,Timestamp(ns),Process Id,Thread Id,Device Id,Ptr,Attr,Call Stack(Python),Call Stack(C)\n"


def test_the_events_of_the_table_are_all_accounted_for():
    run = perfkit.load(next(DATA.glob("*.csv")), cache=False)
    blocks = run.frame("memory_blocks")
    released = int(blocks["end"].notna().sum())
    lost = {dropped.what: dropped.count for dropped in run.dropped}
    assert len(blocks) == 289  # MALLOC rows of the file
    assert released + lost.get("release of a block whose allocation is not recorded", 0) == 23  # its FREE rows
    assert set(blocks["kind"]) == {"HAL", "PTA"}
    assert len(run.frame("host")) == 4  # its MSTX rows


def test_the_curve_of_a_pool_is_what_the_pool_says_that_it_uses():
    run = perfkit.load(next(DATA.glob("*.csv")), cache=False)
    curve = run.frame("memory_curve")
    pool = curve[(curve["component"] == "PTA") & (curve["rank"] == 1)]
    assert 3_537_408 in pool["allocated_bytes"].tolist()
    assert pool["allocated_bytes"].iloc[-1] == 3_645_952


def test_a_database_gives_what_its_own_viewer_computed():
    run = perfkit.load(next(DATA.glob("*.db")), cache=False)
    blocks = run.frame("memory_blocks").sort_values(["start", "bytes"])
    assert blocks["bytes"].tolist()[:3] == [6_356_992, 1_966_080, 3_018_752]
    assert set(blocks["pool"]) == {"cpu"}
    curve = run.frame("memory_curve")
    assert curve["allocated_bytes"].tolist()[:5] == [6_356_992, 8_323_072, 11_341_824, 17_698_816, 19_664_896]


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ('1,MALLOC,HAL,N/A,abc,1,1,0,5,"{addr:5,size:1}",,', "not a number"),
        ('1,MALLOC,HAL,N/A,7,1,1,0,5,"{addr:5}",,', "without a size"),
        ('1,FREE,HAL,N/A,7,1,1,0,9,"{addr:9}",,', "not recorded"),
    ],
)
def test_a_row_that_cannot_be_used_is_counted(tmp_path: Path, row: str, what: str):
    good = '1,MALLOC,HAL,N/A,5,1,1,0,5,"{addr:5,size:16}",,'
    (tmp_path / "leaks_dump_1.csv").write_text(HEADER + good + "\n" + row + "\n")
    run = perfkit.load(tmp_path, cache=False)
    assert any(what in lost.what for lost in run.dropped)
    assert run.frame("memory_blocks")["bytes"].tolist()[0] == 16
