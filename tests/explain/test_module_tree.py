"""Time by module: own times are what is left of a module without those inside, and never less than nothing."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from perfkit.explain.module_tree import module_tree
from perfkit.record.format import Sink
from perfkit.record.load import load
from tests.explain.diagnose.made import run_of

DATA = Path(__file__).parents[1] / "data" / "traces"


@pytest.mark.parametrize("seed", range(5))
def test_own_times_sum_to_those_of_the_outermost_modules_also_where_inner_ones_outlive_them(seed: int):
    random = np.random.default_rng(seed)
    starts, lengths = random.integers(0, 1000, 60), random.integers(1, 300, 60)
    names = [f"nn.Module: M_{at}" for at in range(60)]
    sink = Sink()
    sink.add("host", rank=0, name=names, kind="python", thread="1", start_ns=starts, duration_ns=lengths)
    sink.add("kernels", rank=0, step=0, name="k", kind="computing", start_ns=[1], duration_ns=1)
    tree = module_tree(run_of(sink), 0)
    assert (tree["own_host_ns"] >= 0).all()
    assert tree["own_host_ns"].sum() == tree.loc[tree["depth"] == 0, "host_ns"].sum()


def _span(category: str, name: str, thread: int, start: int, length: int, **arguments: object) -> dict[str, object]:
    named = {key.replace("_", " "): value for key, value in arguments.items()}
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": thread, "ts": start, "dur": length, "args": named}


def test_what_autograd_launches_belongs_to_the_module_of_its_forward_operator(tmp_path: Path):
    forward, autograd = 10, 20
    modules = [_span("python_function", f"nn.Module: Linear_{at}", forward, 100 * at, 90) for at in range(3)]
    outer = _span("python_function", "nn.Module: Net_0", forward, 0, 300)
    operators = [
        _span("cpu_op", "aten::linear", forward, 100 * at + 10, 50, Sequence_number=at + 5, Fwd_thread_id=0) for at in range(3)
    ]
    inner = _span("cpu_op", "aten::zeros", forward, 112, 5, Sequence_number=6, Fwd_thread_id=0)
    # the thread of autograd counts for itself, and has numbers of its own
    own = _span("cpu_op", "aten::mul", autograd, 1001, 5, Sequence_number=5, Fwd_thread_id=0)
    events = [outer, *modules, *operators, inner, own]
    for at, (number, length) in enumerate(((7, 30), (6, 20), (5, 10), (99, 7))):
        begin = 1000 + 100 * at
        events += [
            _span("cpu_op", "autograd::engine::evaluate_function", autograd, begin, 90, Sequence_number=number, Fwd_thread_id=1),
            _span("cuda_runtime", "cudaLaunchKernel", autograd, begin + 20, 5, correlation=at + 1),
            _span("kernel", "gemm", 7, begin + 40, length, correlation=at + 1, stream=7, device=0),
        ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    tree = load(path, cache=False).modules().set_index("path")
    net = "nn.Module: Net_0"
    assert (tree["device_ns"] == 0).all()
    assert [tree.loc[f"{net} / nn.Module: Linear_{at}", "own_backward_device_ns"] for at in range(3)] == [10_000, 20_000, 30_000]
    assert (tree.loc[net, "backward_device_ns"], tree.loc[net, "own_backward_device_ns"]) == (60_000, 0)


def test_the_backward_pass_of_a_real_training_is_placed_in_its_modules():
    run = load(DATA / "tracelens/mi300/ddp_resnet18_no_pool")
    tree = run.modules()
    launches = run.frame("launches")
    forward = tree.loc[tree["depth"] == 0, "device_ns"].sum()
    by_thread = launches["duration_ns"].groupby(launches["thread"].astype(str)).sum()
    backward = tree["own_backward_device_ns"].sum()
    assert backward == tree.loc[tree["depth"] == 0, "backward_device_ns"].sum()
    assert 0.999 * by_thread["1/108"] <= backward <= by_thread["1/108"]
    assert 1.5 < backward / forward < 3  # two products for one, and what it reads again
