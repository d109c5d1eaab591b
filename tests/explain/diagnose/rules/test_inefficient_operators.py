"""Products against the roof of the device."""

from dataclasses import replace

import pytest

from perfkit.core.run import Fact
from perfkit.core.source import Source
from perfkit.explain.diagnose.rules.inefficient_operators import RULE
from tests.explain.diagnose.made import Training, changed, judged, lacks, stays_healthy

RUN = Training().run()


def recorded(size, device="NVIDIA A100-SXM4-80GB"):
    """The training on a device, with its product of 200 us of two square matrices."""
    shape = f"{size},{size}"
    is_product = RUN.tables["kernels"]["type"] == "MatMul"
    shapes = is_product.map({True: f"{shape};{shape}", False: None})
    types = is_product.map({True: "DT_BF16;DT_BF16", False: None})
    run = changed(RUN, "kernels", input_shapes=shapes, input_dtypes=types)
    return replace(run, facts={"device_name": Fact(value=device, source=Source("measured", "made"))})


def test_a_product_at_an_eighth_of_the_peak_is_named_with_what_thirty_percent_would_win():
    # 2 x 1570^3 FLOP in 200 us are 38.7 TFLOP/s, 12.4 % of 312.
    (found,) = judged(RULE, recorded(1570)).findings
    assert found.subject["operators"] == ("MatMul",)
    assert found.evidence["lowest_efficiency_ratio"] == pytest.approx(0.124, abs=0.002)
    assert found.cost_ns == pytest.approx(4 * 200_000 * (1 - 0.124 / 0.3), rel=0.05)


def test_a_product_at_seventy_percent_is_fine_and_a_small_one_cannot_be():
    assert stays_healthy(RULE, recorded(2800))["mean_efficiency_ratio"] == pytest.approx(0.70, abs=0.01)
    assert lacks(RULE, recorded(500)) == "shapes of large products in 16 bits"


def test_a_device_that_is_not_known_has_no_roof():
    assert lacks(RULE, recorded(1570, "Synthetic Accelerator")) == "the peak of the device"
