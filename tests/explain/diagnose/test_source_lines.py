"""A finding about the host names the lines of the user's own code in which it was."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from perfkit.core.run import Run
from perfkit.core.texts import told
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.source_lines import called_from
from perfkit.record.load import load


def case_of(frames: dict[str, tuple[int, int]], kind: str = "python") -> Case:
    rows = [
        {"rank": 0, "name": name, "kind": kind, "thread": "1", "start_ns": start, "duration_ns": end - start}
        for name, (start, end) in frames.items()
    ]
    return Case(Run(name="made up", kind="measured", format="kineto", tables={"host": pd.DataFrame(rows)}))


def lines(case: Case, *moments: int) -> tuple[str, ...]:
    return called_from(case, 0, np.array(moments, dtype=np.int64))


OWN = {
    "train.py(41): main": (0, 100),
    "/opt/my_model/loss.py(7): forward": (10, 40),
    "torch/_tensor.py(200): item": (20, 30),
    "multiprocessing/connection.py(374): _recv": (20, 30),
    "/usr/lib/python3.11/site-packages/mine/x.py(3): f": (21, 29),
    "<built-in method item of Tensor object at 0x7f0>": (22, 28),
}


def test_the_innermost_frame_of_own_code_is_named_and_none_of_a_library():
    (action,) = lines(case_of(OWN), 25, 26, 60)
    assert action.endswith("forward (/opt/my_model/loss.py:7), main (train.py:41)")
    assert told(action, "zh").startswith("先看此处")


@pytest.mark.parametrize("moments", [(), (200,)])
def test_where_nothing_of_ones_own_ran_nothing_is_said(moments):
    assert lines(case_of(OWN), *moments) == ()


def test_an_operator_is_no_frame_and_a_run_without_a_host_has_none():
    assert lines(case_of(OWN, kind="operator"), 25) == ()
    assert lines(Case(Run(name="made up", kind="measured", format="kineto", tables={})), 25) == ()


def test_text_of_a_frame_is_shown_as_it_is():
    (action,) = lines(case_of({"a<img src=x>.py(1): {lines}": (0, 10)}), 5)
    assert "{lines} (a<img src=x>.py:1)" in action


def test_a_recorded_training_script_is_found():
    run = load(Path(__file__).parents[2] / "data" / "traces" / "tracelens" / "mi300" / "ddp_resnet18_no_pool")
    host = run.frame("host")
    main = host[host["name"].astype(str) == "train_single_gpu.py(41): main"].iloc[0]
    (action,) = called_from(Case(run), run.ranks[0], np.array([main["start_ns"] + main["duration_ns"] - 1]))
    assert "main (train_single_gpu.py:41)" in action
