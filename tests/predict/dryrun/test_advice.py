"""Advice after a dry run: every branch of the tree fires, and a change that is called enough is enough."""

from dataclasses import replace

import pytest

from perfkit import read_config
from perfkit.core.errors import NotMeasuredError
from perfkit.core.resources import data_folder
from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.units import GIB, THIN_SPACE
from perfkit.predict import dryrun

PLAN = read_config(data_folder() / "dryrun" / "qwen2.5_7b" / "as_trained" / "pretrain.sh")


def peak(used_gib: float, actual_gib: float | None = None, limit_gib: float = 58, rank: int = 0) -> dryrun.LoggedPeak:
    return dryrun.LoggedPeak(
        rank=rank,
        label=f"rank {rank}",
        file="rank_0.log",
        line=1,
        used_bytes=round(used_gib * GIB),
        actual_bytes=round((actual_gib or used_gib) * GIB),
        limit_bytes=round(limit_gib * GIB),
    )


def advice(*peaks: dryrun.LoggedPeak, plan=None) -> dryrun.Advice:
    likely = dryrun.substitute(plan, peaks) if plan else None
    return dryrun.advise(dryrun.rank_rows(peaks, likely), likely)


def freed(found: dryrun.Advice, *, has_plan: bool = True) -> str:
    return dryrun.freed_told(found, has_plan=has_plan)[0].replace(THIN_SPACE, " ")


def test_what_frees_enough_begins_with_what_the_table_says():
    tight, over, far = (advice(peak(size), plan=PLAN) for size in (55, 62, 120))
    assert freed(tight).startswith("It fits already; the cheapest change that frees more is recompute Silu and Mul: it frees ")
    enough = next(step for step in over.steps if step.enough)
    assert freed(over).startswith(f"The cheapest change that is enough is {enough.change}: it frees ")
    assert freed(over).endswith(", 4.00 GiB are needed.")
    assert freed(far).startswith("No single change is enough: ")
    assert freed(far).endswith(" of the 62.0 GiB needed.")


@pytest.mark.parametrize(("size", "told"), [(55, "It fits already; "), (62, "")])
def test_without_changes_to_try_it_is_said_why(size: float, told: str):
    found = advice(peak(size))
    assert (
        freed(found, has_plan=False)
        == f"{told}{'what' if told else 'What'} frees {'more' if told else 'enough'} is told with the plan."
    )
    assert "o change of the plan frees " in freed(found)


def test_much_room_asks_for_less_recomputation_if_there_is_any():
    recomputed = read_config(data_folder() / "dryrun" / "qwen2.5_7b" / "full_recompute" / "pretrain.sh")
    assert advice(peak(34), plan=recomputed).rule == "recompute-with-headroom"
    plain = advice(peak(40))
    assert (plain.verdict, plain.rule) == ("fits", "")
    assert "larger micro batch" in plain.reason
    assert dryrun.freed_told(plain, has_plan=False) == ("None is needed: it fits.", plain.reason)


def test_between_nine_tenths_and_the_limit_it_is_tight():
    assert advice(peak(55)).verdict == "tight"
    assert advice(peak(52)).verdict == "fits"


def test_gaps_that_alone_break_the_limit_are_the_only_advice():
    found = advice(peak(56, 60), plan=PLAN)
    assert (found.rule, found.steps) == ("memory-fragmentation", ())
    assert "enable_vmm:True" in found.reason
    assert freed(found) == "Joining the gaps between blocks is enough."
    assert advice(peak(59, 60)).rule != "memory-fragmentation"


def test_memory_that_stays_is_shared_or_split_first():
    small = replace(PLAN, parallel=ParallelPlan(data_parallel_size=2, tensor_parallel_size=2, pipeline_parallel_size=1))
    likely = dryrun.substitute(small)
    rows = dryrun.rank_rows([], likely, 58 * GIB)
    found = dryrun.advise(rows, likely)
    assert found.rule == "oom-static"
    assert found.steps[0].change == "share the optimizer state"
    changes = [step.change for step in found.steps]
    assert changes.index("share the optimizer state") < changes.index("tensor parallel 4") < changes.index("recompute every layer")


def test_memory_of_a_step_is_recomputed_cheapest_first_and_enough_is_enough():
    found = advice(peak(62, limit_gib=58), plan=PLAN)
    assert found.rule == "oom-dynamic"
    changes = [step.change for step in found.steps]
    assert changes.index("recompute Silu and Mul") < changes.index("recompute every layer")
    for step in found.steps:
        assert step.enough == (step.peak_bytes <= 58 * GIB)
        assert step.saved_bytes > 0


def test_the_fullest_rank_is_judged_also_if_it_has_no_log():
    likely = dryrun.substitute(PLAN, [peak(46, rank=2)])
    rows = dryrun.rank_rows([peak(46, rank=2)], likely)
    row = dryrun.fullest(rows)
    assert row is not None
    assert (row.rank, row.origin) == (0, "predicted")


def test_without_a_limit_nothing_is_judged():
    with pytest.raises(NotMeasuredError):
        dryrun.advise(dryrun.rank_rows([replace(peak(40), limit_bytes=None)]))
    row = dryrun.rank_rows([replace(peak(40), limit_bytes=None)], limit_bytes=30 * GIB)[0]
    assert row.headroom_bytes == -10 * GIB
