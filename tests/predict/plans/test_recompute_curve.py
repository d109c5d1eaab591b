"""The knapsack of recomputation: exact is never worse than greedy, and is what enumerating by hand gives."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from perfkit.predict.plans.balance.recompute_curve import exact_front, greedy_curve, least_seconds
from perfkit.predict.plans.balance.recompute_options import Option

OPTIONS = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), min_size=1, max_size=7).map(
    lambda pairs: [
        Option(path=f"op{index}", saved_bytes=float(size), seconds=float(cost)) for index, (size, cost) in enumerate(pairs)
    ]
)


@settings(max_examples=60, deadline=None)
@given(OPTIONS, st.integers(0, 200))
def test_the_exact_set_is_the_cheapest_of_all_subsets(options, wanted):
    subsets = [chosen for size in range(len(options) + 1) for chosen in combinations(options, size)]
    costs = [sum(one.seconds for one in chosen) for chosen in subsets if sum(one.saved_bytes for one in chosen) >= wanted]
    found = least_seconds(exact_front(options), wanted)
    assert (found.seconds if found else None) == (min(costs) if costs else None)


@settings(max_examples=60, deadline=None)
@given(OPTIONS)
def test_greedy_is_never_better_than_exact(options):
    front = exact_front(options)
    for point in greedy_curve(options):
        exact = least_seconds(front, point.saved_bytes)
        assert exact is not None
        assert exact.seconds <= point.seconds + 1e-9
    assert [point.seconds for point in front] == sorted(point.seconds for point in front)


def test_greedy_can_miss_the_optimum():
    options = [
        Option(path="a", saved_bytes=6, seconds=5),
        Option(path="b", saved_bytes=5, seconds=5),
        Option(path="c", saved_bytes=10, seconds=9),
    ]
    assert least_seconds(greedy_curve(options), 10).seconds == 14
    assert least_seconds(exact_front(options), 10).paths == ("c",)
