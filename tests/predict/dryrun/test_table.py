"""The table of ranks: logged and predicted rows, limits, damaged statistics."""

from perfkit import read_config
from perfkit.core.resources import data_folder
from perfkit.core.units import MIB
from perfkit.predict import dryrun
from perfkit.record.load import load

LOGS = data_folder() / "dryrun"


def test_ranks_without_a_log_are_predicted_with_the_limit_of_the_logs():
    plan = read_config(LOGS / "qwen2.5_7b" / "as_trained" / "pretrain.sh")
    peaks = dryrun.read_peaks(load(LOGS / "qwen2.5_7b" / "as_trained"))
    frame = dryrun.table(peaks, dryrun.substitute(plan, peaks))
    assert frame["rank"].tolist() == [0, 1, 2, 3]
    assert frame["origin"].tolist() == ["logged", "predicted", "predicted", "predicted"]
    assert frame["stage"].tolist() == [0, 0, 1, 1]
    assert set(frame["limit_bytes"]) == {61430 * MIB}
    assert abs(frame["error_ratio"][0]) < 0.002
    assert (frame["limit_bytes"] - frame["actual_bytes"] == frame["headroom_bytes"]).all()


def test_the_stage_that_does_not_fit_is_the_fullest():
    rows = dryrun.rank_rows(dryrun.read_peaks(load(LOGS / "pp4")))
    assert [row.rank for row in rows] == [0, 4, 8, 12]
    row = dryrun.fullest(rows)
    assert row is not None
    assert (row.rank, row.headroom_bytes) == (12, -2048 * MIB)


def test_another_limit_replaces_the_logged_one():
    rows = dryrun.rank_rows(dryrun.read_peaks(load(LOGS / "guide.log")), limit_bytes=50_000 * MIB)
    assert rows[0].headroom_bytes == (50_000 - 48_874) * MIB
