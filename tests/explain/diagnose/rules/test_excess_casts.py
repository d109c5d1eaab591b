"""Conversions that take a noticeable part of the step."""

import pytest

from perfkit.explain.diagnose.kernels import CONVERSIONS
from perfkit.explain.diagnose.rules.excess_casts import CASTS_SHARE, RULE
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


def test_what_conversions_take_is_counted_by_hand():
    """Four layers of 500 us forward with two conversions of 60 us, of 970 us backward, and an update of 200 us."""
    extra = (("Cast", "AI_VECTOR_CORE", 60.0), ("TransData", "AI_VECTOR_CORE", 60.0))
    (found,) = judged(RULE, Training(noise=0.0, extra=extra).run()).findings
    assert found.evidence["casts_a_rank_and_step"] == 2 * 4
    assert found.evidence["casts_share_of_computing"] == pytest.approx(8 * 60 / (4 * (500 + 120 + 970) + 200))
    assert found.evidence["formats_share"] == pytest.approx(found.evidence["casts_share"] / 2)
    assert found.title.startswith("Conversions of type and layout, 8 a rank and step")


@pytest.mark.parametrize(("over", "named"), [(1.02, True), (0.98, False)])
def test_conversions_are_named_from_their_stated_share_of_computing_on(over, named):
    """A layer's conversion takes so much more or less than the limit's share of 1,470 us and a quarter of 200 us."""
    limit = CASTS_SHARE.value / (1 - CASTS_SHARE.value) * (1470 + 200 / 4)
    run = Training(noise=0.0, extra=(("Cast", "AI_VECTOR_CORE", limit * over),)).run()
    assert bool(judged(RULE, run).findings) == named
