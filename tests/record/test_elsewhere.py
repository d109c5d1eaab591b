"""What is no recording is named in one line with where it belongs; two jobs in one folder are never made one run."""

import json
import random
from pathlib import Path

import pytest

from perfkit.core.errors import InputError
from perfkit.record._jobs import GAP_NS, apart
from perfkit.record.load import load

DAY_US = 24 * 3600 * 10**6


@pytest.mark.parametrize(
    ("name", "content", "what", "where"),
    [
        ("run.yaml", "seed: 0\nrun_mode: 'train'\nparallel_config:\n  data_parallel: 8\n", "MindFormers", "read_config"),
        ("pretrain.sh", "torchrun pretrain.py --num-layers 32 --tensor-model-parallel-size 4\n", "Megatron", "read_config"),
        ("config.json", '{\n "architectures": ["LlamaForCausalLM"], "hidden_size": 4096}', "Hugging Face", "read_config"),
        ("et.json", '{"schema": "1.0.1", "pid": 5, "nodes": [{"name": "aten::empty"}]}', "execution trace", "torch.profiler"),
        ("a_results.json", '{"rocprofiler-sdk-tool":[{"metadata":{}}]}', "rocprof", "torch.profiler"),
        ("host.xplane.pb", "\n\x05/host", "XPlane", "TensorBoard"),
        ("report.nsys-rep", "x" * 50, "Nsight Systems", "nsys export"),
        ("profiler_metadata.json", '{"ENV_VARIABLES": {}}', "metadata", "folder of the recording"),
        ("flops_summary_0.json", '{"cube_FLOPs": 1.5}', "MindSpore Insight", "folder of the recording"),
        ("aicpu_intermediate_1.csv", "serial_number,node_type_name\n", "MindSpore Insight", "folder of the recording"),
        ("operator_details.csv", "Name,Input Shapes,Call Stack\n", "Ascend profile", "folder of the recording"),
        ("notes.md", "# Notes", "document", "folder of the recording"),
        (
            "trace.json",
            '"dur": 5},\n{"ph": "X", "name": "a", "ts": 1, "dur": 2},\n{"ph"',
            "beginning",
            "copy it again",
        ),
    ],
)
def test_a_file_of_another_kind_is_named_in_one_line(tmp_path: Path, name: str, content: str, what: str, where: str):
    (tmp_path / name).write_text(content)
    for path in (tmp_path, tmp_path / name):
        with pytest.raises(InputError) as refused:
            load(path, cache=False)
        assert len(refused.value.problems) == 1
        assert what in refused.value.problems[0]
        assert where in refused.value.problems[0]


def _trace(rank: int, base_us: int, jitter_us: int = 0) -> str:
    """Twenty all-reduces, their times off by up to `jitter_us` from those of another run."""
    chance = random.Random(rank)
    args = {"stream": 7, "Collective name": "allreduce", "Process Group Name": "0", "Group size": 2, "In msg nelems": 8}
    kernel = {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce", "pid": 0, "tid": 7, "dur": 50, "args": args}
    events = [kernel | {"ts": base_us + number * 100_000 + chance.randint(0, jitter_us)} for number in range(20)]
    return json.dumps({"distributedInfo": {"rank": rank}, "traceEvents": events})


def test_ranks_recorded_days_apart_are_two_jobs_of_which_one_is_shown_and_the_other_named(tmp_path: Path):
    base_us = 1_700_000_000_000_000
    for rank, at_us in ((0, base_us), (1, base_us + 5), (2, base_us + 8 * DAY_US)):
        (tmp_path / f"rank{rank}.json").write_text(_trace(rank, at_us))
    run = load(tmp_path, cache=False)
    assert list(run.ranks) == [0, 1]
    assert [(lost.count, "8.0 days later" in lost.what) for lost in run.dropped] == [(1, True)]
    assert any("2 jobs" in note for note in run.notes)
    assert all(abs(offset_ns) < 10**9 for offset_ns in run.clock.values())


def test_recordings_that_overlap_are_of_one_time_whatever_clocks_of_machines_say():
    epoch = 1_700_000_000 * 10**9
    second = (epoch + 9, epoch + 10)
    assert apart({0: (epoch, epoch + 9), 1: second}) == [[0, 1]]
    assert apart({0: (epoch, epoch + 8), 1: second, 2: (epoch + 5, epoch + 6)}) == [[0, 2], [1]]
    assert apart({0: (5, 6), 1: (10**17, 10**17)}) == []


@pytest.mark.parametrize("hours", [1, 2.5, 25])
def test_ranks_recorded_hours_apart_are_one_job_only_where_they_left_their_collectives_together(tmp_path: Path, hours: float):
    base_us = 1_700_000_000_000_000
    for name, jitter_us in (("one", 0), ("two", 40_000)):
        (tmp_path / name).mkdir()
        for rank, at_us in ((0, base_us), (1, base_us + int(hours * 3600 * 10**6))):
            text = _trace(rank, at_us, jitter_us * rank)
            (tmp_path / name / f"rank{rank}.json").write_text(text)
    together, apart_ = (load(tmp_path / name, cache=False) for name in ("one", "two"))
    assert together.ranks == (0, 1)
    assert abs(together.clock[1] - together.clock[0]) == hours * 3600 * 10**9
    assert not together.dropped
    assert apart_.ranks == (1,)
    assert not any(apart_.clock.values())
    assert [f"{hours:.1f} hours earlier" in lost.what or hours > 24 for lost in apart_.dropped] == [True]


@pytest.mark.parametrize("gap_s", [0.5, 20, 59])
def test_two_jobs_less_than_a_minute_apart_are_told_apart_by_how_they_left_their_collectives(tmp_path: Path, gap_s: float):
    base_us = 1_700_000_000_000_000
    later_us = base_us + 20 * 100_000 + int(gap_s * 10**6)
    for name, jitter_us in (("one", 0), ("two", 40_000)):
        (tmp_path / name).mkdir()
        for rank, at_us in ((0, base_us), (1, later_us)):
            (tmp_path / name / f"rank{rank}.json").write_text(_trace(rank, at_us, jitter_us * rank))
    assert load(tmp_path / "one", cache=False).ranks == (0, 1)
    apart_ = load(tmp_path / "two", cache=False)
    assert apart_.ranks == (1,)
    assert [f"{2 + gap_s:.1f} seconds earlier" in lost.what or gap_s > 57 for lost in apart_.dropped] == [True]


def test_close_recordings_without_shared_collectives_stay_one_job(tmp_path: Path):
    for rank in range(2):
        kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "dur": 50, "args": {"stream": 7}}
        events = [kernel | {"ts": 1_700_000_000_000_000 + rank * (GAP_NS // 2000) + number * 100} for number in range(20)]
        (tmp_path / f"rank{rank}.json").write_text(json.dumps({"distributedInfo": {"rank": rank}, "traceEvents": events}))
    assert load(tmp_path, cache=False).ranks == (0, 1)


def test_two_jobs_that_never_communicated_are_two(tmp_path: Path):
    for rank in range(2):
        kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "dur": 50, "args": {"stream": 7}}
        events = [kernel | {"ts": 1_700_000_000_000_000 + rank * 3600 * 10**6 + number * 100} for number in range(20)]
        (tmp_path / f"rank{rank}.json").write_text(json.dumps({"distributedInfo": {"rank": rank}, "traceEvents": events}))
    run = load(tmp_path, cache=False)
    assert run.ranks == (1,)
    assert ["1.0 hours earlier" in lost.what for lost in run.dropped] == [True]
