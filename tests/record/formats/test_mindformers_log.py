"""MindFormers logs: every layout, and what damaged logs leave."""

import gzip
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfkit.core.errors import InputError
from perfkit.record.load import load

ROOT = Path(__file__).parents[3]
SAMPLE = ROOT / "data/traces/logs/llama2_13b_8card_worker_0.log"
EXCERPTS = ROOT / "tests/data/traces/logs/mindformers"
STEP = "{ Epoch:[  1/  2], step:[%5d/   19], loss: 9.5, per_step_time: %dms, lr: 1e-05, overflow cond: False, global_norm: [1.5]\n"


def write(folder: Path, text: str | bytes, name: str = "worker_0.log") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def only_row(path: Path) -> dict[str, object]:
    rows = load(path).frame("log").to_dict("records")
    assert len(rows) == 1
    return rows[0]


def test_the_13b_sample_gives_its_five_steps_in_both_tables():
    run = load(SAMPLE)
    assert run.format == "mindformers-log"
    log, steps = run.frame("log"), run.steps()
    assert log["step"].tolist() == steps["step"].tolist() == [1, 2, 3, 4, 5]
    assert (log["duration_ns"] // 1_000_000).tolist() == [103_328, 1_752, 1_754, 1_756, 1_758]
    assert log["duration_ns"].tolist() == steps["duration_ns"].tolist()
    assert steps["start_ns"].isna().all()
    assert log["loss"].tolist() == [10.649, 10.633, 9.673, 9.287, 8.867]
    assert log["flops_per_s_per_device"].tolist() == pytest.approx([2.896e12, 170.738e12, 170.523e12, 170.319e12, 170.173e12])
    assert run.dropped == ()


def test_time_stamps_of_the_13b_sample_agree_with_its_step_times():
    log = load(SAMPLE).frame("log")
    assert log["timestamp_ns"].iloc[0] == pd.Timestamp("2025-04-07 15:34:27.308", tz="UTC").value
    between = log["timestamp_ns"].diff().iloc[2:] - log["duration_ns"].iloc[2:]
    assert between.abs().max() < 15_000_000


def test_a_norm_without_colon_is_read_and_one_of_two_numbers_is_unknown():
    norms = load(SAMPLE).frame("log")["gradient_norm"]
    assert norms.isna().tolist() == [True, True, False, False, False]
    assert norms.iloc[2] == 10.579812


def test_samples_per_s_on_the_second_line_belong_to_the_step_above():
    log = load(EXCERPTS / "llama3_1_8b_ckpt_health.log").frame("log")
    assert log["samples_per_s_per_device"].tolist() == [0.00636, 0.12096]
    assert (log["duration_ns"] / 1e9 * log["samples_per_s_per_device"]).tolist() == pytest.approx([1, 1], abs=1e-3)


def test_loss_with_its_mean_is_read_as_the_loss_of_the_step(tmp_path):
    line = "{ Epoch:[  1/  1], step:[    3/   10], loss:[2.244/2.5], per_step_time: 15ms, lr: [2.4499998e-06], overflow cond: True"
    row = only_row(write(tmp_path, line + "\n"))
    assert (row["loss"], row["learning_rate"], row["overflow"]) == (2.244, 2.4499998e-06, True)


def test_separate_losses_are_not_taken_for_the_loss(tmp_path):
    text = "{ Epoch:[  1/  1], step:[    3/   10], lm_loss: 1.0, aux_loss: 2.0, loss: 3.0, per_step_time: 15ms }\n"
    assert only_row(write(tmp_path, text))["loss"] == 3.0


def test_the_pynative_layout_has_no_epoch_and_blanks_before_numbers(tmp_path):
    text = (
        "{ step:[    1/   10], loss:  11.813965, per_step_time:  13570ms, load_balancing_loss: 0.02, "
        "lr: 1.000000e-05, grad_norm: 3.25, throughput:   1.36T }\n"
    )
    row = only_row(write(tmp_path, text))
    assert (row["step"], row["duration_ns"], row["loss"]) == (1, 13_570_000_000, 11.813965)
    assert (row["gradient_norm"], row["flops_per_s_per_device"]) == (3.25, pytest.approx(1.36e12))


SINK = """\
[INFO] 2023-07-11 10:47:36,427 [callback.py:269] print_output_info: Epoch:[  1/  1], step:[    4/  125], loss:[2.244/2.244], \
time:507844.205 ms, lr:[0.], overflow cond: True, loss_scale: 268435460.0
[INFO] 2023-07-11 10:47:37,342 [callback.py:146] epoch_end: Per sink_size step time: 533756.177 ms, per step time: 133439.044 ms
[INFO] 2023-07-11 10:47:44,861 [callback.py:269] print_output_info: Epoch:[  1/  1], step:[    8/  125], loss:[2.499/2.499], \
time:7480.938 ms, lr:[0.], overflow cond: True, loss_scale: 16777216.0
"""


def test_a_sink_line_gives_the_time_of_one_step_and_how_many_it_is_the_mean_of(tmp_path):
    log = load(write(tmp_path, SINK)).frame("log")
    assert log["duration_ns"].iloc[0] == 133_439_044_000
    assert log["num_steps"].tolist() == [4, 4]


def test_a_sink_time_without_its_line_is_divided_by_the_sink_size_and_said_so(tmp_path):
    run = load(write(tmp_path, SINK))
    assert run.frame("log")["duration_ns"].iloc[1] == 7_480_938_000 // 4
    assert any("divided by 4" in note for note in run.notes)


def test_the_mean_of_an_epoch_does_not_replace_the_last_step(tmp_path):
    steps = "".join(f"Epoch:[  1/  1], step:[{step:5d}/    3], loss:[1.0/1.0], time:{step}00.000 ms\n" for step in (1, 2, 3))
    run = load(write(tmp_path, steps + "Per sink_size step time: 660.000 ms, per step time: 220.000 ms, avg loss: 1.0\n"))
    assert run.steps()["duration_ns"].tolist() == [100_000_000, 200_000_000, 300_000_000]


def test_steps_count_on_over_epochs(tmp_path):
    text = "{ Epoch:[  2/  2], step:[    1/   19], loss: 1.0, per_step_time: 10ms }\n"
    assert only_row(write(tmp_path, text))["step"] == 20


@pytest.mark.parametrize(
    ("statement", "facts"),
    [
        (
            "full batch is True,so global batch size will be changed: global_batch_size = batch_size * data_parallel * "
            "micro_batch_interleave_num = 8 * 4 * 1 = 32",
            {"global_batch_size": 32, "micro_batch_size": 8, "data_parallel_size": 4, "micro_batch_interleave_size": 1},
        ),
        (
            "Pipeline parallel was opened: pipeline_stages = 2, full batch is True, global_batch_size = batch_size * "
            "data_parallel * micro_batch_num * micro_batch_interleave_num = 1024 = 2 * 8 * 64 * 1).",
            {
                "global_batch_size": 1024,
                "micro_batch_size": 2,
                "data_parallel_size": 8,
                "num_micro_batches": 64,
                "micro_batch_interleave_size": 1,
                "pipeline_parallel_size": 2,
            },
        ),
        (
            "global_batch_size = batch_size_per_card * device_num * gradient_accumulation_steps = 16 = 2 * 8 * 1",
            {"global_batch_size": 16, "micro_batch_size": 2, "num_devices": 8},
        ),
        (
            "initial parallel_config: {'data_parallel': 8, 'model_parallel': 1, 'pipeline_stage': 2, 'use_seq_parallel': True}",
            {"data_parallel_size": 8, "tensor_parallel_size": 1, "pipeline_parallel_size": 2},
        ),
        (" 'device_num': 16,", {"num_devices": 16}),
    ],
    ids=["old order", "new order with pipeline", "per card", "dictionary", "dump"],
)
def test_settings_that_the_log_states_become_facts(tmp_path, statement, facts):
    run = load(write(tmp_path, f"INFO - {statement}\n{STEP % (1, 10)}"))
    assert {name: fact.value for name, fact in run.facts.items()} == facts
    assert all(fact.source.where.startswith("worker_0.log:1") for fact in run.facts.values())


def test_the_first_statement_of_a_setting_wins(tmp_path):
    run = load(write(tmp_path, f"'seq_length': 4096,\n'seq_length': 128,\n{STEP % (1, 10)}"))
    assert run.facts["seq_length"].value == 4096


def test_logs_of_several_ranks_are_one_run(tmp_path):
    for rank in range(3):
        write(tmp_path, STEP % (1, 100 + rank), f"msrun_log/worker_{rank}.log")
    write(tmp_path, STEP % (1, 105), "log/rank_5/info.log")
    run = load(tmp_path)
    assert run.ranks == (0, 1, 2, 5)
    assert run.frame("log", ranks=[5])["duration_ns"].tolist() == [105_000_000]


def test_of_two_logs_of_one_rank_the_longer_is_read_and_the_other_named(tmp_path):
    write(tmp_path, STEP % (1, 100), "log/rank_0/info.log")
    write(tmp_path, STEP % (1, 100) + STEP % (2, 90), "worker_0.log")
    run = load(tmp_path)
    assert len(run.frame("log")) == 2
    assert any(note.startswith("log/rank_0/info.log also holds steps of rank 0") for note in run.notes)


def test_a_step_printed_again_after_a_restart_keeps_its_last_time(tmp_path):
    run = load(write(tmp_path, "".join(STEP % pair for pair in ((1, 900), (2, 100), (3, 101), (2, 950), (3, 102)))))
    assert len(run.frame("log")) == 5
    assert run.steps()["duration_ns"].tolist() == [900_000_000, 950_000_000, 102_000_000]
    assert any("2 step(s) again" in note for note in run.notes)


def test_a_truncated_last_line_is_counted_and_the_rest_kept(tmp_path):
    text = STEP % (1, 100) + STEP % (2, 100)
    run = load(write(tmp_path, text + (STEP % (3, 100)).split("ms")[0]))
    assert len(run.frame("log")) == 2
    assert [(lost.what, lost.count) for lost in run.dropped] == [("step line cut off or mixed with another, without a time", 1)]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, len(STEP % (2, 1234)) + 1))
