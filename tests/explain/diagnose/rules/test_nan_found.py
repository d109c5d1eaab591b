"""Values that are no number, as logs say it: with rank, file and line."""

from __future__ import annotations

from pathlib import Path

from perfkit.explain.diagnose import diagnose
from perfkit.explain.diagnose.rules import nan_found, skipped_steps
from perfkit.record.load import load
from tests.explain.diagnose.made import with_incidents

TOLD = "[rank2]:   AssertionError: Rank 2: found NaN in local grad norm for bucket #0 in backward pass\n"
ITERATION = (
    " [2026-01-05 10:00:0{at}] iteration       {at}/ 1000 | consumed samples: 256 | elapsed time per iteration (ms): 1500.0 | "
    "global batch size: 256 | lm loss: 7.4E+00 | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
)


def test_a_fatal_nan_of_one_rank_is_a_finding_with_rank_and_line(tmp_path: Path):
    (tmp_path / "train.log").write_text("".join(ITERATION.format(at=at) for at in range(1, 6)) + TOLD)
    found = diagnose(load(tmp_path, cache=False), only=[nan_found.RULE, skipped_steps.RULE])
    (finding,) = found.findings
    assert (finding.rule, finding.severity, finding.subject["ranks"]) == ("nan-found", "high", (2,))
    assert finding.subject["places"] == ("train.log:6",)
    assert "--rerun-mode" in " ".join(finding.actions)


def test_without_such_a_line_it_is_healthy():
    told = diagnose(with_incidents((0, "out_of_memory", None, 1)), only=[nan_found.RULE])
    assert (told.findings, [entry.rule for entry in told.healthy]) == ((), ["nan-found"])
