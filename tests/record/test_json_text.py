"""Where JSON values end, and where a list of events may be cut."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfkit.record.readers._json_text import Cuts, Text, value_end

texts = st.one_of(st.sampled_from(["}", '"', "\\", "]", "}],", '{"a": [', ""]), st.text(st.characters(codec="utf-8"), max_size=8))
values = st.recursive(
    texts | st.integers(), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=6
)


@settings(deadline=None)
@given(values)
def test_the_end_of_a_value_is_found_in_the_text_around_it(value):
    text = json.dumps(value).encode()
    assert value_end(text + b", ", 0) == len(text)


@settings(deadline=None)
@given(st.dictionaries(texts, values, min_size=1))
def test_no_end_is_found_in_a_cut_value(value):
    text = json.dumps(value).encode()
    assert all(value_end(text[:stop], 0) == -1 for stop in range(1, len(text), 1 + len(text) // 50))


@pytest.mark.parametrize("text", [b"12", b'"open', b"[1, 2", b'{"a": "}"', b"tru", b""])
def test_no_end_is_found_where_the_text_may_go_on(text):
    assert value_end(text, 0) == -1


def test_a_stray_bracket_is_a_value_of_its_own_so_that_reading_goes_on():
    assert value_end(b"}, 1", 0) == 1


def test_the_last_cut_lies_behind_an_event_that_another_follows():
    text = b'{"ph": "X", "args": [{"id": 1}, {"id": 2}]},\n  {"name": 2}, {"ph": 3'
    cuts = Cuts()
    assert text[: cuts.last(text, 0, len(text))].endswith(b'{"name": 2}')
    assert text[: cuts.last(text, 0, text.index(b'{"ph": 3'))].endswith(b"2}]}")
    assert cuts.last(text, 0, 20) == -1


def test_a_first_key_is_learned_from_the_events():
    text = b'{"ts": 1}, {"ts": 2}'
    cuts = Cuts()
    assert cuts.last(text, 0, len(text)) == -1
    cuts.learn(text, 0)
    assert cuts.last(text, 0, len(text)) == len(b'{"ts": 1}')


def test_guesses_in_vain_become_rarer_and_a_hit_forgives_them():
    cuts = Cuts()
    for _ in range(20):
        cuts.failed()
    assert cuts.patience > 100
    cuts.succeeded()
    assert cuts.patience == 1


NOWHERE = re.compile(rb"(?!)")


@settings(deadline=None)
@given(values, st.integers(1, 9))
def test_a_value_is_skipped_to_its_end_in_blocks_of_any_size(value, block):
    text = json.dumps(value).encode()
    content = text + b', {"ph": 1}'
    blocks = Text(content[at : at + block] for at in range(0, len(content), block))
    assert blocks.skip_value(NOWHERE) == len(text)
    assert blocks.peek() == b"{"


def test_a_value_that_does_not_end_is_skipped_to_the_next_event_or_to_the_end():
    broken = b'{"name": "open, '
    blocks = iter([broken, b"x" * 20, b'"}, {"ph": 1}, ', b'{"ph": 2}'])
    text = Text(blocks)
    text.skip_value(Cuts().boundary)
    assert text.data[text.at :].startswith(b'{"ph": 1}')
    rest = Text(iter([broken, b"x" * 20]))
    assert rest.skip_value(NOWHERE) == len(broken) + 20
    assert rest.peek() == b""


def test_a_number_without_end_is_skipped_without_its_neighbor():
    text = Text(iter([b"111", b"111", b'1, {"ph": 1}']))
    assert text.skip_value(NOWHERE) == 7
    assert text.peek() == b"{"
