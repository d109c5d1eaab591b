"""Communication that could go."""

from dataclasses import replace

import pytest

from perfkit.core.run import Run
from perfkit.explain.diagnose.rules.avoidable_communication import RULE
from perfkit.record.format import Sink
from tests.explain.diagnose.made import US, judged, lacks, run_of, stays_healthy

MIB = 2**20
STEPS = 4


def made(program, label):
    """A run of two ranks of one group that both do `program`, (name, length in us, bytes or None for kernels), in every step."""
    sink = Sink()
    events, steps, now = [], [], 0
    for step in range(1, STEPS + 1):
        begin = now
        for name, length_us, size in program:
            events.append((step, name, now, round(length_us * US), size))
            now += round(length_us * US) + 5 * US
        steps.append(now - begin)
    step, name, start, length, _ = (list(column) for column in zip(*events, strict=True))
    sent = [event for event in events if event[4] is not None]
    for rank in (0, 1):
        sink.add("groups", rank=rank, group="g", label=label, members="0,1")
        kinds = ["computing" if event[4] is None else "communication" for event in events]
        sink.add("kernels", rank=rank, step=step, name=name, type=name, kind=kinds, start_ns=start, duration_ns=length)
        sink.add(
            "collectives", rank=rank, step=[event[0] for event in sent], name=[f"{event[1]}_{event[2]}" for event in sent],
            operation=[event[1] for event in sent], group="g", group_size=2, start_ns=[event[2] for event in sent],
            duration_ns=[event[3] for event in sent], bytes=[event[4] for event in sent],
        )  # fmt: skip
        sink.add("steps", rank=rank, step=list(range(1, STEPS + 1)), duration_ns=steps, computing_ns=steps, free_ns=0)
    return run_of(sink)


FORWARD = (("Embedding", 50, None), ("MatMul", 500, None), ("CrossEntropyLoss", 50, None), ("MatMulGrad", 900, None))
REDUCED = tuple(("all_reduce", 200, size * MIB) for size in (16, 16, 8))


def test_gradients_that_every_micro_batch_reduces_cost_all_reductions_but_one():
    (found,) = judged(RULE, made((*FORWARD, *REDUCED) * 4, "dp")).findings
    assert "every micro batch" in found.title
    assert found.evidence["avoidable_share"] == pytest.approx(3 / 4)
    assert found.cost_ns == pytest.approx(0.75 * 12 * 200 * US, rel=0.05)


def test_gradients_reduced_after_the_last_micro_batch_are_needed():
    assert stays_healthy(RULE, made((*FORWARD * 4, *REDUCED), "dp"))["reductions_in_every_micro_batch_a_rank_and_step"] == 0


def test_gathered_activations_that_are_cut_at_once_are_named_but_weights_are_not():
    layer = (("MatMul", 300, None), ("all_gather", 150, 32 * MIB), ("StridedSlice", 20, None), ("MatMul", 300, None))
    (found,) = judged(RULE, made(layer * 6, "tp")).findings
    assert found.cost_ns == pytest.approx(6 * 150 * US, rel=0.05)
    stays_healthy(RULE, made(layer * 6, "dp"))
    stays_healthy(RULE, made((("MatMul", 300, None), ("all_gather", 150, 32 * MIB), ("MatMul", 300, None)) * 6, "tp"))


def test_tensor_parallel_reductions_in_a_row_could_be_one():
    twice = (("MatMul", 300, None), ("all_reduce", 100, 16 * MIB), ("all_reduce", 100, 16 * MIB), ("Norm", 40, None))
    (found,) = judged(RULE, made(twice * 5, "tp")).findings
    assert "5 tensor parallel" in found.title
    stays_healthy(RULE, made((("MatMul", 300, None), ("all_reduce", 100, 16 * MIB), ("Norm", 40, None)) * 5, "tp"))


def test_without_the_purpose_of_groups_it_is_not_measured():
    run = made((*FORWARD, *REDUCED), "dp")
    unnamed: Run = replace(run, tables={name: rows for name, rows in run.tables.items() if name != "groups"})
    assert lacks(RULE, unnamed) == "what the process groups are for"