def test_wherever_a_log_is_cut_no_time_is_invented(tmp_path_factory, cut):
    folder = tmp_path_factory.mktemp("cut")
    run = load(write(folder, STEP % (1, 5678) + (STEP % (2, 1234))[:cut]))
    assert set(run.steps()["duration_ns"]) <= {5_678_000_000, 1_234_000_000}
    assert set(run.frame("log")["learning_rate"].dropna()) <= {1e-05}


def test_two_steps_glued_into_one_line_are_both_read(tmp_path):
    run = load(write(tmp_path, (STEP % (1, 100)).strip() + STEP % (2, 90)))
    assert run.steps()["duration_ns"].tolist() == [100_000_000, 90_000_000]


def test_windows_line_ends_binary_junk_and_other_encodings_do_no_harm(tmp_path):
    junk = b"\x00\xff\xfe\x80" * 300 + b"\r\n"
    text = junk + (STEP % (1, 100)).replace("\n", "\r\n").encode() + "训练".encode("gb18030") + b"\r\n" + (STEP % (2, 90)).encode()
    run = load(write(tmp_path, text))
    assert run.steps()["duration_ns"].tolist() == [100_000_000, 90_000_000]
    assert run.frame("log")["line"].tolist() == [2, 4]


def test_colour_codes_inside_a_line_are_ignored(tmp_path):
    text = (STEP % (1, 100)).replace("per_step_time:", "\x1b[32mper_step_time:\x1b[0m")
    assert only_row(write(tmp_path, text))["duration_ns"] == 100_000_000


