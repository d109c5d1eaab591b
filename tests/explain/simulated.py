"""A simulated run of sixteen ranks with faults, written as a folder that pages open."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

from perfkit.face.export.write import write
from perfkit.predict.simulate import simulate
from tests.predict.simulate.plans import plan_of


@cache
def simulated(*faults: str, steps: int = 4) -> str:
    """The folder of a run of dp 4, tp 2, pp 2 with these faults; made once for all tests."""
    plan = plan_of("gpt-7.5b", 32, micro=2, dp=4, tp=2, pp=2)
    plan = replace(plan, model=replace(plan.model, num_layers=4))
    folder = Path(tempfile.mkdtemp(prefix="perfkit-simulated-")) / "run"
    return str(write(simulate(plan, faults, seed=3, steps=steps), folder))
