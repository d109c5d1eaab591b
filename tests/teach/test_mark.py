"""Marking: numbers as people type them, slips of unit and percent, and nothing that ends in an exception."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.teach import exercises, mark, question


def ask(name="E01"):
    return question(name, 2024, "s01")


@pytest.mark.parametrize("text", ["5120", "5,120", " 5 120 ", "5'120", "5.12e3", "5120 tok/s/p", "５１２０", "+5120.0"])
def test_numbers_are_read_as_people_write_them(text):
    assert mark(ask(), text).outcome == "right"


@pytest.mark.parametrize("text", ["60", "60%", "60 %", "６０％"])
def test_a_percent_sign_is_dropped_where_percent_are_asked(text):
    assert mark(ask("E38"), text).outcome == "right"


def test_a_percent_sign_divides_by_100_where_a_ratio_is_asked():
    assert mark(ask("E40"), "18.75%").outcome == "right"


@pytest.mark.parametrize("text", ["", "   ", "abc", "<b>", "1e999", "nan", "inf", "0x10", "--5", "1,5", "5120 MiB", "1e", "\x00"])
def test_what_cannot_be_read_gets_a_gentle_sentence_and_is_no_try(text):
    found = mark(ask(), text)
    assert found.outcome == "unread"
    assert found.text
    assert found.value is None


def test_another_unit_is_named_with_the_one_that_is_asked():
    assert "'KiB'" in mark(ask("E16"), "6357 KiB").text
    assert "MiB/layer" in mark(ask("E16"), "6357 KiB").text


def test_a_decimal_comma_is_asked_about():
    assert "0.625" in mark(ask(), "0,625").text.replace("0,625", "")


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("5120000", "unit"),
        ("5.12", "unit"),
        (str(5120 * 1024), "unit"),
        ("512000", "percent"),
        ("-5120", "sign"),
        ("0.0001953125", "reciprocal"),
        ("6000", "too_high"),
        ("5000", "too_low"),
        ("0.625", "missing_seq"),
    ],
)
def test_slips_have_a_name(text, mistake):
    found = mark(ask(), text)
    assert (found.outcome, found.mistake) == ("wrong", mistake)


def test_a_rank_is_no_amount():
    assert mark(ask("E37"), "0").text == "Not this rank."
    assert mark(ask("E37"), "3").text == "The rank that waits most arrived first."


@pytest.mark.parametrize("name", exercises())
@given(text=st.text(max_size=30) | st.floats().map(repr) | st.integers().map(str))
def test_no_answer_ends_in_an_exception(name, text):
    assert mark(ask(name), text).text
