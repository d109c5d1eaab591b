"""Megatron and MindSpeed logs: four public runs with known values, and what damaged logs leave."""

from pathlib import Path

import pandas as pd
import pytest

from perfkit.core import robust
from perfkit.core.errors import InputError
from perfkit.explain.training_log import step_statistics
from perfkit.record.load import load

ROOT = Path(__file__).parents[3]
SAMPLE = ROOT / "data/traces/logs/meg_gpt2_base_n4_dp1_tp4_pp4-1809579.log"
FOLDER = ROOT / "tests/data/traces/logs/megatron"
LINE = (
    " iteration {step:8d}/    1000 | consumed samples: 40 | elapsed time per iteration (ms): {ms} | learning rate: 1.500E-04 | "
    "global batch size:     4 | lm loss: 3.282511E+01 | loss scale: 16384.0 | grad norm: 9.804 | "
    "number of skipped iterations:   {skipped} | number of nan iterations:   0 |\n"
)


def line(step: int, ms: object, skipped: int = 0) -> str:
    return LINE.format(step=step, ms=ms, skipped=skipped)


def write(folder: Path, text: str | bytes, name: str = "train.log") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    ("path", "lines", "iterations", "first_ns", "median_ns"),
    [
        (FOLDER / "meg_ds_3d_gpt2_perf_n16-ds-on.log", 49, (1, 49), 159_778_900_000, 137_103_550_000),
        (FOLDER / "meg_gpt2_base_n16_dp1_tp4_pp16-1809577.log", 9, (10, 90), 5_837_900_000, 2_740_050_000),
        (SAMPLE, 20, (10, 200), 2_152_200_000, 1_380_600_000),
        (FOLDER / "meg_gpt2_perf_n16.log", 3, (1, 3), 155_483_800_000, 128_960_150_000),
    ],
    ids=["deepspeed 16 nodes", "base 16 nodes", "base 4 nodes", "perf 16 nodes"],
)
def test_published_runs_give_their_known_values(path, lines, iterations, first_ns, median_ns):
    run = load(path)
    log = run.frame("log")
    assert run.format == "megatron-log"
    assert len(log) == len(run.steps()) == lines
    assert (log["step"].iloc[0], log["step"].iloc[-1]) == iterations
    assert log["duration_ns"].iloc[0] == first_ns
    assert len(robust.warm_up(log)) == (first_ns > (1 + robust.WARM_UP_EXCESS) * median_ns)
    assert step_statistics(log, 1).median_ns == median_ns
    assert run.dropped == ()


def test_the_argument_dump_becomes_facts_with_the_names_of_the_specs():
    facts = {name: fact.value for name, fact in load(SAMPLE).facts.items()}
    expected = {
        "num_layers": 40,
        "hidden_size": 6144,
        "ffn_hidden_size": 24576,
        "num_attention_heads": 32,
        "head_size": 192,
        "vocab_size": 50688,
        "seq_length": 1024,
        "micro_batch_size": 1,
        "global_batch_size": 4,
        "num_devices": 16,
        "data_parallel_size": 1,
        "tensor_parallel_size": 4,
        "pipeline_parallel_size": 4,
        "dtype": "float16",
    }
    assert {name: facts[name] for name in expected} == expected
    assert type(facts["num_layers"]) is int
    assert "virtual_pipeline_parallel_size" not in facts


def test_a_fact_says_its_line():
    fact = load(SAMPLE).facts["hidden_size"]
    number = int(fact.source.where.split(":")[1].split(",")[0])
    assert SAMPLE.read_text().splitlines()[number - 1].split() == ["hidden_size", ".....................................", "6144"]


def test_the_first_statement_wins_over_the_dump_of_another_library():
    assert load(FOLDER / "meg_ds_3d_gpt2_perf_n16-ds-on.log").facts["num_devices"].value == 64


def test_elapsed_time_is_the_mean_since_the_last_line():
    assert load(SAMPLE).frame("log")["num_steps"].tolist() == [10] * 20
    assert load(FOLDER / "meg_gpt2_perf_n16.log").frame("log")["num_steps"].tolist() == [1] * 3


def test_after_a_restart_the_interval_is_known_again(tmp_path):
    text = "  log_interval ........... 10\n" + "".join(line(step, 100) for step in (10, 20, 25, 20, 30))
    assert load(write(tmp_path, text)).frame("log")["num_steps"].tolist() == [10, 10, 5, 10, 10]


def test_a_single_line_without_interval_says_that_its_mean_is_unknown(tmp_path):
    run = load(write(tmp_path, line(1010, 100)))
    assert run.frame("log")["num_steps"].tolist() == [1]
    assert any("how many" in note for note in run.notes)


def test_missing_fields_are_null_and_skipped_iterations_are_overflows():
    log = load(FOLDER / "meg_gpt2_base_n16_dp1_tp4_pp16-1809577.log").frame("log")
    assert log["loss"].isna().tolist()[:2] == [True, False]
    assert log["gradient_norm"].isna().tolist()[:3] == [True, True, False]
    assert log["overflow"].tolist()[:4] == [True, True, True, False]
    assert log["global_batch_size"].tolist() == [4] * 9


