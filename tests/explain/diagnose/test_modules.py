"""The module of the network that is slow is named, of whatever says which module is computed."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pandas as pd
import pytest

from benchmarks.diagnosis._rewritten import stretched
from benchmarks.diagnosis._timed_anew import Recording, Stretched
from perfkit.explain.diagnose import Finding, diagnose
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.modules import told
from perfkit.explain.diagnose.rules import slow_operators
from perfkit.explain.module_tree import modules_of
from perfkit.record.load import load
from tests.explain.diagnose.made import Training

TRACES = Path(__file__).parents[2] / "data" / "traces"
QWEN = "tracelens/h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz"
ALEXNET = "msprof_export/alexnet"


@cache
def recording(name: str) -> Recording:
    return Recording(load(TRACES / name))


def slowed(name: str, module: str, times: float) -> tuple[Finding, ...]:
    """What is found with the recording as the baseline of a copy in which one module computes so many times as long."""
    read = recording(name)
    kernels = read.run.frame("kernels")
    more: dict[int, int] = {}
    for rank in read.run.ranks:
        own = kernels[(kernels["rank"] == rank).to_numpy() & kernels["start_ns"].notna().to_numpy()]
        own = own.sort_values("start_ns", kind="stable")
        inside = pd.Series(modules_of(read.run, rank), index=own.index).str.startswith(module).to_numpy(dtype=bool)
        lengths = own.loc[inside & (own["kind"] == "computing").to_numpy(), "duration_ns"]
        more |= {int(row): round((times - 1) * int(ns)) for row, ns in lengths.items()}
    assert more
    return diagnose(stretched(read, Stretched(kernels_ns=more)), read.run, only=[slow_operators.RULE]).findings


@pytest.mark.parametrize(
    ("name", "module", "times"),
    [
        (QWEN, "Qwen2Model_0/Qwen2DecoderLayer_13/Qwen2MLP_13", 8.0),
        (QWEN, "Qwen2Model_0/Qwen2DecoderLayer_5/Qwen2Attention_5", 8.0),
        (ALEXNET, "network-WithLossCell/_backbone-AlexNet/fc3-Dense", 3.0),
    ],
)
def test_a_module_that_is_slower_than_in_the_baseline_is_named(name: str, module: str, times: float):
    (found,) = slowed(name, module, times)
    assert len(found.subject["modules"]) == 1
    assert found.subject["modules"][0].startswith(module)
    assert found.actions[0].startswith(f"look at the module {module}")


def test_time_that_all_modules_of_a_kind_share_names_the_kind():
    found = {finding.rule: finding for finding in diagnose(recording(QWEN).run).findings}["excess-casts"]
    assert {path.rsplit("/")[-1].rsplit("_")[0] for path in found.subject["modules"]} == {"Qwen2Attention"}
    assert len(found.subject["modules"]) == 24
    assert found.actions[0].startswith("look at the 24 modules Qwen2Attention first")


def test_a_recording_without_modules_names_none():
    case = Case(Training().run())
    rows = case.computing
    assert case.ledger.modules.empty
    bare = Finding(rule="x", title="x", subject={}, evidence={}, actions=())
    assert told(bare, case, rows, rows["duration_ns"]) is bare


def test_modules_of_gradients_are_those_of_their_forward_operators():
    run = load(TRACES / ALEXNET)
    names = run.frame("kernels", ranks=[run.ranks[0]]).sort_values("start_ns", kind="stable")["name"].astype(str)
    modules = pd.Series(modules_of(run, run.ranks[0]))
    gradients = names.str.contains("fc3-Dense/grad").to_numpy(dtype=bool)
    assert gradients.any()
    assert set(modules[gradients]) == {"network-WithLossCell/_backbone-AlexNet/fc3-Dense"}
