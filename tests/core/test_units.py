"""Exact parsing, and quantities as people read them."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.core.units import (
    GIB,
    MIB,
    NS_PER_S,
    NS_PER_US,
    THIN_SPACE,
    decimal_to_ns,
    format_bytes,
    format_change,
    format_ns,
    format_ratio,
    format_si,
    parse_bytes,
    significant,
)


def test_a_19_digit_epoch_time_keeps_its_last_nanosecond():
    assert decimal_to_ns("1719546823456789.123", NS_PER_US) == 1719546823456789123


@given(st.integers(-(2**62), 2**62))
def test_nanoseconds_survive_being_written_as_seconds(ns):
    assert decimal_to_ns(str(Decimal(ns) / NS_PER_S), NS_PER_S) == ns


@pytest.mark.parametrize("text", ["", "abc", "nan", "inf", "-Infinity", "1,5", "1e999999999"])
def test_text_that_is_no_sensible_number_is_refused(text):
    with pytest.raises(ValueError, match="is not"):
        decimal_to_ns(text, NS_PER_US)


@pytest.mark.parametrize(
    ("text", "size"),
    [("58GB", 58 * GIB), ("59392M", 58 * GIB), ("64 GiB", 64 * GIB), ("52.5GB", 56_371_445_760), ("1024", 1024), ("0.5kib", 512)],
)
def test_sizes_are_powers_of_1024(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "58 apples", "nan", "1e9"])
def test_text_that_is_no_size_is_refused(text):
    with pytest.raises(ValueError, match="is not a size"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (136_581_000, "137 ms"),
        (0, "0 ns"),
        (1, "1.00 ns"),
        (999_499_999, "999 ms"),
        (999_999_999, "1.00 s"),
        (-1_500, "-1.50 µs"),
        (103_328_000_000, "103 s"),
        (None, "not measured"),
    ],
)
def test_durations_have_three_digits_and_their_unit(ns, text):
    assert format_ns(ns) == text


def test_rates_and_sizes_have_prefixes():
    assert format_si(2.16e14, "FLOP/s") == "216 TFLOP/s"
    assert format_si(4695, "tokens/s") == "4.70 ktokens/s"
    assert format_si(0.5, "samples/s") == "0.500 samples/s"
    assert format_bytes(59392 * MIB) == "58.0 GiB"
    assert format_bytes(1023.9 * MIB) == "1.00 GiB"


def test_ratios_are_percent():
    assert format_ratio(0.57545) == "57.5 %"
    assert [format_change(ratio) for ratio in (-0.1427, 0.0, 0.02)] == ["-14.3 %", "0 %", "+2.00 %"]


def test_a_share_that_nobody_reads_is_told_as_below_what_one_reads():
    assert [format_ratio(ratio) for ratio in (1.49e-7, -1.49e-7, 1e-5, 0.0)] == ["< 0.001 %", "> -0.001 %", "0.00100 %", "0 %"]
    assert [format_change(ratio) for ratio in (1.49e-7, -1.49e-7)] == ["< +0.001 %", "> -0.001 %"]


@given(st.floats(-10, 10))
def test_no_share_is_shown_with_more_zeros_than_a_reader_counts(ratio):
    for text in (format_ratio(ratio), format_change(ratio)):
        assert "0.000" not in text
        assert (
            math.copysign(1, float(text.removesuffix(" %").lstrip("<> ").replace("\u2009", ""))) == math.copysign(1, ratio)
            or ratio == 0
        )


def test_what_was_not_measured_is_said_not_to_be():
    assert {format_ratio(None), format_bytes(None), format_si(None, "B")} == {"not measured"}


def test_thousands_are_split_and_never_shown_as_exponents():
    assert significant(122_880, 6) == f"122{THIN_SPACE}880"
    assert significant(123_456_789) == f"123{THIN_SPACE}000{THIN_SPACE}000"


@given(st.floats(1e-6, 1e12))
def test_three_digits_are_within_half_a_percent(value):
    shown = float(significant(value).replace(THIN_SPACE, ""))
    assert shown == pytest.approx(value, rel=0.00501)
    assert "e" not in significant(value)


@given(st.integers(1, 2**62))
def test_a_duration_shows_a_number_below_a_thousand(ns):
    number = format_ns(ns).split()[0]
    if not format_ns(ns).endswith(" s"):
        assert float(number) < 1000
