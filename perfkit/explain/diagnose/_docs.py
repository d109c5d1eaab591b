"""The rules as a page of the documentation, made from the rules themselves."""

from __future__ import annotations

import importlib

from perfkit.core import quantity
from perfkit.core.units import format_entry, rounded
from perfkit.explain.diagnose._engine import all_rules
from perfkit.explain.diagnose.rule import Rule
from perfkit.explain.diagnose.thresholds import HIGH_SHARE, LEAST_SHARE, MEDIUM_SHARE

HEAD = """# Rules

What `perfkit diagnose` looks for; [questions.md](questions.md) says which rule answers which question. This
page is made from the rules (`python -m perfkit.explain.diagnose._docs > docs/rules.md`).

A rule gives findings, says "healthy" with the numbers that show it, or is not measured and says how to collect what is missing.
Missing data never mean healthy. The cost of a finding is the time that a step would win without it, a mean over the steps after
warm-up; the costs of one run never sum to more than its step. Severity follows from the share of the step ({high:g} and more is
high, {medium:g} medium), unless a rule says otherwise; findings of less than {least:g} are left out. A symptom that another finding
explains is listed under that finding's `next`. Every threshold can be changed:
`perfkit.diagnose(run, limits={{"slow-rank-excess": 0.03}})`.

What a recording cannot show is not guessed: of a recording without marks of steps, which counts as one step, nothing is counted a
step; ranks whose kernels hold less than 0.9 of the computing time that is stated say nothing about idle times; and with fewer than
three steps a cost is at most of medium severity.
"""


def page() -> str:
    """The page in Markdown."""
    head = HEAD.format(high=HIGH_SHARE.value, medium=MEDIUM_SHARE.value, least=LEAST_SHARE.value)
    return "\n".join([head, *(_section(rule) for rule in all_rules())])


def _section(rule: Rule) -> str:
    doc = (importlib.import_module(rule.check.__module__).__doc__ or "").strip()
    needs = f"Needs {_names(rule.needs)}. To collect" if rule.needs else "To collect"
    lines = [f"## {rule.name}", "", doc, "", f"{needs}: {rule.how_to_collect}.", ""]
    if rule.explains:
        lines += [f"Explains: {_names(rule.explains)}.", ""]
    if rule.symptom_of:
        lines += [f"Said more exactly by: {_names(rule.symptom_of)}.", ""]
    if rule.thresholds:
        lines += ["| threshold | value | unit | origin |", "|---|---|---|---|"]
        lines += [f"| `{known.name}` | {_value(known.value)} | {known.unit} | {known.origin} |" for known in rule.thresholds]
        lines += [""]
    return "\n".join(lines)


def _value(value: float) -> str:
    return quantity.text("threshold", round(value)) if value >= 1000 else format_entry(rounded(value, 4))


def _names(names: frozenset[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


if __name__ == "__main__":
    print(page(), end="")
