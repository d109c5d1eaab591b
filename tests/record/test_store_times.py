"""Decimal times: exact to the ns whatever their form."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.record.store import times_ns


@given(st.lists(st.tuples(st.integers(0, 10**15), st.integers(0, 12), st.integers(0, 10**12 - 1))))
def test_every_decimal_is_rounded_half_to_even_without_a_float(parts):
    texts = [f"{whole}.{fraction:012d}"[: len(str(whole)) + 1 + digits].rstrip(".") for whole, digits, fraction in parts]
    expected = [int((Decimal(text) * 1000).to_integral_value()) for text in texts]
    assert times_ns([text.encode() for text in texts], "us").tolist() == expected


def test_nineteen_digits_are_exact():
    assert times_ns([b"1736408883704643.212", b'"1736408883704643.211"'], "us").tolist() == [
        1736408883704643212,
        1736408883704643211,
    ]


@pytest.mark.parametrize(
    "text", [b"", b"NaN", b"null", b"Infinity", b"{}", b"1.2.3", b"9223372036854775.808", b"1e999999", b"\xff"]
)
def test_what_is_no_time_is_null_and_leaves_its_neighbors(text):
    times = times_ns([b"1", text, b"2"], "us")
    assert times.isna().tolist() == [False, True, False]
    assert times.dropna().tolist() == [1000, 2000]


def test_a_text_with_lines_of_its_own_does_not_shift_the_others():
    assert times_ns([b"1", b'{"a":\n2}', b"3"], "us").dropna().to_dict() == {0: 1000, 2: 3000}


MANY = [f"{number}e-7".encode() for number in range(3000)]
"""More odd forms than are read one by one."""


@given(
    st.lists(
        st.from_regex(r"[-+ ]?[0-9]{1,12}(\.[0-9]{0,14})?([eE][-+]?[0-9]{1,2})?[ \t]?", fullmatch=True)
        | st.sampled_from(["", "N/A", "null", "inf", "-.5", "1_0", "0x1", "\u0661", "\x1f5", "\xa05", "0.0005", "0.0015", "9" * 40])
    )
)
def test_few_odd_times_are_what_they_are_among_many(odd: list[str]):
    texts = [text.encode() for text in odd]
    few, many = times_ns(texts, "us"), times_ns([*texts, *MANY], "us")
    assert few.tolist() == many.tolist()[: len(texts)]


def test_no_text_gives_no_time():
    assert len(times_ns([], "us")) == 0
