"""What an alignment says: the samples in a sentence, causes named by configurations, limits of one's own, rows of charts."""

from __future__ import annotations

import pandas as pd
import pytest

from perfkit.config.dialects import read_config
from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder
from perfkit.explain.alignment import align_losses, cause_table
from perfkit.explain.compare.settings import changed
from perfkit.explain.compare.sides import open_losses
from perfkit.face.charts.compare import difference_rows, loss_rows

DATA = data_folder()


def found(name, **how):
    reference, candidate = (open_losses(DATA / "losses" / f"{one}.csv") for one in ("reference", name))
    return align_losses(reference, candidate, **how)


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("tensor_parallel", "Aligned: "),
        ("drift", "Suspicious: the difference drifts"),
        ("diverged", "Diverged: the losses part from step 120"),
    ],
)
def test_the_samples_are_told_as_what_they_are(name, start):
    one = found(name)
    assert one.told()[0].startswith(start)
    assert one.told()[1:] == one.notes
    figures = one.to_frame().set_index("figure")["value"]
    assert int(figures["steps compared"]) == one.to_json()["steps_compared"]
    assert cause_table(one).empty


def test_the_configurations_name_the_class_and_the_likely_cause():
    changes = changed(*(read_config(str(DATA / f"case13b/round{number}.yaml")) for number in (0, 1)))
    one = found("diverged", changes=changes)
    assert "parallel_config.pipeline_stage" in set(cause_table(one)["setting"])
    assert "It may come from" in one.told()[0]


def test_another_limit_and_class_change_the_verdict():
    assert found("tensor_parallel").verdict == "aligned"
    strict = found("tensor_parallel", max_relative=0.0001)
    assert strict.verdict != "aligned"
    assert "set on this page" in strict.to_frame()["limit or origin"].iloc[-1]
    exact = found("tensor_parallel", change_class="exact", max_relative=0.5)
    assert exact.verdict == "suspicious", "equal stays equal"


def test_many_points_are_thinned_and_gaps_are_gaps():
    points = found("tensor_parallel").points
    rows = loss_rows(points, first_divergence=None)
    assert len(rows["losses"]) == 600
    assert rows["divergence"] == []
    assert len(difference_rows(points, band=0.005, first_divergence=None)["differences"]) == points["relative"].notna().sum()
    many = pd.concat([points] * 40, ignore_index=True)
    assert len(loss_rows(many, first_divergence=3)["losses"]) <= 5_000


def test_what_holds_no_losses_is_refused():
    with pytest.raises(InputError, match="no training log and no table of losses"):
        open_losses(DATA / "ir" / "column_row.ir")
