"""Products in float32."""

from dataclasses import replace

import pytest

from perfkit.core.run import Fact
from perfkit.core.source import Source
from perfkit.explain.diagnose.rules.fp32_hot_operator import RULE
from tests.explain.diagnose.made import changed, healthy, judged, lacks, stays_healthy


def typed(dtypes):
    rows = healthy().tables["kernels"]
    return changed(healthy(), "kernels", input_dtypes=rows["type"].astype("object").map(dtypes), input_shapes="4096,4096;4096,4096")


def test_products_in_float32_are_named_and_would_take_half_of_their_time():
    (found,) = judged(RULE, typed({"MatMul": "FLOAT;FLOAT", "MatMulGrad": "DT_BF16;DT_BF16"})).findings
    assert found.subject["operators"] == ("MatMul",)
    assert found.cost_ns == pytest.approx(0.5 * 4 * 200_000, rel=0.05)


def test_products_in_sixteen_bits_and_norms_in_float32_are_fine():
    evidence = stays_healthy(RULE, typed({"MatMul": "DT_BF16;DT_BF16", "Norm": "FLOAT", "Adam": "FLOAT"}))
    assert evidence["float32_products_share"] == 0


def test_without_types_it_is_not_measured():
    assert lacks(RULE, healthy()) == "types of the inputs of products"


@pytest.mark.parametrize(
    ("device", "reader", "told"),
    [("NVIDIA A100-SXM4-80GB", "kineto", True), ("Tesla V100-SXM2-32GB", "kineto", False), ("Ascend910B2", "ascend-text", False)],
)
def test_tf32_is_advised_where_the_device_and_the_framework_have_it(device, reader, told):
    facts = {"device_name": Fact(value=device, source=Source("measured", "made"))}
    run = replace(typed({"MatMul": "FLOAT;FLOAT"}), facts=facts, format=reader)
    (found,) = judged(RULE, run).findings
    assert any("set_float32_matmul_precision" in action for action in found.actions) is told
