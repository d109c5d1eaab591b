"""The unit of a column: that of what is usual, and of sizes one in which the largest can be read."""

import pytest

from perfkit.core.quantity import LARGEST_SIZE, column

KIB, MIB, GIB = 1024, 1024**2, 1024**3


@pytest.mark.parametrize(
    ("name", "values", "unit"),
    [
        ("size_bytes", [2 * KIB, 3 * KIB, 147_000 * KIB], "MiB"),
        ("size_bytes", [2 * KIB, 3 * KIB, 9_999 * KIB], "KiB"),
        ("size_bytes", [3 * MIB, 5 * MIB, 40 * GIB], "GiB"),
        ("size_bytes", [], "GiB"),
        ("size_bytes", [0, 0], "GiB"),
        ("duration_ns", [2_000, 3_000, 50_000_000], "µs"),
        ("duration_ns", [0], "ms"),
    ],
)
def test_a_column_has_the_unit_of_its_median_and_sizes_no_number_of_five_digits(name: str, values: list[int], unit: str):
    shown, size, _ = column(name, values)
    assert shown == unit
    assert not unit.endswith("iB") or max(values, default=0) / size < LARGEST_SIZE
