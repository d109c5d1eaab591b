"""Communication: what is sent, how fast, what is hidden and who waits (E31 to E37, E40)."""

from __future__ import annotations

from perfkit.core.spec.parallel import ParallelPlan
from perfkit.explain.collectives import bus_factor
from perfkit.predict.cost.communication import all_reduce_bytes, bytes_sent, gather_bytes
from perfkit.record.overlap import merge, overlap_ns, union
from perfkit.teach.models import named, plan_of
from perfkit.teach.worked import Draw, Group, Worked

MIB = 2**20
SEQ = 4096
COMPUTE_NS = ((0, 100), (150, 260), (300, 380))
RANKS = 8


def ring(draw: Draw) -> Worked:
    """E31: what a rank sends in a ring AllReduce."""
    n, size = draw["n"], draw["size"]
    return Worked({"ranks": n, "size_mib": size}, all_reduce_bytes(size, n), {"no_factor2": gather_bytes(size, n), "size": size})


def bus_bandwidth(draw: Draw) -> Worked:
    """E32: bandwidth of the links in an AllReduce."""
    n, size, us = draw["n"], draw["size"], draw["us"]
    algorithm = size * MIB / (us * 1e3)  # bytes/ns, which is GB/s
    factor = bus_factor("all_reduce", n)
    shown = {"op": "AllReduce", "ranks": n, "size_mib": size, "duration_us": us}
    wrong = {"alg_bw": algorithm, "gib": size / 1024 / (us / 1e6) * factor}
    return Worked(shown, algorithm * factor, wrong)


def tensor_parallel(draw: Draw) -> Worked:
    """E33: what a rank sends for one layer and micro-batch of tensor parallel training."""
    model, t, b = named(draw["model"]), draw["t"], draw["b"]
    plan = plan_of(model, s=SEQ, b=b, parallel=ParallelPlan(tensor_parallel_size=t))
    sent = bytes_sent(model, plan.workload, plan.parallel)
    right = float(sent.amount("tp")) / model.num_layers / plan.num_micro_batches / MIB
    wrong = {"forward_only": right / 2, "payload_only": right / bus_factor("all_reduce", t)}
    return Worked({"model": draw["model"], "s": SEQ, "b": b, "tp": t, "recompute": "none"}, right, wrong)


def gradient_sync(draw: Draw) -> Worked:
    """E34: one synchronization a step, not overlapped."""
    sync, micro_ms, micro = draw["sync_ms"], draw["micro_ms"], draw["micro"]
    shown = {"grad_sync_ms": sync, "micro_ms": micro_ms, "micro_batch_num": micro, "overlap": 0}
    return Worked(shown, 100 * sync / (micro * micro_ms + sync), {"no_accum": 100 * sync / (micro_ms + sync)})


def hidden(draw: Draw) -> Worked:
    """E35: hidden over all communication."""
    computing, exposed, overlapped, free = (draw[name] for name in ("computing", "exposed", "overlapped", "free"))
    shown = {"Computing_us": computing, "Communication_not_overlapped_us": exposed, "Overlapped_us": overlapped, "Free_us": free}
    share = 100 * overlapped
    wrong = {"of_step": share / (computing + exposed + free), "of_compute": share / computing}
    return Worked(shown, share / (overlapped + exposed), wrong)


def exposed(draw: Draw) -> Worked:
    """E36: communication outside of computing, with intervals merged."""
    o, w = draw["o"], draw["w"]
    calls = ((80 + o, 80 + o + w), (90 + o, 140 + o), (255, 310))
    computing, talking = (union(*zip(*spans, strict=True)) for spans in (COMPUTE_NS, calls))
    right = merge(computing, talking).total_ns - computing.total_ns
    wrong = {
        "sum_of_durations": sum(end - start for start, end in calls),
        "union_no_subtract": right + overlap_ns(computing, talking),
    }
    return Worked({"compute_ns": [*COMPUTE_NS], "comm_ns": [*calls]}, right, wrong)


def late_rank(draw: Draw) -> Worked:
    """E37: the rank that waits least is the one that all wait for."""
    slow, delay = draw["slow_rank"], draw["delay"]
    computing = [200 + 2 * rank % 3 + (delay if rank == slow else 0) for rank in range(RANKS)]
    waits = [1 if rank == slow else delay + 3 * rank % 5 for rank in range(RANKS)]
    longest = [rank for rank in range(RANKS) if waits[rank] == max(waits)]
    wrong = dict(zip(("longest_wait", "longest_wait_tie"), longest, strict=False))
    return Worked({"rank_compute_ms": computing, "rank_wait_ms": waits}, waits.index(min(waits)), wrong)


def wait_ratio(draw: Draw) -> Worked:
    """E40: waiting over the elapsed time."""
    wait, transit = draw["wait_us"], draw["transit_us"]
    shown = {"wait_us": wait, "transit_us": transit, "elapse_us": wait + transit}
    return Worked(shown, wait / (wait + transit), {"over_transit": wait / transit})


GROUP = Group(
    title="Communication",
    order=5,
    formulas={
        "E31": ring,
        "E32": bus_bandwidth,
        "E33": tensor_parallel,
        "E34": gradient_sync,
        "E35": hidden,
        "E36": exposed,
        "E37": late_rank,
        "E40": wait_ratio,
    },
)
