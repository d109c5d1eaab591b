"""Communication is cut into many small messages, and their latency adds up.

What is measured: messages of a rank below 4 MiB of which latency is a large part: the rest of the transfer where the profiler
states the time in which data moved, or what their time is longer than that of the same bytes in large messages of groups of that
size, or at the bandwidth expected of the device's links, or what messages take that have hardly any bytes. A step has at least
sixteen of them. The cost is what a step wins with as few messages as buckets of 25 MiB leave; what is hidden behind kernels costs
nothing.

What to do: larger buckets for gradients (all_reduce_fusion_config, bucket_cap_mb), flat buffers, fewer but larger all-gathers.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from perfkit.core.errors import NotMeasuredError
from perfkit.core.texts import say
from perfkit.core.units import MIB, NS_PER_S
from perfkit.explain.collectives import bus_factor
from perfkit.explain.diagnose import device, hidden, work
from perfkit.explain.diagnose.advice import Action, fitting
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.collecting import COMMUNICATION_BY
from perfkit.explain.diagnose.rule import Finding, Rule, Threshold, Verdict
from perfkit.explain.diagnose.thresholds import LEAST_SHARE

SMALL_MESSAGE = Threshold(
    name="small-message",
    value=4 * 2**20,
    unit="bytes",
    origin="chosen: 4 MiB take 0.1 ms at 40 GB/s, ten times the latency of a collective; 1 MiB is certainly small",
)
LATENCY_SHARE = Threshold(
    name="latency-share",
    value=0.3,
    unit="share of the time of a message",
    origin="chosen: of a message that waits for latency this long, twice the size costs 1.7 times the time",
)
SMALL_COUNT = Threshold(
    name="small-count",
    value=16.0,
    unit="small messages a rank and step",
    origin="chosen: healthy bundled recordings have up to 14 a step, such as norms and losses",
)

TINY_BYTES = 4096
"""Messages of this size and less are nothing but latency."""
STATED = 0.05
"""A stated latency of less than this share of the transfer is none: the recording counts it as moving."""
BUCKET_BYTES = 25 * MIB
"""The usual size of a bucket of gradients (bucket_cap_mb of DistributedDataParallel)."""
ACTIONS: tuple[Action, ...] = (
    {
        "mindspore": "use larger buckets for gradients: "
        'set_auto_parallel_context(comm_fusion={"allreduce": {"mode": "size", "config": 64}}), in MB',
        "megatron": "use larger buckets for gradients: --ddp-bucket-size 40000000, in parameters, or leave it out",
        "torch": "use larger buckets for gradients: DistributedDataParallel(bucket_cap_mb=25) and more; with FSDP whole layers",
    },
    "send flat buffers instead of single tensors",
)


def check(case: Case) -> Verdict:
    """Messages whose time is mostly latency."""
    rows = case.operations
    rows = rows[~rows["operation"].isin(("send", "receive", "send_receive", "barrier")) & rows["transfer_ns"].notna()]
    if rows.empty or rows["bytes"].isna().all():
        raise NotMeasuredError("sizes and times of messages", how_to_collect=COMMUNICATION_BY)
    latency = _latency_ns(case, rows)
    transfer = rows["transfer_ns"].astype("float64").to_numpy()
    small = (rows["bytes"].fillna(0) <= case.limit(SMALL_MESSAGE)).to_numpy(dtype=bool)
    small &= (transfer > 0) & (latency > 0) & (latency >= case.limit(LATENCY_SHARE) * transfer)
    chosen = rows[small]
    members = case.members[case.members["instance"].isin(chosen["instance"])]
    steps = max(1, len(case.step_numbers))
    per_rank = members.groupby("rank").size() / steps
    count = float(per_rank.max()) if len(per_rank) else 0.0
    evidence = {
        "small_messages_a_rank_and_step": count,
        "small_messages_time_share": float(transfer[small].sum() / transfer.sum()) if transfer.sum() else 0.0,
    }
    if count < case.limit(SMALL_COUNT):
        return Verdict((), evidence)
    gain = latency[small] * (1.0 - 1.0 / _fused(chosen))
    saved = {int(number): float(amount) for number, amount in zip(chosen["instance"], gain, strict=True)}
    if case.replay is not None:
        nothing = pd.DataFrame({name: pd.Series(dtype="int64") for name in work.COLUMNS})
        cost_ns = work.won_ns(case, nothing, faster_ns=saved)
    else:
        exposed_ns = hidden.exposed_ns(case, members) if case.run.has("kernels") else float(transfer[small].sum()) / steps
        cost_ns = round(exposed_ns * sum(saved.values()) / float(transfer[small].sum()))
    if cost_ns < case.limit(LEAST_SHARE) * (case.step_ns or 1):
        return Verdict((), {**evidence, "cost_ns": cost_ns})
    evidence |= {"latency_ns": float(np.median(latency[small])), "median_bytes": float(chosen["bytes"].median())}
    finding = Finding(
        rule=RULE.name,
        title=say(
            "{small_messages_a_rank_and_step} small messages a rank and step, of {median_bytes} in the median, are mostly latency",
            **evidence,
        ),
        subject={"groups": tuple(sorted({str(group) for group in chosen["group"].dropna().unique()})[:8])},
        evidence=evidence,
        actions=fitting(case, ACTIONS),
        cost_ns=cost_ns,
        next=("13_communication",),
        part="communication",
    )
    return Verdict((finding,), evidence)


def _fused(rows: pd.DataFrame) -> np.ndarray:
    """By message how many like it a bucket holds, of those that its group sends in a step."""
    fitting = BUCKET_BYTES / rows["bytes"].astype("float64").clip(lower=1.0)
    keys = [rows[name].astype("object").fillna("") for name in ("group", "operation", "step")]
    together = rows.groupby(keys)["instance"].transform("size")
    fused: np.ndarray = fitting.clip(upper=together, lower=1.0).to_numpy(dtype=np.float64)
    return fused


def _latency_ns(case: Case, rows: pd.DataFrame) -> np.ndarray:
    """What of each transfer is no moving of data.

    The larger of two: what the stated time of moving leaves (some recordings count latency as moving), and what is left by the
    bandwidth of large messages of groups of that size, or, without such, by what the device's links are expected to reach. Where
    none of these says it: what messages take that have hardly any bytes, or what the bandwidth of all large messages leaves.
    """
    moved = case.members.groupby("instance")["transit_ns"].median().reindex(rows["instance"]).astype("float64").to_numpy()
    transfer = rows["transfer_ns"].astype("float64")
    sizes = rows["bytes"].astype("float64")
    factors = {pair: bus_factor(*pair) for pair in set(_kinds(rows))}
    on_links = sizes * [factors[pair] for pair in _kinds(rows)]
    rate = (on_links / transfer.where(transfer > 0)).where(sizes > case.limit(SMALL_MESSAGE))
    expected = (
        rate.groupby(rows["group_size"])
        .transform("median")
        .fillna(pd.Series(device.expected_bytes_per_s(case, rows) / NS_PER_S, index=rows.index))
    )
    stated = (transfer - pd.Series(moved, index=rows.index)).fillna(0.0)
    told = (transfer - on_links / expected).where(expected.notna() | (stated < STATED * transfer), stated)
    tiny = transfer.where((sizes <= TINY_BYTES) & (transfer > 0))
    least = tiny.groupby(rows["group_size"]).transform("median").fillna(tiny.median())
    by_all = transfer - on_links / rate.median()
    # No message is all latency: its bytes move no faster than large ones do.
    latency = told.fillna(least.where(~(least > by_all), by_all)).fillna(by_all).fillna(0.0)
    return np.asarray(np.minimum(np.maximum(stated, latency.clip(lower=0.0)), transfer), dtype=np.float64)


def _kinds(rows: pd.DataFrame) -> list[tuple[str, int]]:
    """Operation and size of the group of every row."""
    sizes = rows["group_size"].fillna(0).astype("int64")
    return [(str(name), int(size)) for name, size in zip(rows["operation"], sizes, strict=True)]


RULE = Rule(
    name="small-messages",
    title="Many small messages",
    needs=frozenset({"collectives"}),
    how_to_collect=COMMUNICATION_BY,
    thresholds=(SMALL_MESSAGE, LATENCY_SHARE, SMALL_COUNT),
    check=check,
)
