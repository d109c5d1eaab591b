"""YAML: libyaml and the loader read the same; hostile nesting and a second document end in words."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import yaml

from perfkit.config.dialects import yaml as ours
from perfkit.config.dialects.dialect import Parsed
from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder

pytestmark = pytest.mark.skipif(not yaml.__with_libyaml__, reason="one loader is there")

PLACES = (data_folder() / "configs", data_folder() / "case13b", Path(__file__).parents[2] / "data")
TEXTS = [path.read_text(encoding="utf-8") for place in PLACES for path in sorted(place.rglob("*.yaml"))]
PIECES = (
    *":#'\"[]{},\n-|>~!%@`\\&*",
    "- ",
    ": ",
    "<<: ",
    "\r\n",
    "---\n",
    "!!python/x ",
    "é",
    "\U0001f600",
    "1e3",
    "0o7",
    "\x07",
    "  ",
)


def read_by(loader: type, text: str) -> Parsed | None:
    try:
        return ours._read(loader, text, "it")
    except InputError:
        return None


@pytest.mark.parametrize("seed", range(20))
def test_what_libyaml_reads_the_loader_reads_the_same(seed):
    drawn, same = random.Random(seed), 0
    for text in drawn.sample(TEXTS, 12):
        for _ in range(8):
            start = drawn.randrange(len(text))
            cut = text[max(0, start - 150) : start + 450]
            for _ in range(drawn.randrange(3)):
                place = drawn.randrange(len(cut) + 1)
                cut = cut[:place] + drawn.choice(PIECES) + cut[place + drawn.randrange(3) :]
            found = read_by(ours._loaders(cut)[0], cut)
            assert found is None or found == read_by(yaml.SafeLoader, cut), cut
            same += found is not None
    assert same > 2


@pytest.mark.parametrize("text", [text for text in TEXTS[::6] if read_by(yaml.SafeLoader, text)])
def test_a_whole_configuration_is_read_the_same(text):
    fast, slow = (read_by(loader, text) for loader in (ours._loaders(text)[0], yaml.SafeLoader))
    assert fast == slow
    pairs = [(ours.composed(text), yaml.compose(text, Loader=yaml.SafeLoader))]
    for one, other in pairs:
        assert (one.tag, one.start_mark.index) == (other.tag, other.start_mark.index)
        if isinstance(one, yaml.ScalarNode):
            assert (one.value, one.end_mark.index, one.style or None) == (other.value, other.end_mark.index, other.style)
        else:
            children = [
                [part for item in node.value for part in (item if isinstance(item, tuple) else (item,))] for node in (one, other)
            ]
            pairs += [] if one.start_mark.index != other.start_mark.index else zip(*children, strict=True)


@pytest.mark.parametrize("text", ["a: " + "[" * 100_000, "a:\n" + "- " * 30_000, "a: " + "{b: " * 50_000])
def test_hostile_nesting_is_refused_in_words(text):
    with pytest.raises(InputError, match="nested too deeply"):
        ours.parse(text, "it")


def test_a_second_document_is_refused_with_its_line():
    with pytest.raises(InputError, match="line 3: a second document begins"):
        ours.parse("a: 1\nb: 2\n---\nc: 3\n", "two.yaml")
    assert ours.parse("---\na: 1\n", "one.yaml").values == {"a": 1}
