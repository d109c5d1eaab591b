"""The guides' tables and closed forms, and that each difference from the exact count is the one explained."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perfkit.core import catalog
from perfkit.core.spec.model import ModelSpec
from perfkit.predict.cost.flops import forward_flops
from perfkit.predict.cost.guide import correction, guide_flops, guide_forward

GPT = ModelSpec(
    name="gpt",
    num_layers=32,
    hidden_size=4096,
    num_attention_heads=32,
    num_key_value_heads=32,
    head_size=128,
    ffn_hidden_size=16384,
    vocab_size=32000,
    gated_ffn=False,
)
BERT_LARGE = replace(
    GPT,
    name="bert",
    num_layers=24,
    hidden_size=1024,
    num_attention_heads=16,
    num_key_value_heads=16,
    head_size=64,
    ffn_hidden_size=4096,
)


def layer_flops(table):
    return table[table["part"] == "layer"]["flops"].sum()


def test_the_correction_for_eight_query_heads_a_key():
    assert correction(8) == pytest.approx(0.854167, abs=5e-7)


@pytest.mark.parametrize(("name", "more"), [("llama2-7b", 0.529), ("llama2-13b", 0.440), ("llama2-70b", 0.280)])
def test_the_guides_count_the_head_in_every_layer(name, more):
    figure = guide_flops(catalog.model(name), 4096)[0]
    assert figure.erratum == "X04"
    assert figure.ratio - 1 == pytest.approx(more, abs=5e-4)
    assert str(catalog.model(name).num_layers) in figure.why


def test_the_closed_form_misses_18_percent_of_llama2_70b():
    figure = guide_flops(catalog.model("llama2-70b"), 4096)[1]
    assert figure.erratum == "X05"
    assert 1 - figure.ratio == pytest.approx(0.181, abs=5e-4)
    assert "0.8542" in figure.why
    assert "1.0625" in figure.why


def test_the_closed_form_of_a_gpt_needs_no_excuse():
    figure = guide_flops(GPT, 4096)[1]
    assert figure.ratio == pytest.approx(1, rel=1e-12)
    assert figure.why == "the closed form describes this model"


def test_the_guides_count_differs_from_the_exact_count_in_the_head_only():
    model = catalog.model("llama2-7b")
    guide = guide_forward(model, 4096)
    exact = forward_flops(model, 4096)
    assert guide.parts["head"] == 32 * exact.parts["head"]
    assert guide.amount("layers") == exact.amount("layers")
