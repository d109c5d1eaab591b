"""perfkit: predict, measure and tune the training of large models.

Measured:   load(path) -> Run with pandas frames; diagnose(run), what_if(run, changes), compare(a, b), report(run, out)
Predicted:  read_config(path) -> Plan; estimate(plan), estimate_table(table), search_plans(...), balance(...)
            simulate_schedule(...)
Around it:  ExperimentLog(folder), lint(...), explain_fragment(text), read_graph(folder), simulate(...),
            write_config(...), demo(folder)

`help(perfkit.load)` says what each takes, gives and refuses. `perfkit serve FOLDER` shows the same as guided pages. The functions
are imported when first used, so that `import perfkit` costs nothing.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perfkit.config.dialects import write_config as write_config
    from perfkit.config.lint import lint as lint
    from perfkit.explain.compare import compare as compare
    from perfkit.explain.diagnose import diagnose as diagnose
    from perfkit.explain.fragments import explain_fragment as explain_fragment
    from perfkit.explain.graph import read_graph as read_graph
    from perfkit.explain.what_if import what_if as what_if
    from perfkit.face.report import report as report
    from perfkit.predict.estimate import estimate as estimate
    from perfkit.predict.estimate import estimate_table as estimate_table
    from perfkit.predict.plans.balance.balance import balance as balance
    from perfkit.predict.plans.schedule.schedule import simulate_schedule as simulate_schedule
    from perfkit.predict.plans.search.search import search_plans as search_plans
    from perfkit.predict.reading import read_config as read_config
    from perfkit.predict.simulate.run import simulate as simulate
    from perfkit.project.experiments import ExperimentLog as ExperimentLog
    from perfkit.project.sample import demo as demo
    from perfkit.record.load import load as load

__version__ = "0.2.0"

_PUBLIC = {
    "compare": "perfkit.explain.compare",
    "ExperimentLog": "perfkit.project.experiments",
    "demo": "perfkit.project.sample",
    "diagnose": "perfkit.explain.diagnose",
    "explain_fragment": "perfkit.explain.fragments",
    "estimate": "perfkit.predict.estimate",
    "estimate_table": "perfkit.predict.estimate",
    "read_config": "perfkit.predict.reading",
    "write_config": "perfkit.config.dialects",
    "read_graph": "perfkit.explain.graph",
    "lint": "perfkit.config.lint",
    "load": "perfkit.record.load",
    "balance": "perfkit.predict.plans.balance.balance",
    "report": "perfkit.face.report",
    "search_plans": "perfkit.predict.plans.search.search",
    "simulate": "perfkit.predict.simulate.run",
    "simulate_schedule": "perfkit.predict.plans.schedule.schedule",
    "what_if": "perfkit.explain.what_if",
}

_MODULES = {"classroom": "perfkit.teach", "widgets": "perfkit.face.widgets"}
"""Modules that are public under a name of their own."""


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    if name == "panels":
        raise ImportError("this notebook is of perfkit before 0.2, whose pages were panels; `perfkit notebooks` has those of today")
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
