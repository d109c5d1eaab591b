"""Conversions that take a noticeable part of the step."""

import pytest

from perfkit.explain.diagnose.kernels import CONVERSIONS
from perfkit.explain.diagnose.rules.excess_casts import RULE
from tests.explain.diagnose.made import Training, judged, won_ns


def test_conversions_are_named_with_what_they_cost():
    run = Training(extra=(("Cast", "AI_VECTOR_CORE", 60.0), ("Cast", "AI_VECTOR_CORE", 60.0))).run()
    (found,) = judged(RULE, run).findings
    assert found.subject["operators"] == ("Cast",)
    assert found.evidence["casts_in_a_row_share"] == pytest.approx(0.5)
    assert found.cost_ns == pytest.approx(won_ns(run), rel=0.15)


def test_an_operator_that_only_sounds_alike_is_none():
    assert judged(RULE, Training(extra=(("BroadcastTo", "AI_VECTOR_CORE", 120.0),)).run()).findings == ()


@pytest.mark.parametrize(
    ("name", "converts"),
    [
        ("triton_poi_fused__to_copy", True),
        ("triton_poi_fused__to_copy_view", True),
        ("triton_poi_fused__to_copy__unsafe_view_t", True),
        ("triton_red_fused__to_copy_add_native_layer_norm_native_layer_norm_backward_view", False),
        ("triton_red_fused__log_softmax__to_copy_nll_loss_forward_sub_view", False),
        ("aten::_to_copy", True),
    ],
)
def test_a_kernel_that_a_compiler_fused_converts_only_if_it_does_nothing_else(name, converts):
    assert (CONVERSIONS.search(name) is not None) == converts
