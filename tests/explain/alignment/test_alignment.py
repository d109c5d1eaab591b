"""Verdicts on pairs of losses whose truth is known: noise, drift, departures, gaps, intervals."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from perfkit.core.errors import InputError, NotMeasuredError
from perfkit.explain.alignment import LossSeries, align_losses, read_table, series_of_run
from perfkit.explain.alignment._noise import departed_tails, relative_scatter
from perfkit.explain.alignment.changes import causes, class_of
from perfkit.record.load import load


def series(losses, steps=None, *, name="run", **columns) -> LossSeries:
    steps = np.arange(1, len(losses) + 1) if steps is None else steps
    rest = {"gradient_norm": math.nan, "tokens": math.nan, "samples": math.nan, "overflow": False, **columns}
    frame = pd.DataFrame({"step": np.asarray(steps, dtype=np.int64), "loss": np.asarray(losses, dtype=np.float64), **rest})
    return LossSeries(name=name, points=frame)


def curve(count: int) -> np.ndarray:
    return 2 + 8 * np.exp(-np.arange(1, count + 1) / 80)


def noisy(count: int, noise: float, seed: int) -> np.ndarray:
    return curve(count) * (1 + noise * np.random.default_rng(seed).normal(size=count))


def verdict(reference, candidate, **options):
    return align_losses(reference, candidate, **options).verdict


def test_the_longer_a_tail_the_less_it_must_differ_to_have_left():
    differences = np.concatenate([np.zeros(80), np.full(40, 0.01)])
    assert departed_tails(differences, 0.0, 0.01 * math.sqrt(15) / 4.5) == (20, 40)
    assert departed_tails(differences, 0.0, 0.01 * math.sqrt(2.9) / 4.5) == (3, 5, 10, 20, 40)
    assert departed_tails(differences, 0.02, 0.0) == ()


@pytest.mark.parametrize("count", [20, 100, 1000])
def test_a_series_is_aligned_with_itself(count):
    losses = series(noisy(count, 0.01, 1))
    found = align_losses(losses, losses)
    assert (found.verdict, found.max_relative, found.mean_relative) == ("aligned", 0.0, 0.0)
    assert found.judgement.first_divergence_step is None


@pytest.mark.parametrize(("noise", "count"), [(1e-4, 50), (5e-4, 200), (2e-3, 200), (1e-2, 200), (1e-2, 2000), (3e-2, 2000)])
def test_noise_like_that_of_the_reference_is_aligned(noise, count):
    verdicts = [verdict(series(noisy(count, noise, 2 * seed)), series(noisy(count, noise, 2 * seed + 1))) for seed in range(20)]
    assert verdicts.count("aligned") >= 18
    assert "diverged" not in verdicts


def test_noise_that_hides_what_matters_is_no_pass():
    assert verdict(series(noisy(40, 0.05, 1)), series(noisy(40, 0.05, 2))) == "suspicious"


def test_noise_beyond_the_reference_is_no_pass():
    smooth = curve(100)
    assert verdict(series(smooth), series(noisy(100, 0.004, 3))) == "suspicious"


def test_the_limits_of_the_tree_hold_for_shared_samples():
    reference = noisy(100, 0.01, 1)
    within, above = reference.copy(), reference.copy()
    within[50] *= 1.0049
    above[50] *= 1.0062
    assert verdict(series(reference), series(within)) == "aligned"
    found = align_losses(series(reference), series(above))
    assert (found.verdict, found.judgement.first_divergence_step, found.max_step) == ("suspicious", 51, 51)
    assert found.max_relative == pytest.approx(0.0062)


def test_a_tiny_drift_is_suspicious_and_a_large_one_diverged():
    reference, steps = noisy(100, 0.01, 1), np.arange(1, 101)
    assert verdict(series(reference), series(reference * (1 + 1e-5 * steps))) == "suspicious"
    assert verdict(series(reference), series(reference * (1 + 2e-4 * steps))) == "diverged"
    assert verdict(series(reference), series(reference * (1 + 1e-7 * steps))) == "aligned"


@pytest.mark.parametrize("begin", [0, 30, 60, 90])
def test_the_step_of_a_divergence_is_found(begin):
    reference, steps = noisy(100, 0.01, 1), np.arange(1, 101)
    parted = np.where(steps > begin, reference * (1 + 0.01 * (steps - begin)), reference)
    found = align_losses(series(reference), series(parted))
    assert (found.verdict, found.judgement.first_divergence_step) == ("diverged", begin + 1)


@pytest.mark.parametrize("seed", range(5))
def test_the_step_of_a_jump_is_found_in_noise_of_other_samples(seed):
    other = noisy(400, 0.01, 100 + seed)
    other[250:] *= 1.1
    found = align_losses(series(noisy(400, 0.01, seed)), series(other))
    assert found.verdict == "diverged"
    assert found.judgement.first_divergence_step == pytest.approx(251, abs=8)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_no_number_is_diverged_even_if_it_comes_back(bad):
    reference = noisy(50, 0.01, 1)
    broken = reference.copy()
    broken[30] = bad
    found = align_losses(series(reference), series(broken))
    assert (found.verdict, found.judgement.first_divergence_step) == ("diverged", 31)
    assert json.loads(json.dumps(found.to_json(), allow_nan=False))["max_relative"] == 0.0


def test_a_step_that_the_loss_scale_skipped_is_no_divergence_and_is_listed():
    reference = noisy(50, 0.01, 1)
    broken = reference.copy()
    broken[2] = math.nan
    found = align_losses(series(reference), series(broken, overflow=np.arange(50) == 2))
    assert (found.verdict, found.overflow_steps) == ("aligned", (3,))


def test_a_reference_that_is_no_number_itself_is_no_pass():
    reference = noisy(50, 0.01, 1)
    broken = reference.copy()
    broken[40:] = math.nan
    for candidate in (reference, broken):
        found = align_losses(series(broken, name="before"), series(candidate, name="after"))
        assert (found.verdict, found.num_compared, found.judgement.first_divergence_step) == ("suspicious", 40, 41)
        assert "before itself is no number in 10 step(s), first in step 41" in found.judgement.reasons[0]
    assert align_losses(series(broken), series(reference), steps=40).verdict == "aligned"


DAMAGES = {
    "nan": lambda losses, steps, at: (np.where(steps >= at, math.nan, losses), steps),
    "one nan": lambda losses, steps, at: (np.where(steps == at, math.nan, losses), steps),
    "inf": lambda losses, steps, at: (np.where(steps == at, math.inf, losses), steps),
    "fewer steps": lambda losses, steps, at: (losses[steps < at], steps[steps < at]),
    "a missing step": lambda losses, steps, at: (losses[steps != at], steps[steps != at]),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("at", [12, 51, 98])
@pytest.mark.parametrize("change_class", ["exact", "re-association"])
def test_what_was_not_compared_never_passes_and_its_step_and_series_are_named(damage, at, change_class):
    losses, steps = noisy(100, 0.01, 1), np.arange(1, 101)
    found = align_losses(series(losses), series(*DAMAGES[damage](losses, steps, at), name="after"), change_class=change_class)
    assert found.verdict == ("suspicious" if "step" in damage else "diverged")
    assert found.judgement.first_divergence_step in (at, at - 1)
    assert "after" in found.judgement.reasons[0]


def test_a_nan_beyond_the_compared_steps_is_no_pass_either():
    losses = noisy(100, 0.01, 1)
    broken = np.where(np.arange(100) >= 60, math.nan, losses)
    assert verdict(series(losses[:50]), series(broken)) == "diverged"
    assert verdict(series(losses), series(broken), steps=50) == "diverged"


def test_batches_of_other_size_never_pass_also_where_no_change_is_stated():
    steps = np.arange(1, 201)
    for unit in ("tokens", "samples"):
        small = series(curve(200), name="before", **{unit: steps * 1000.0})
        large = series(curve(200), name="after", **{unit: steps * 2000.0})
        for by in (None, "step"):
            found = align_losses(small, large, by=by)
            assert found.verdict != "aligned"
        assert f"holds 2\u2009000 {unit}" in " ".join(align_losses(small, large, by="step").judgement.reasons)


def test_a_spike_that_the_reference_never_shows_is_no_pass_in_precision():
    changes = [{"key": "model.model_config.compute_dtype", "old": "float32", "new": "bfloat16"}]
    for noise, expected in ((0.0005, "suspicious"), (0.02, "aligned")):
        reference = noisy(600, noise, 1)
        spiked = reference.copy()
        spiked[300] *= 1.04
        assert verdict(series(reference), series(spiked), changes=changes) == expected


@pytest.mark.parametrize("first_bad", [5, 30])
def test_a_log_that_prints_nan_is_not_a_log_without_a_loss(tmp_path, first_bad):
    lines = {
        "good": ["2.5E+00"] * 40,
        "bad": ["2.5E+00"] * (first_bad - 1) + ["nan"] * (41 - first_bad),
    }
    for name, losses in lines.items():
        text = "".join(
            f" iteration {step:8d}/     100 | consumed samples: {step * 8:12d} | elapsed time per iteration (ms): 500.0 | "
            f"global batch size:     8 | lm loss: {loss} | loss scale: 1.0 | grad norm: 1.0 |\n"
            for step, loss in enumerate(losses, 1)
        )
        (tmp_path / f"{name}.log").write_text(text)
    good, bad = (series_of_run(load(tmp_path / f"{name}.log")) for name in lines)
    found = align_losses(good, bad)
    assert (found.verdict, found.judgement.first_divergence_step) == ("diverged", first_bad)
    assert align_losses(good, good).verdict == "aligned"


def test_a_spike_that_passes_is_suspicious():
    reference = noisy(100, 0.01, 1)
    spiked = reference.copy()
    spiked[40:43] *= 1.3
    found = align_losses(series(reference), series(spiked))
    assert (found.verdict, found.judgement.first_divergence_step) == ("suspicious", 41)


def test_missing_steps_and_other_lengths_compare_what_is_common():
    losses, steps = noisy(100, 0.01, 1), np.arange(1, 101)
    some = steps % 7 != 0
    assert align_losses(series(losses), series(losses[some], steps[some])).num_compared == some.sum()
    short = align_losses(series(losses), series(losses[:60]))
    assert (short.verdict, short.num_compared) == ("suspicious", 60)
    assert align_losses(series(losses), series(losses[:60]), steps=60).verdict == "aligned"
    assert any("goes on to step 100" in note for note in short.notes)


@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("means", [False, True])
def test_other_logging_intervals_are_matched_whatever_a_line_holds(swap, means):
    losses = noisy(200, 0.01, 1)
    every = series(losses.reshape(-1, 10).mean(axis=1) if means else losses[9::10], np.arange(10, 201, 10))
    pair = (every, series(losses)) if swap else (series(losses), every)
    found = align_losses(*pair)
    assert (found.verdict, found.num_compared, found.max_relative) == ("aligned", 20, pytest.approx(0, abs=1e-12))


def test_logs_that_share_no_step_are_read_between_the_points():
    losses = curve(400)
    found = align_losses(series(losses[0::5], np.arange(1, 401, 5)), series(losses[2::5], np.arange(3, 401, 5)))
    assert found.verdict == "aligned"
    assert any("between its points" in note for note in found.notes)


def test_nothing_in_common_is_suspicious_and_says_so():
    found = align_losses(series(curve(20)), series(curve(20), np.arange(101, 121)))
    assert (found.verdict, found.num_compared, found.max_relative) == ("suspicious", 0, None)


def test_fewer_than_ten_steps_are_never_a_pass():
    assert verdict(series(curve(9)), series(curve(9))) == "suspicious"
    assert verdict(series(curve(10)), series(curve(10))) == "aligned"
    assert verdict(series(curve(9)), series(curve(9) * 2)) == "diverged"


def test_batches_of_other_size_are_compared_at_equal_tokens_and_only_reported():
    steps = np.arange(1, 201)
    small = series(curve(200), tokens=steps * 1000.0)
    large = series(curve(200)[1::2], tokens=steps[:100] * 2000.0)
    found = align_losses(small, large, changes=[{"key": "workload.global_batch_size", "old": 1, "new": 2}])
    assert (found.by, found.change_class, found.verdict) == ("tokens", "batch", "suspicious")
    assert found.max_relative == pytest.approx(0, abs=1e-12)


def test_exact_changes_must_be_equal_bit_for_bit():
    losses = noisy(100, 0.01, 1)
    other = losses.copy()
    other[4] *= 1 + 1e-12
    changes = [{"key": "recompute_config.recompute", "old": True, "new": [4, 0]}]
    assert verdict(series(losses), series(losses), changes=changes) == "aligned"
    found = align_losses(series(losses), series(other), changes=changes)
    assert (found.change_class, found.verdict, found.judgement.first_divergence_step) == ("exact", "suspicious", 5)


def test_precision_needs_five_hundred_steps_and_allows_one_percent():
    changes = [{"key": "model.model_config.compute_dtype", "old": "float32", "new": "bfloat16"}]
    losses = noisy(600, 0.01, 1)
    close = losses * (1 + 0.004 * np.random.default_rng(9).normal(size=600))
    assert verdict(series(losses), series(close), changes=changes) == "aligned"
    assert verdict(series(losses[:400]), series(close[:400]), changes=changes) == "suspicious"
    assert verdict(series(losses), series(losses * 1.03), changes=changes) == "diverged"


@pytest.mark.parametrize(
    ("key", "change_class"),
    [
        ("recompute_config.recompute", "exact"),
        ("recompute-granularity", "exact"),
        ("context.max_device_memory", "exact"),
        ("parallel_config.pipeline_stage", "re-association"),
        ("tensor-model-parallel-size", "re-association"),
        ("parallel.tensor_parallel_size", "re-association"),
        ("context.jit_level", "re-association"),
        ("use-flash-attn", "re-association"),
        ("model.model_config.compute_dtype", "precision"),
        ("bf16", "precision"),
        ("workload.dtype", "precision"),
        ("global-batch-size", "batch"),
        ("lr_schedule.learning_rate", "batch"),
        ("seed", "data"),
        ("model.hidden_size", "model"),
        ("runner_config.sink_steps", "re-association"),
        ("train_dataset.num_samples", "re-association"),
    ],
)
def test_changes_have_the_class_of_the_tree(key, change_class):
    assert causes([{"key": key, "old": 1, "new": 2}])[0].change_class == change_class


def test_the_likeliest_cause_comes_first_and_recompute_is_none():
    found = causes([{"key": "recompute_config.recompute", "old": 1, "new": 0}, {"key": "workload.dtype", "old": "a", "new": "b"}])
    assert [cause.could_cause for cause in found] == [True, False]
    assert class_of(found) == "precision"
    assert class_of(()) is None


@settings(max_examples=60, deadline=None)
@given(
    losses=st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=40),
    other=st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=40),
)
@example(losses=[0.0, 0.0, 2e150, 7e-159, 2e-311], other=[0.0] * 5)
def test_any_numbers_give_a_verdict_and_valid_json(losses, other):
    found = align_losses(series(losses), series(other)) if losses and other else None
    if found is not None:
        assert found.verdict in ("aligned", "suspicious", "diverged")
        json.dumps(found.to_json(), allow_nan=False)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "step,loss,grad_norm\n1,2.5,1\n2,2.4,nan\n3,nan,1\n"),
        ("b.csv", "Wall time,Step,Value\n1.5,1,2.5\n2.5,2,2.4\n3.5,3,nan\n"),
        ("c.tsv", "iteration\tlm loss\n1\t2.5\n2\t2.4\n3\tNaN\n"),
        ("d.csv", "1,2.5\n2,2.4\n3,nan\n"),
        ("e.jsonl", '{"step": 1, "loss": 2.5}\n{"step": 2, "loss": 2.4}\n{"step": 3, "loss": NaN}\n'),
        ("f.json", '{"log_history": [{"step": 1, "loss": 2.5}, {"step": 2, "loss": 2.4}, {"eval": 1}, {"step": 3, "loss": NaN}]}'),
        ("g.csv", "\ufeffstep;train/loss\r\n3;nan\r\n2;9\r\n1;2.5\r\n2;2.4\r\n"),
    ],
)
def test_tables_of_losses_are_read(tmp_path, name, text):
    (tmp_path / name).write_text(text, encoding="utf-8")
    points = read_table(tmp_path / name).points
    assert points["step"].tolist() == [1, 2, 3]
    assert points["loss"].tolist()[:2] == [2.5, 2.4]
    assert math.isnan(points["loss"].iloc[2])


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "step,loss\n,\n", "step,loss\nx,y\n", '"'])
def test_a_table_without_losses_is_refused(tmp_path, text):
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(InputError):
        read_table(tmp_path / "x.csv")


def test_the_bundled_log_gives_its_losses_and_a_profile_gives_none():
    from perfkit.core.resources import data_folder

    log = series_of_run(load(data_folder() / "traces" / "logs" / "meg_gpt2_base_n4_dp1_tp4_pp4-1809579.log"))
    assert log.prints_means is True
    assert log.points["loss"].notna().sum() >= 10
    with pytest.raises(NotMeasuredError):
        series_of_run(load(data_folder() / "traces" / "torch_npu_2rank"))


def test_losses_that_say_nothing_scatter_not_at_all():
    assert relative_scatter(np.array([])) == 0
    assert relative_scatter(np.zeros(9)) == 0


def test_the_scatter_of_losses_is_relative_to_their_level_also_where_some_are_not_positive():
    zigzag = np.array([1.0, -1.0] * 6)
    # Each point is 2 from the mean of its neighbours: 2 / sqrt(1.5) whatever the rest, and robustly 1.4826 times that.
    expected = 1.4826 * 2 / math.sqrt(1.5)
    assert relative_scatter(zigzag) == pytest.approx(expected, rel=1e-3)
    assert relative_scatter(10 * zigzag) == pytest.approx(expected, rel=1e-3)


def test_rows_without_a_column_of_steps_are_counted_from_1(tmp_path: Path):
    table = tmp_path / "losses.csv"
    table.write_text("loss\n3\n2\n1\n")
    series = read_table(table)
    assert list(series.points["step"]) == [1, 2, 3]
    assert any("counted from 1" in note for note in series.notes)
