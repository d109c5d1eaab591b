"""Causes of idle and waiting time against timelines that are worked out by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from perfkit.core.clock import Clock, Jump
from perfkit.explain.ledger import _late, _rank, _stated, _usual, causes, ledger
from perfkit.record.format import Sink
from tests.explain.diagnose.made import US, run_of


def idle_by_cause(
    begins: int,
    launches: list[tuple[int, int]],
    host: dict[str, tuple[int, int]],
    quiet: tuple[int, int] = (-1, -1),
    passed_on: tuple[tuple[int, int], ...] = (),
) -> dict[str, float]:
    """The us by cause of an idle time from 100 us to `begins`, when kernels begin whose launches are calls from when to when.

    `host` is what the thread that launches calls, by name, from when to when; in `quiet` it makes no other events. `passed_on` are
    calls from when to when in which a second thread launches for it.
    """
    sink = Sink()
    sink.add("steps", rank=0, step=1, start_ns=0, duration_ns=(begins + 100) * US)
    starts, lengths = [0, *[begins] * len(launches)], [100] * (1 + len(launches))
    calls = [(-20, -10), *launches]
    common = {
        "rank": 0, "step": 1, "name": "MatMul", "kind": "computing", "start_ns": [at * US for at in starts],
        "duration_ns": [length * US for length in lengths], "stream": [str(at) for at in range(len(starts))],
    }  # fmt: skip
    sink.add("kernels", **common, type="MatMul")
    sink.add(
        "launches", **common, thread="1", launch_ns=[begin * US for begin, _ in calls],
        launch_duration_ns=[(end - begin) * US for begin, end in calls],
    )  # fmt: skip
    for begin in range(0, starts[-1], 500):  # a host that goes on, but in the time between
        if not quiet[0] <= begin <= quiet[1]:
            sink.add("host", rank=0, thread="1", name="line", kind="python", start_ns=begin * US, duration_ns=US)
    for name, (begin, end) in host.items():
        sink.add("host", rank=0, thread="1", name=name, kind="call", start_ns=begin * US, duration_ns=(end - begin) * US)
    for begin, end in passed_on:
        sink.add(
            "host", rank=0, thread="2", name="Dequeue@MatMul", kind="call", start_ns=begin * US, duration_ns=(end - begin) * US
        )
    entries = ledger(run_of(sink)).entries
    return (entries[entries["part"] == "free"].groupby("cause")["ns"].sum() / US).to_dict()


def test_of_kernels_that_start_together_the_one_launched_last_was_waited_for():
    for launches in ([(110, 120), (170, 180)], [(170, 180), (110, 120)]):
        assert idle_by_cause(200, launches, {}) == {causes.LAUNCHING: 80, causes.LATENCY: 20}


@pytest.mark.parametrize(("returns", "blocked_us"), [(1100, 0), (1160, 1010)], ids=["950 us", "1010 us"])
def test_a_call_that_asks_for_a_copy_has_made_it_if_it_takes_a_millisecond(returns: int, blocked_us: int):
    found = idle_by_cause(3000, [(2900, 2950)], {"cudaMemcpyAsync": (150, returns)})
    assert found == {key: us for key, us in ((causes.BLOCKING, blocked_us), (causes.LAUNCHING, 2850 - blocked_us)) if us} | {
        causes.LATENCY: 50
    }


@pytest.mark.parametrize(("returns", "cause"), [(90, causes.BLOCKING), (70, causes.LAUNCHING)])
def test_a_call_had_waited_for_the_last_kernel_if_it_returned_at_most_20_us_before_the_device_fell_idle(returns: int, cause: str):
    found = idle_by_cause(200, [(170, 180)], {"cudaStreamSynchronize": (20, returns)})
    assert found == {cause: 80, causes.LATENCY: 20}


def test_each_moment_of_calls_that_overlap_counts_once_and_input_comes_first():
    """Input until 150 us, garbage until 160, memory until 165, a wait until 170, and the launch until 180."""
    calls = {"DataLoader.next": (110, 150), "gc": (140, 160), "cudaMalloc": (155, 165), "cudaStreamSynchronize": (120, 170)}
    assert idle_by_cause(200, [(175, 180)], calls) == {
        causes.FEED: 40, causes.PAUSE: 10, causes.ALLOCATOR: 5, causes.BLOCKING: 5, causes.LAUNCHING: 20, causes.LATENCY: 20,
    }  # fmt: skip


@pytest.mark.parametrize(("silent_us", "pause_us"), [(690, 0), (710, 710)])
def test_a_host_stands_still_where_nothing_happens_for_the_slice_of_another_process(silent_us: int, pause_us: int):
    """Operators until 160 us and from so many us later; else there is an event every 500 us."""
    calls = {"aten::mm": (150, 160), "aten::add": (160 + silent_us, 165 + silent_us)}
    found = idle_by_cause(4000, [(3900, 3950)], calls, quiet=(160, 160 + silent_us))
    assert (found.get(causes.PAUSE, 0), found[causes.LAUNCHING], found[causes.LATENCY]) == (pause_us, 3850 - pause_us, 50)


@pytest.mark.parametrize(("second", "pause_us"), [((1060, 1990), 0), ((1060, 5990), 4930)], ids=["like the first", "stopped"])
def test_a_host_whose_launches_are_passed_on_stands_still_only_in_calls_that_last_far_longer(
    second: tuple[int, int], pause_us: int
):
    """The thread that launches waits from 160 us on; the other one works for 800 us, and then for 930 or 4930."""
    calls = {"aten::mm": (150, 160), "aten::add": (second[1] + 10, second[1] + 15)}
    found = idle_by_cause(9000, [(8900, 8950)], calls, quiet=(160, second[1]), passed_on=((200, 1000), second))
    assert found.get(causes.PAUSE, 0) == pause_us


@pytest.mark.parametrize(("known", "told"), [(15, False), (17, True)])
def test_of_twenty_executions_the_launches_of_four_fifths_must_be_known_for_the_host_to_be_told(known: int, told: bool):
    """Kernels of 10 us every 30 us, whose launches return 5 us before they begin: of 20 us the device waits 15 for the host."""
    starts = [30 * US * at for at in range(20)]
    common = {
        "rank": 0,
        "step": 1,
        "name": "MatMul",
        "kind": "computing",
        "start_ns": starts,
        "duration_ns": 10 * US,
        "stream": "0",
    }
    launches = [start - 6 * US if at < known else None for at, start in enumerate(starts)]
    sink = Sink()
    sink.add("steps", rank=0, step=1, start_ns=0, duration_ns=580 * US)
    sink.add("kernels", **common, type="MatMul")
    sink.add("launches", **common, thread="1", launch_ns=launches, launch_duration_ns=1 * US)
    entries = ledger(run_of(sink)).entries
    found = entries[entries["part"] == "free"].groupby("cause")["ns"].sum()
    if told:
        late = 15 * US * (known - 1)
        assert found[[causes.LAUNCHING, causes.LATENCY]].tolist() == [late, late // 3]
    assert found.get(causes.UNEXPLAINED, 0) == 20 * US * (20 - known if told else 19)


def messages(*moved_us: float, **columns: object) -> pd.DataFrame:
    """Rows of members of operations among ranks 0 and 1, of one size, of which only rank 0 was read."""
    frame = pd.DataFrame({"transfer_ns": [round(us * US) for us in moved_us]}).astype("Int64")
    like = {"rank": 0, "operation": "all_reduce", "group_size": 2, "bytes": 1000, "basis": "recorded"} | columns
    return frame.assign(instance=range(len(moved_us)), **like)


@pytest.mark.parametrize(
    ("moved_us", "slower_us"),
    [
        ([100] * 3 + [200] * 8, dict.fromkeys(range(3, 11), 100)),
        ([100] * 2 + [200] * 9, {}),
        ([100] * 9 + [124, 126], {10: 26}),
        ([40] * 9 + [59, 61], {10: 21}),
        ([100, 100, 100, 200], {3: 100}),
        ([100, 100, 200], {}),
    ],
    ids=["slow most of the time", "seldom fast", "a quarter slower", "20 us slower", "four alike", "three alike"],
)
def test_a_message_is_slow_beside_the_fast_fifth_of_its_like(moved_us: list[float], slower_us: dict[int, int]):
    """Of eleven messages two are faster than the fifth of them, the third is usual."""
    assert _usual.slower_ns(messages(*moved_us)) == {at: us * US for at, us in slower_us.items()}


def test_a_reason_of_a_fiftieth_of_the_largest_is_noise():
    found = _late._named({"feed": 100, "copy": 2, "host/pause": 3}, late=1, rank=0, stages={})
    assert found == {("feed", 1): 100, ("host/pause", 1): 3}


@pytest.mark.parametrize(("computing", "gap"), [(91, "feed"), (89, causes.UNEXPLAINED)])
def test_idle_time_between_kernels_that_hold_nine_tenths_of_computing_is_told(computing: int, gap: str):
    """The step states 100 ns of computing, 20 of communication and 30 free; its kernels hold 40 ns of free time, all for input."""
    steps = pd.DataFrame(
        {
            "rank": [0],
            "step": [1],
            "duration_ns": [150],
            "computing_ns": [100],
            "exposed_communication_ns": [20],
            "bubble_ns": [None],
        }
    )
    entries = pd.DataFrame(
        [
            [0, 1, "work/product", -1, "inside", None, "computing", computing],
            [0, 1, "transfer/usual speed", -1, "inside", None, "communication", 20],
            [0, 1, "feed", -1, "before", None, "free", 40],
        ],
        columns=_stated.COLUMNS,
    )
    found = _stated.held_to(entries, steps)
    assert found["ns"].sum() == 150
    assert found.groupby("part")["ns"].sum().to_dict() == {"computing": 100, "communication": 20, "free": 30}
    assert found.loc[found["part"] == "free", "cause"].tolist() == [gap]


def waited(first: int, second: int, *, group_size: int = 4, other: int = 0) -> pd.DataFrame:
    """Two of the members of one operation, by what they waited, the first held up by `other` ns inside of it."""
    return pd.DataFrame(
        {
            "instance": [0, 0],
            "rank": [5, 6],
            "operation": ["all_reduce"] * 2,
            "wait_ns": [first, second],
            "other_ns": [other, 0],
            "num_seen": [2, 2],
            "group_size": [group_size] * 2,
            "waits_for": [None] * 2,
        }
    ).astype(dict.fromkeys(("wait_ns", "other_ns", "num_seen", "group_size", "waits_for"), "Int64"))


@pytest.mark.parametrize(
    ("members", "last"),
    [
        (waited(50, 100, group_size=2), {0: 5}),
        (waited(10, 100), {0: 5}),
        (waited(11, 100), {}),
        (waited(10, 100, other=100), {0: 5}),
        (waited(10, 100, other=101), {}),
    ],
    ids=["all were read", "it waited a tenth", "it waited more", "held up no longer than others waited", "held up longer"],
)
def test_of_members_of_whom_some_were_not_read_one_came_last_if_it_hardly_waited(members: pd.DataFrame, last: dict[int, int]):
    assert _stated.latest_members(members).to_dict() == last


@pytest.mark.parametrize(
    ("waits", "moves", "other", "told"),
    [
        (70, 50, 0, {causes.WAITING_UNTOLD: 50, causes.TRANSFER: 30, causes.UNEXPLAINED: 20}),
        (70, 50, 20, {causes.WAITING_UNTOLD: 30, causes.TRANSFER: 10, causes.UNEXPLAINED: 60}),
        (100, 0, 0, {causes.WAITING_UNTOLD: 100}),
        (0, 0, 100, {causes.UNEXPLAINED: 100}),
    ],
    ids=["20 of 120 are hidden", "40 of 140 are hidden", "all waits", "neither"],
)
def test_of_communication_that_is_not_hidden_only_what_all_of_the_rest_leaves_is_told(waits, moves, other, told):
    """100 ns are not hidden: what is hidden may be any of it, so waiting is at least 100 less all that moves or does neither."""
    steps = pd.DataFrame(
        {
            "rank": [0],
            "step": [1],
            "duration_ns": [300],
            "computing_ns": [200],
            "exposed_communication_ns": [100],
            "bubble_ns": [None],
            "copy_ns": [None],
        }
    )
    members = waited(waits, 0).iloc[:1].assign(rank=0, step=1, transfer_ns=moves, other_ns=other)
    found = _stated.summaries(steps, members, pd.DataFrame())
    talking = found[found["part"] == "communication"]
    assert talking.groupby("cause")["ns"].sum().to_dict() == told
    assert np.sum(found["ns"]) == 300


@pytest.mark.parametrize(("copies", "told"), [(20, {causes.COPY: 20, causes.UNEXPLAINED: 10}), (50, {causes.COPY: 30})])
def test_copies_that_a_step_states_take_no_more_than_it_was_free(copies: int, told: dict[str, int]):
    steps = pd.DataFrame({"rank": [0], "step": [1], "duration_ns": [130], "computing_ns": [100]})
    steps = steps.assign(exposed_communication_ns=0, bubble_ns=None, copy_ns=copies)
    members = waited(0, 0).iloc[:0].assign(step=1, transfer_ns=0)
    found = _stated.summaries(steps, members, pd.DataFrame())
    assert found[found["part"] == "free"].groupby("cause")["ns"].sum().to_dict() == told


def test_what_a_message_moved_longer_than_usual_is_the_last_of_it():
    """A message that moves from 0 to 50 and from 100 to 200 ns took 120 longer than usual."""
    names = [np.array([value] * 2, dtype=object) for value in (causes.TRANSFER, None, "communication")]
    columns = (np.array([0, 100]), np.array([50, 200]), names[0], names[1], np.array([7, 7]), names[2])
    starts, ends, cause, *_ = _rank._slow(columns, {7: 120})
    found = sorted(zip(starts.tolist(), ends.tolist(), cause.tolist(), strict=True))
    assert found == [(0, 30, causes.TRANSFER), (30, 50, causes.SLOW_TRANSFER), (100, 200, causes.SLOW_TRANSFER)]


def test_behind_the_optimizer_is_what_is_computed_behind_its_last_kernel():
    begin = np.array([0, 12, 20, 30])
    because = np.array([causes.OPTIMIZER, causes.ELEMENT_WISE, causes.OPTIMIZER, causes.ELEMENT_WISE], dtype=object)
    computing = np.array(["computing"] * 4, dtype=object)
    assert _rank._behind(begin, begin + 10, because, computing).tolist() == [False, False, False, True]
    assert not _rank._behind(begin, begin + 10, np.where(begin == 30, "work/product", because), computing).any()


@pytest.mark.parametrize(("offset_ns", "drift"), [(0, 0.0), (5_000_000, 0.0), (-3_000_000, 1e-5), (7_000, -2e-4)])
def test_a_moment_of_the_common_clock_on_that_of_a_rank_is_that_moment_on_the_common_one(offset_ns: int, drift: float):
    """Minutes after the moment at which the clock was read, where the gain of a clock is many times its last digit."""
    clock = Clock(0, offset_ns, drift, at_ns=10**9, residual_ns=0, uncertainty_ns=0, num_matches=9)
    common = np.arange(10**9, 200 * 10**9, 7 * 10**9)
    own = _rank.own_moments(common, clock)
    assert np.abs(own - (common + offset_ns + drift * (common - 10**9))).max() <= abs(drift) ** 2 * 200e9 + 1
    assert np.abs(clock.common_ns(own) - common).max() <= abs(drift) ** 2 * 200e9 + 1


@pytest.mark.parametrize("jump_ns", [50, -30])
def test_a_moment_of_a_clock_that_was_set_comes_back_from_the_common_one(jump_ns: int):
    clock = Clock(0, 7, 0.0, 0, 0.0, 0.0, 9, Jump(1200, jump_ns, at_ns=1000))
    own = np.concatenate([np.arange(0, 1000 - max(0, jump_ns), 10), np.arange(1000, 3000, 10)])
    assert _rank.own_moments(clock.common_ns(own), clock).tolist() == own.tolist()


def test_a_kernel_is_what_its_type_says_or_else_its_name_and_on_the_host_processor_if_its_core_is():
    """Eight kernels of 10 us, two of them without a core."""
    types = ["MatMul", "Fused", "Fused", "FlashAttentionScore", "MatMul", "MatMul", "Add", "MatMul"]
    names = ["a", "flash_attention", "b", "MatMul", "c", "d", "MatMul", "e"]
    cores = ["AI_CORE", "AI_CORE", "AI_CORE", "AI_CORE", "AI_CPU", "aicpu", None, None]
    sink = Sink()
    sink.add("steps", rank=0, step=1, start_ns=0, duration_ns=80 * US)
    sink.add(
        "kernels", rank=0, step=1, name=names, type=types, core=cores, kind="computing", stream="0",
        start_ns=[10 * US * at for at in range(8)], duration_ns=10 * US,
    )  # fmt: skip
    entries = ledger(run_of(sink)).entries
    told = [causes.kind_of(name) for name in ("MatMul", "flash_attention", "b", "FlashAttentionScore")]
    told += [causes.AI_CPU, causes.AI_CPU, causes.kind_of("MatMul"), causes.kind_of("MatMul")]
    found = entries.groupby("cause")["ns"].sum() // (10 * US)
    assert found.to_dict() == {cause: told.count(cause) for cause in told}
