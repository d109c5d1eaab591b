"""DryRun commands: which ranks, which variables by version, every wrong rank at once."""

import pytest

from perfkit.core.errors import InputError
from perfkit.core.spec.model import ModelSpec
from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.workload import Workload
from perfkit.predict import dryrun

MODEL = ModelSpec(
    num_layers=8,
    hidden_size=1024,
    num_attention_heads=16,
    num_key_value_heads=16,
    head_size=64,
    ffn_hidden_size=4096,
    vocab_size=32000,
)
PLAN = Plan(
    model=MODEL,
    workload=Workload(seq_length=1024, micro_batch_size=1, global_batch_size=16),
    parallel=ParallelPlan(data_parallel_size=2, tensor_parallel_size=2, pipeline_parallel_size=4),
)


def test_the_first_and_last_rank_of_every_stage_are_of_interest():
    assert dryrun.ranks_of_interest(PLAN) == (0, 3, 4, 7, 8, 11, 12, 15)
    assert [dryrun.stage_of(rank, PLAN) for rank in (0, 3, 4, 15)] == [0, 0, 1, 3]


def test_one_command_a_rank_with_the_size_of_the_whole_job():
    text = dryrun.commands(PLAN, "2.7")[0].text
    lines = text.replace("\\\n", "").splitlines()[1:]
    assert [line.split("RANK_ID=")[1].split()[0] for line in lines] == ["0", "3", "4", "7", "8", "11", "12", "15"]
    assert all("RANK_SIZE=16 " in line and "MS_SIMULATION_LEVEL=1" in line and "MS_MEMORY_STATISTIC=1" in line for line in lines)
    assert all(f"rank_{line.split('RANK_ID=')[1].split()[0]}.log" in line for line in lines)


def test_the_variables_of_the_version_come_first():
    newer, older = (dryrun.commands(PLAN, version)[0].text for version in ("2.5", "2.4"))
    assert "MS_KERNEL_LAUNCH_SKIP=all" in newer
    assert "ENABLE_CELL_REUSE" not in newer
    assert "ENABLE_CELL_REUSE=1" in older
    assert "MS_KERNEL_LAUNCH_SKIP" not in older


def test_every_rank_that_the_plan_does_not_have_is_named():
    with pytest.raises(InputError) as caught:
        dryrun.commands(PLAN, ranks=[0, 16, 99])
    assert len(caught.value.problems) == 2
    assert "16 devices" in caught.value.problems[0]
