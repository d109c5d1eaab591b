"""Strategy search: processor seconds of a whole search, strategies evaluated a second, and what the predicted best plan loses.

    python -m benchmarks.plans.bench_search

The loss is measured on runs of data/reference/step_time.csv in which several plans of one model, batch and cluster were timed: how
much longer the plan that the search ranks first among those measured took than the fastest measured (top-1 regret). It is that of
benchmarks.prediction.bench_step_time, which takes the estimate of every row instead; where they differ, the search lost a plan.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pandas as pd

from perfkit.config.dialects.table import read_table
from perfkit.core import catalog
from perfkit.core.resources import data_folder
from perfkit.core.spec.model import ModelSpec
from perfkit.core.spec.optimizer import OptimizerSpec
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.workload import Workload
from perfkit.core.units import GIB
from perfkit.predict.calibration import calibration
from perfkit.predict.memory.settings import settings_for
from perfkit.predict.plans.search._search_columns import evaluate
from perfkit.predict.plans.search._search_space import space_of
from perfkit.predict.plans.search._strategy_plans import StrategyPlans
from perfkit.predict.plans.search.search import search_plans
from perfkit.predict.plans.search.search_scores import Scored

MANY = {
    "cp": (1, 2, 4, 8),
    "mbs": (1, 2, 3, 4, 6, 8, 12, 16),
    "shard": (0, 2, 4, 8, 16, 32, 64),
    "copies": (1, 2, 3),
    "vpp": (1, 2, 4, 5, 8, 10),
}
SIZES = {"tp": "tp", "pp": "pp", "mbs": "micro_batch"}


def main() -> None:
    """Print the three figures."""
    for device in ("A100-80GB-SXM", "Ascend-910B2"):
        plan = llama(device, 1024, 12 * 1024)
        search_plans(plan, devices=8)
        start = time.process_time()
        result = search_plans(plan, devices=1024)
        print(
            f"Llama2-70B on 1,024 {device}: {time.process_time() - start:.2f} s of one core for {result.searched:,} combinations, "
            f"{result.evaluated:,} that keep the rules, {result.feasible:,} that fit"
        )
    count, seconds = many_strategies()
    print(f"{count:,} strategies enumerated, with memory and step time: {count / seconds:,.0f} a second of one core\n")
    frame = regrets()
    print(f"{'source':16s}{'groups':>8s}{'plans':>8s}{'mean':>8s}{'median':>8s}{'worst':>8s}{'within 1 %':>12s}")
    for source, rows in frame.groupby("source"):
        lost = rows["regret"]
        print(
            f"{source!s:16s}{len(rows):8d}{rows['plans'].sum():8d}{lost.mean():8.1%}{lost.median():8.1%}{lost.max():8.1%}"
            f"{(lost <= 0.01).mean():12.0%}"
        )


def llama(device: str, devices: int, batch: int) -> Plan:
    """Llama2-70B with a batch of `batch` sequences of 4,096 tokens."""
    workload = Workload(seq_length=4096, micro_batch_size=1, global_batch_size=batch)
    return Plan(model=catalog.model("llama2-70b"), workload=workload, hardware=catalog.hardware_named(device))


def many_strategies() -> tuple[int, float]:
    """How many strategies of a large space keep the rules, and the processor seconds to evaluate them all, none pruned."""
    base = llama("Ascend-910B2", 1024, 12 * 1024)
    settings, known = settings_for(base), calibration("default")
    space = space_of(base, 1024, MANY, settings)
    start = time.process_time()
    scores = Scored().scores(StrategyPlans(base=base, space=space), settings, known)
    evaluate(scores, limit_bytes=np.inf, progress=None)
    seconds = time.process_time() - start
    assert not np.isnan(scores.seconds).any()
    return len(scores.strategies), seconds


def regrets() -> pd.DataFrame:
    """By group of measured plans: source, model, number of plans, and what the predicted best lost against the fastest."""
    frame = pd.read_csv(data_folder() / "reference" / "step_time.csv", low_memory=False)
    frame = frame[frame["source"].str.startswith("vtrain") & (frame["exclude"] == 0)]
    found = []
    for (source, model, *_), rows in frame.groupby(["source", "model", "n_devices", "global_batch", "seq_len"]):
        if len(rows) < 2:
            continue
        sizes = {name: sorted({int(value) for value in rows[column]}) for name, column in SIZES.items()}
        fixed = {"cp": (1,), "vpp": (1,), "zero": (0,), "sp": (0,), "recompute": ("full",)}
        candidates = search_plans(
            measured_plan(rows.iloc[0]), devices=int(rows["n_devices"].iloc[0]), choices={**sizes, **fixed}
        ).candidates
        measured = rows.rename(columns={"micro_batch": "mbs", "step_time_s": "measured_s"})
        joined = candidates.merge(measured[["dp", "tp", "pp", "mbs", "measured_s"]], on=["dp", "tp", "pp", "mbs"])
        regret = joined["measured_s"].iloc[0] / rows["step_time_s"].min() - 1
        found.append({"source": source, "model": model, "plans": len(rows), "regret": regret})
    return pd.DataFrame(found)


def measured_plan(row: pd.Series) -> Plan:
    """Model, batch, kernels and network of a measured row, on devices with room for every plan: only the order is asked for."""
    sizes = {"num_layers": "layers", "hidden_size": "hidden", "num_attention_heads": "heads", "num_key_value_heads": "kv_heads"}
    sizes |= {"head_size": "head_dim", "ffn_hidden_size": "ffn_hidden", "vocab_size": "vocab"}
    model = ModelSpec(**{name: int(row[column]) for name, column in sizes.items()}, gated_ffn=False, tied_embeddings=True)
    workload = Workload(
        seq_length=int(row["seq_len"]),
        micro_batch_size=1,
        global_batch_size=int(row["global_batch"]),
        dtype="float16",
        attention_kernel=str(row["attention_kernel"]),
    )
    (device,) = read_table(row.to_frame().T).plans.hardware.values
    device = replace(device, memory_bytes=1024 * GIB)
    return Plan(model=model, workload=workload, hardware=device, optimizer=OptimizerSpec(gradient_dtype="float16"))


if __name__ == "__main__":
    main()