def test_the_older_key_of_the_loss_is_read():
    assert load(FOLDER / "meg_ds_3d_gpt2_perf_n16-ds-on.log").frame("log")["loss"].iloc[0] == pytest.approx(12.44238)


def test_newer_lines_have_a_time_stamp_and_throughput(tmp_path):
    text = (
        " [2025-04-13 23:41:12] iteration        5/     100 | consumed samples: 10240 | elapsed time per iteration (ms): 15800.0 | "
        "throughput per GPU (TFLOP/s/GPU): 490.0 | tokens/sec/GPU: 74994 | lm loss: 1.344240E+01 |\n"
    )
    row = load(write(tmp_path, text)).frame("log").to_dict("records")[0]
    assert row["timestamp_ns"] == pd.Timestamp("2025-04-13 23:41:12", tz="UTC").value
    assert row["flops_per_s_per_device"] == pytest.approx(490e12)
    assert row["tokens_per_s_per_device"] == 74994
    assert row["duration_ns"] == 15_800_000_000


def test_elapsed_time_in_seconds_and_current_with_mean_are_read(tmp_path):
    text = (
        " iteration 1/ 10 | elapsed time per iteration (s): 1.5 | TFLOPs: 120.5 |\n"
        "[rank-7/8] : iteration 2/ 10 | elapsed time per iteration (ms): 13100.0/13240.9 | lm loss: 4.1E-03 |\n"
    )
    run = load(write(tmp_path, text))
    assert run.steps()["duration_ns"].tolist() == [1_500_000_000, 13_100_000_000]
    assert run.frame("log")["flops_per_s_per_device"].iloc[0] == pytest.approx(120.5e12)


def test_a_line_glued_behind_memory_of_another_rank_is_read(tmp_path):
    glued = "[Rank 7] (after 20 iterations) memory (MB) | allocated: 21633.08 | max reserved: 29316.0"
    run = load(write(tmp_path, glued + line(20, "100.5") + glued + glued + "\n"))
    assert run.steps()["duration_ns"].tolist() == [100_500_000]
    assert run.frame("log")["step"].tolist() == [20]


def test_cut_and_negative_lines_are_counted(tmp_path):
    run = load(write(tmp_path, line(1, 100) + line(2, -5) + line(3, 100)[:60] + "\n" + line(4, 101)[:90]))
    assert run.steps()["step"].tolist() == [1]
    assert {lost.what: lost.count for lost in run.dropped} == {
        "iteration line cut off or mixed with another, without a time": 2,
        "step line with a negative time": 1,
    }


def test_junk_windows_ends_and_foreign_bytes_do_no_harm(tmp_path):
    text = (
        b"\x00\xff\x80\r\n"
        + line(1, 100).replace("\n", "\r\n").encode()
        + b"caf\xe9\r\n"
        + line(2, "nan").encode()
        + line(3, 90).encode()
    )
    run = load(write(tmp_path, text))
    assert run.steps()["step"].tolist() == [1, 3]
    assert sum(lost.count for lost in run.dropped) == 1


def test_a_log_that_ended_before_its_first_iteration_says_what_was_looked_for(tmp_path):
    path = write(tmp_path, "using world size: 64, data-parallel-size: 1, tensor-model-parallel size: 4\n")
    with pytest.raises(InputError, match=r"no iteration line with a time was found; looked for .*elapsed time per iteration"):
        load(path)


def test_unknown_wording_says_what_was_looked_for(tmp_path):
    with pytest.raises(InputError, match=r"looked for Megatron or MindSpeed training log: .*elapsed time per iteration"):
        load(write(tmp_path, "epoch 1 done in 5 s\n"))


def test_skipped_iterations_are_counted_beside_the_steps_in_which_their_time_counts(tmp_path):
    run = load(write(tmp_path, line(1, 100) + line(2, 100, skipped=2) + line(3, 100) + line(4, 100, skipped=1)))
    assert [note for note in run.notes if "skips" in note] == [
        "train.log skips 3 iteration(s), first in step 2; their time counts, and they learn nothing"
    ]
    assert not any("skips" in note for note in load(write(tmp_path, line(1, 100) + line(2, 100), "other.log")).notes)


def test_facts_of_a_log_that_was_left_out_are_not_mixed_in(tmp_path):
    write(tmp_path, "  hidden_size ......... 1024\n" + line(1, 100) + line(2, 100), "a.log")
    write(tmp_path, "  hidden_size ......... 2048\n  seq_length ......... 4096\n" + line(1, 100), "b.log")
    run = load(tmp_path)
    assert run.facts["hidden_size"].value == 1024
    assert "seq_length" not in run.facts
    assert any(note.startswith("b.log also holds steps") for note in run.notes)


def test_arguments_in_the_log_of_another_rank_of_the_job_are_used(tmp_path):
    write(tmp_path, "using world size: 8\n  hidden_size ......... 1024\n", "rank_0.log")
    write(tmp_path, line(1, 100), "rank_7.log")
    run = load(tmp_path)
    assert run.facts["hidden_size"].value == 1024
    assert run.steps()["rank"].tolist() == [7]