def test_a_nan_loss_is_null_and_said_so(tmp_path):
    run = load(write(tmp_path, STEP.replace("9.5", "nan") % (7, 100)))
    assert run.frame("log")["loss"].isna().all()
    assert any("nan or inf in 1 step(s), first in step 7" in note for note in run.notes)


def test_a_negative_time_is_refused_and_counted(tmp_path):
    run = load(write(tmp_path, STEP % (1, -100) + STEP % (2, 90)))
    assert run.steps()["step"].tolist() == [2]
    assert [(lost.what, lost.count) for lost in run.dropped] == [("step line with a negative time", 1)]


def test_a_log_with_only_its_first_step_is_read(tmp_path):
    assert only_row(write(tmp_path, STEP % (1, 103_328)))["duration_ns"] == 103_328_000_000


def test_numbers_too_large_for_a_time_are_counted_not_wrapped(tmp_path):
    text = (STEP % (1, 10)).replace("10ms", "99999999999999999999ms") + STEP % (2, 90)
    run = load(write(tmp_path, text))
    assert run.steps()["step"].tolist() == [2]
    assert sum(lost.count for lost in run.dropped) == 1


def test_a_log_without_a_whole_step_says_what_was_looked_for(tmp_path):
    path = write(tmp_path, "{ Epoch:[  1/  2], step:[    1/   19], loss: 9.5\n")
    with pytest.raises(InputError, match=r"no step line with a time was found; looked for .*per_step_time"):
        load(path)


def test_unknown_wording_says_what_was_looked_for(tmp_path):
    path = write(tmp_path, "step 1 took 1752 ms\n")
    with pytest.raises(InputError, match=r"looked for MindFormers training log: .*per_step_time"):
        load(path)


def test_a_compressed_log_is_read_and_a_broken_archive_counted(tmp_path):
    whole = gzip.compress("".join(STEP % (step, 100) for step in range(1, 3001)).encode())
    assert len(load(write(tmp_path / "a", whole, "worker_0.log.gz")).frame("log")) == 3000
    run = load(write(tmp_path / "b", whole[: len(whole) // 2], "worker_0.log.gz"))
    assert 0 < len(run.frame("log")) < 3000
    assert any("ends early" in lost.what for lost in run.dropped)


def test_a_line_without_end_is_read_in_bounded_time_and_pieces(tmp_path):
    run = load(write(tmp_path, (STEP % (1, 10)) + "1" * 3_000_000 + " \n" + "9" * 2_000_000))
    assert run.steps()["step"].tolist() == [1]


def test_hostile_text_stays_data(tmp_path):
    run = load(write(tmp_path, f"<img src=x onerror=alert(1)> {STEP % (1, 10)}", "<img src=x onerror=alert(1)>_worker_3.log"))
    assert run.ranks == (3,)
    assert run.frame("coverage")["file"].tolist() == ["<img src=x onerror=alert(1)>_worker_3.log"]
