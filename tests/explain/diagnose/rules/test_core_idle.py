"""A device that idles with work in its queue."""

import pytest

from perfkit.explain.diagnose.rules.core_idle import RULE
from tests.explain.diagnose.made import US, Training, added, judged, lacks, stays_healthy

GAP_US = 50.0
RUN = Training(ranks=1, gap_us={0: GAP_US}).run()


def launched(run, ahead_us):
    """The run with launches of 5 us that began so long before their kernels."""
    return added(
        run,
        launches=[
            {
                "rank": 0, "step": int(row["step"]), "name": str(row["name"]), "kind": str(row["kind"]), "call": "launch",
                "start_ns": int(row["start_ns"]), "duration_ns": int(row["duration_ns"]),
                "launch_ns": int(row["start_ns"] - ahead_us * US), "launch_duration_ns": 5 * US,
            }
            for row in run.tables["kernels"].to_dict("records")
        ],
    )  # fmt: skip


def test_gaps_before_kernels_that_were_queued_are_named():
    (found,) = judged(RULE, launched(RUN, 2000.0)).findings
    assert found.subject["ranks"] == (0,)
    assert found.evidence["median_gap_ns"] == pytest.approx(GAP_US * US, rel=0.05)


def test_gaps_that_a_late_launch_explains_are_not():
    assert stays_healthy(RULE, launched(RUN, 10.0))["num_gaps"] == 0


def test_without_launches_it_is_not_measured():
    assert lacks(RULE, RUN) == "when kernels were launched"
