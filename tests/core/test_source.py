"""A source reads as one line."""

from perfkit.core.source import Source


def test_a_source_says_kind_place_and_note():
    assert str(Source("published", "arXiv 2307.09288")) == "published: arXiv 2307.09288"
    assert str(Source("assumed", "start value", "not measured")) == "assumed: start value (not measured)"
