"""Step times of llm-analysis for the rows of data/reference/step_time.csv, to compare with.

    python benchmarks/prediction/llm_analysis_rows.py OUT.csv

Runs with the Python of an environment that has llm-analysis (`pip install llm-analysis`, version 0.2.2 was compared) and needs
nothing of perfkit. The tool is run as it ships: full peak, full link rates. Rows that it refuses are left out.
"""

from __future__ import annotations

import csv
import logging
import sys
import time
from pathlib import Path

from llm_analysis.analysis import ActivationRecomputation, DSZeRO, LLMAnalysis
from llm_analysis.config import GPUConfig, ModelConfig, ParallelismConfig

REFERENCE = Path(__file__).resolve().parents[2] / "data" / "reference"
RECOMPUTE = {"none": 0, "selective": 1, "full": 2}
GIGA = 1e9


def main(target: str) -> None:
    """Predict every scored row and write `row_id`, `step_time_s`."""
    logging.disable(logging.CRITICAL)
    with (REFERENCE / "accelerators.csv").open(encoding="utf-8") as file:
        devices = {row["accelerator"]: row for row in csv.DictReader(file)}
    with (REFERENCE / "step_time.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["exclude"] != "1"]
    started, found, refused = time.process_time(), [], 0
    for row in rows:
        try:
            found.append((row["row_id"], step_s(row, devices[row["accelerator"]])))
        except (AssertionError, KeyError, ValueError, ZeroDivisionError):
            refused += 1
    spent = time.process_time() - started
    with Path(target).open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("row_id", "step_time_s"), *found])
    print(f"{len(found)} rows predicted, {refused} refused; {len(found) / spent:,.0f} plans/s")


def step_s(row: dict[str, str], device: dict[str, str]) -> float:
    """Seconds of one step."""
    data, tensor, pipeline = (int(float(row[name] or 1)) for name in ("dp", "tp", "pp"))
    gated = row["activation"] == "swiglu"
    tool = LLMAnalysis(_model(row), _gpu(device), parallelism_config=ParallelismConfig(tensor, pipeline, data))
    found = tool.training(
        batch_size_per_gpu=int(float(row["micro_batch"])),
        global_batch_size=int(float(row["global_batch"])),
        seq_len=int(float(row["seq_len"])),
        activation_recomputation=ActivationRecomputation(RECOMPUTE[row["recompute"]]),
        ds_zero=DSZeRO(int(float(row["zero_stage"] or 0))),
        flash_attn=row["attention_kernel"] == "flash",
        mlp_gated_linear_units=gated,
    )
    return float(found["latency_per_iter"])


def _model(row: dict[str, str]) -> ModelConfig:
    heads = int(float(row["heads"]))
    return ModelConfig(
        name=row["row_id"],
        num_layers=int(float(row["layers"])),
        n_head=heads,
        hidden_dim=int(float(row["hidden"])),
        vocab_size=int(float(row["vocab"])),
        max_seq_len=int(float(row["seq_len"])),
        num_key_value_heads=int(float(row["kv_heads"] or heads)),
        ffn_embed_dim=int(float(row["ffn_hidden"])),
    )


def _gpu(device: dict[str, str]) -> GPUConfig:
    return GPUConfig(
        name=device["accelerator"],
        mem_per_GPU_in_GB=float(device["hbm_bytes"]) / GIGA,
        hbm_bandwidth_in_GB_per_sec=float(device["hbm_bytes_per_s"]) / GIGA,
        intra_node_bandwidth_in_GB_per_sec=float(device["intra_node_bytes_per_s_per_direction"]) / GIGA,
        intra_node_min_message_latency=8e-6,
        peak_fp16_TFLOPS=float(device["fp16_flop_per_s"]) / 1e12,
        inter_node_bandwidth_in_GB_per_sec=float(device["inter_node_bytes_per_s_per_device"]) / GIGA,
    )


if __name__ == "__main__":
    main(sys.argv[1])
