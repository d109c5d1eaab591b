"""What comes after the backward pass."""

from dataclasses import replace

import pandas as pd
import pytest

from perfkit.explain.diagnose import diagnose
from perfkit.explain.diagnose.rules import exposed_communication
from perfkit.explain.diagnose.rules.gradient_allreduce_tail import RULE
from perfkit.explain.ledger.causes import UPDATES
from perfkit.record.format import Sink
from tests.explain.diagnose.made import MS, Training, changed, healthy, judged, run_of, stays_healthy

LATE = Training(late=True).run()


def test_gradients_reduced_after_the_backward_pass_are_named_with_the_tail_they_make():
    (found,) = judged(RULE, LATE).findings
    assert "91 %" not in found.title
    assert "gradients that are reduced" in found.title
    assert found.evidence["reduction_ns"] == pytest.approx(4 * 320_000, rel=0.02)
    assert found.evidence["optimizer_ns"] == pytest.approx(200_000, rel=0.02)
    assert found.cost_ns == pytest.approx(7 / 8 * found.evidence["reduction_ns"], rel=0.05)


def test_gradients_that_are_a_little_more_than_half_of_the_tail_are_what_it_is_made_of():
    (found,) = judged(RULE, Training(late=True, layers=2, transfer_us=130).run()).findings
    assert found.evidence["largest_part_share"] == pytest.approx(2 * 150 / (2 * 150 + 200), rel=0.01)
    assert "gradients that are reduced" in found.title


def test_the_parts_sum_to_the_tail():
    for run in (LATE, healthy()):
        result = judged(RULE, run)
        evidence = (result.findings or result.healthy)[0].evidence
        assert sum(evidence[f"{name}_ns"] for name in ("reduction", "optimizer", "other", "idle")) == pytest.approx(
            evidence["tail_ns"]
        )


def test_it_is_told_once_where_communication_is_found_exposed_anyway():
    found = diagnose(LATE, only=[RULE, exposed_communication.RULE]).findings
    assert [finding.rule for finding in found] == ["exposed-communication"]
    assert "gradient-allreduce-tail" in found[0].next


def test_a_step_trace_states_the_tail_without_its_parts():
    for tail_ms, told in ((4, 0), (20, 1)):
        sink = Sink()
        sink.add("steps", rank=0, step=[1, 2, 3], duration_ns=100 * MS)
        sink.add("step_parts", rank=0, step=[1, 2, 3], path="computing/tail", amount_ns=tail_ms * MS)
        result = judged(RULE, run_of(sink))
        assert len(result.findings) == told
        assert (result.findings or result.healthy)[0].evidence == {"tail_ns": tail_ms * MS, "tail_share": tail_ms / 100}


def test_an_inference_has_no_tail():
    run = Training(extra=(("Norm", "AI_VECTOR_CORE", 10.0),)).run()
    rows = run.tables["kernels"]
    forward = rows[~rows["type"].isin(["Adam", "hcom_allReduce_", "FlashAttentionGrad", "MatMulGrad", "NormGrad"])]
    steps = run.tables["steps"].assign(computing_ns=None)
    cut = type(run)(name="x", kind="measured", format="made", tables={**run.tables, "kernels": forward, "steps": steps})
    assert stays_healthy(RULE, cut)["optimizer_ns"] == 0


def test_a_lambda_of_c_plus_plus_is_no_lamb_optimizer():
    lambdas = "void elementwise_kernel_with_index<int, at::native::arange_cuda_out(Scalar const&)::{lambda()#1}>"
    assert UPDATES.search(lambdas) is None
    assert all(
        UPDATES.search(name)
        for name in ("LambApplyOptimizerAssign", "fused_lamb_cuda", "FusedAdamMathFunctor", "aclnnForeachAddListV2_ForeachAddList")
    )


def test_of_one_rank_alone_reductions_that_may_be_waiting_have_no_price():
    run = Training(late=True, transfer_us=3000.0).run()
    alone = replace(run, tables={name: rows[rows["rank"] == 0] for name, rows in run.tables.items()})
    alone = changed(alone, "collectives", transit_ns=pd.array([pd.NA] * len(alone.tables["collectives"]), dtype="Int64"))
    (whole,), (one,) = (judged(RULE, which).findings for which in (run, alone))
    assert whole.cost_ns > 0
    assert (one.cost_ns, one.severity) == (None, "medium")
    assert one.title.endswith(", or ranks that come late and were not recorded")
