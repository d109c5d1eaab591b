"""perfkit: predict, measure and tune the training of large models.

Measured:   load(path) -> Run with pandas frames; diagnose(run), what_if(run, changes), compare(a, b), report(run, out)
Predicted:  read_config(path) -> Plan; estimate(plan), estimate_table(table), search_plans(...), balance(...)
            simulate_schedule(...)
Around it:  ExperimentLog(folder), lint(...), read_graph(folder), simulate(...), write_config(...), demo(folder)

`help(perfkit.load)` says what each takes, gives and refuses. `perfkit serve FOLDER` shows the same as guided pages. The functions
are imported when first used, so that `import perfkit` costs nothing.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perfkit.compare import compare as compare
    from perfkit.diagnose import diagnose as diagnose
    from perfkit.dialects import read_config as read_config
    from perfkit.dialects import write_config as write_config
    from perfkit.estimate import estimate as estimate
    from perfkit.estimate import estimate_table as estimate_table
    from perfkit.experiments import ExperimentLog as ExperimentLog
    from perfkit.graph import read_graph as read_graph
    from perfkit.lint import lint as lint
    from perfkit.plans.balance import balance as balance
    from perfkit.plans.schedule import simulate_schedule as simulate_schedule
    from perfkit.plans.search import search_plans as search_plans
    from perfkit.report import report as report
    from perfkit.sample import demo as demo
    from perfkit.simulate.run import simulate as simulate
    from perfkit.trace.load import load as load
    from perfkit.what_if import what_if as what_if

__version__ = "0.1.0"

_PUBLIC = {
    "compare": "perfkit.compare",
    "ExperimentLog": "perfkit.experiments",
    "demo": "perfkit.sample",
    "diagnose": "perfkit.diagnose",
    "estimate": "perfkit.estimate",
    "estimate_table": "perfkit.estimate",
    "read_config": "perfkit.dialects",
    "write_config": "perfkit.dialects",
    "read_graph": "perfkit.graph",
    "lint": "perfkit.lint",
    "load": "perfkit.trace.load",
    "balance": "perfkit.plans.balance",
    "report": "perfkit.report",
    "search_plans": "perfkit.plans.search",
    "simulate": "perfkit.simulate.run",
    "simulate_schedule": "perfkit.plans.schedule",
    "what_if": "perfkit.what_if",
}


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'perfkit' has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted([*_PUBLIC, "__version__"])


class _Package(ModuleType):
    """The package: a public name stays the function also after the module of the same name was imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _PUBLIC and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
