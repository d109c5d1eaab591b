"""How much of the peak is used."""

from dataclasses import replace

import pytest

from perfkit.core.run import Fact
from perfkit.core.source import Source
from perfkit.explain.diagnose.rules.hfu_low import RULE
from tests.explain.diagnose.made import Training, added, changed, judged, lacks, stays_healthy

RUN = Training().run()


def on(run, device="A100-80GB-SXM"):
    return replace(run, facts={"device_name": Fact(value=device, source=Source("measured", "made"))})


def logged(flops_per_s):
    row = {"rank": 0, "step": 1, "line": 1, "num_steps": 1, "duration_ns": 10**9, "flops_per_s_per_device": flops_per_s}
    return on(added(RUN, log=[row]))


def test_a_rate_of_a_tenth_of_the_peak_is_named_without_a_cost_of_its_own():
    (found,) = judged(RULE, logged(31.2e12)).findings
    assert found.evidence["hfu"] == pytest.approx(0.1)
    assert (found.cost_ns, found.severity) == (None, "low")


def test_what_guides_call_good_is_fine():
    assert stays_healthy(RULE, logged(160e12))["hfu"] > 0.5


def test_shapes_of_all_products_tell_it_too():
    # Four products of 2 x 4096^3 FLOP forward, and as many backward, in a step of about 6.2 ms.
    products = RUN.tables["kernels"]["type"].isin(["MatMul", "MatMulGrad"])
    shaped = products.map({True: "4096,4096;4096,4096", False: None})
    typed = products.map({True: "DT_BF16;DT_BF16", False: None})
    run = on(
        changed(
            RUN,
            "kernels",
            input_shapes=shaped,
            input_dtypes=typed,
            type=RUN.tables["kernels"]["type"]
            .astype("object")
            .replace({"MatMulGrad": "MatMulV2", "FlashAttention": "Other", "FlashAttentionGrad": "Other"}),
        )
    )
    step_s = RUN.steps()["duration_ns"].mean() / 1e9
    result = judged(RULE, run)
    evidence = (result.findings or result.healthy)[0].evidence
    assert evidence["device_flops_per_s"] == pytest.approx(8 * 2 * 4096**3 / step_s, rel=0.02)


def test_without_a_peak_or_a_rate_it_is_not_measured():
    assert lacks(RULE, RUN) == "the peak of the device"
    assert lacks(RULE, on(RUN)) == "operations of a step"
