"""Logged peaks: headroom and gaps of published logs, and several statistics in one file."""

from pathlib import Path

import pytest

from perfkit.core.errors import InputError, NotMeasuredError
from perfkit.core.resources import data_folder
from perfkit.core.units import MIB
from perfkit.predict import dryrun
from perfkit.record.load import load

LOGS = data_folder() / "dryrun"


def mib(size: int | None) -> int | None:
    return None if size is None else size // MIB


def test_the_log_of_the_guides_leaves_10518_mib():
    (peak,) = dryrun.read_peaks(load(LOGS / "guide.log"))
    assert (mib(peak.limit_bytes), mib(peak.peak_bytes), mib(peak.headroom_bytes())) == (59392, 48874, 10518)
    assert peak.fragmentation == 0
    assert mib((peak.device_bytes or 0) - (peak.limit_bytes or 0)) == 3040


def test_gaps_are_a_share_of_the_actual_peak():
    (peak,) = dryrun.read_peaks(load(LOGS / "sim_level1.log"))
    assert (mib(peak.actual_bytes), mib(peak.used_bytes)) == (26244, 23716)
    assert peak.fragmentation == pytest.approx(0.0963, abs=5e-5)
    assert mib(peak.headroom_bytes()) == 33148


def test_several_statistics_have_no_rank_until_somebody_says_so():
    run = load(LOGS / "recompute_before_after.log")
    assert dryrun.has_several(run)
    assert [peak.rank for peak in dryrun.read_peaks(run)] == [None, None]
    assert [peak.rank for peak in dryrun.read_peaks(run, "ranks")] == [0, 1]
    assert [peak.rank for peak in dryrun.read_peaks(run, "ranks", [3, 7])] == [3, 7]
    first, last = (mib(peak.peak_bytes) for peak in dryrun.read_peaks(run, "before and after"))
    assert (first, last) == (260, 76)


def test_another_number_of_ranks_than_statistics_is_refused():
    with pytest.raises(InputError, match="3 ranks are named for 2 statistics"):
        dryrun.read_peaks(load(LOGS / "recompute_before_after.log"), "ranks", [0, 1, 2])


def test_a_failed_request_counts_on_top_of_what_was_allocated(tmp_path: Path):
    text = "Out of Memory!!! Request memory size: 1073741824B, Memory Statistic:\nDevice HBM memory size: 4096M\n"
    text += "MindSpore Used memory size: 3072M\nTotal Static Memory size: 2048M\nTotal Dynamic memory size: 512M\n"
    (tmp_path / "rank_3.log").write_text(text)
    (peak,) = dryrun.read_peaks(load(tmp_path))
    assert peak.rank == 3
    assert mib(peak.peak_bytes) == 2048 + 512 + 1024
    assert mib(peak.headroom_bytes()) == -512
    assert peak.fragmentation is None


def test_a_run_without_statistics_says_how_to_get_them():
    with pytest.raises(NotMeasuredError, match="MS_MEMORY_STATISTIC=1"):
        dryrun.read_peaks(load(data_folder() / "traces" / "torch_npu_2rank"))
