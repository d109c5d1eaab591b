"""A diagnosis as text for a terminal."""

from __future__ import annotations

from typing import Any, TextIO

from perfkit.core import quantity
from perfkit.core.shortening import shortened
from perfkit.core.texts import say as in_form
from perfkit.core.texts import told
from perfkit.core.units import format_ns, format_ratio
from perfkit.face.cli._screen import Style, Styled, say, screen_width

LEAST_SHOWN = 0.005
BAR = 40
WORDS = 70
MODULES = 5
"""So many modules of the network are told, those that compute longest."""
UNEXPLAINED = "unexplained"
"""How the causes of time begin that has none."""
SEVERITIES: dict[str, Style] = {"high": "red", "medium": "yellow", "low": "cyan"}


def print_diagnosis(document: dict[str, Any], out: TextIO) -> None:
    """Print the findings with cost, evidence and actions, then what is healthy, not measured or failed."""
    number = len(document["findings"])
    count = in_form("{num} finding" if number == 1 else "{num} findings", num=str(number))
    step = told(in_form(", mean step {step_ns}", step_ns=document["step_ns"])) if document["step_ns"] is not None else ""
    say(out, Styled(f"{document['run']}{step}: {told(count)}", "bold"))
    for note in document["notes"]:
        say(out, f"{told('note')}: {told(note)}")
    for number, finding in enumerate(document["findings"], start=1):
        _print_finding(number, finding, out)
    _print_ledger(document, out)
    _print_others(document, out)


def _print_ledger(document: dict[str, Any], out: TextIO) -> None:
    """The mean step by cause as a waterfall: the largest first, each from where the one before ends, unexplained time last."""
    if document["explained_share"] is None:
        return
    rows = document["waterfall"]
    lacking = [row for row in rows if row["cause"].startswith(UNEXPLAINED)]
    causes = [row for row in rows if row["share"] >= LEAST_SHOWN and row not in lacking]
    parts = [(told(row["words"]) + (f" (rank {row['who']})" if row["who"] >= 0 else ""), row["ns"]) for row in causes]
    small = [row["ns"] for row in rows if row["share"] < LEAST_SHOWN and row not in lacking[:1]]
    if small:
        form = "{num} smaller cause" if len(small) == 1 else "{num} smaller causes"
        parts.append((told(in_form(form, num=str(len(small)))), sum(small)))
    known = len(parts)
    parts += [(told(row["words"]), row["ns"]) for row in lacking if row["share"] >= LEAST_SHOWN or row == lacking[0]]
    whole = sum(row["ns"] for row in rows)
    say(out, Styled(f"\n{told('where the mean step of a rank went')}:", "bold"))
    _print_part(told("the mean step of a rank"), (0, whole, whole), "cyan", out)
    begun = 0
    for number, (words, amount) in enumerate(parts):
        _print_part(words, (begun, amount, whole), "cyan" if number < known else "dim", out)
        begun += amount
    by_module: dict[str, int] = {}
    for row in document["modules"]:
        by_module[row["module"]] = by_module.get(row["module"], 0) + row["ns"]
    for module in sorted(by_module, key=by_module.__getitem__, reverse=True)[:MODULES]:
        figures = f"  {format_ns(by_module[module]):>8} {format_ratio(by_module[module] / whole):>7}"
        say(out, figures, " ", in_form("computing in {module}", module=module or told("no module")))
    form = "explained {explained_share}, unexplained {unexplained_share}"
    shares = {name: document[name] for name in ("explained_share", "unexplained_share")}
    say(out, Styled(in_form(form, **shares), "bold"))


def _print_part(words: str, piece: tuple[int, int, int], style: Style, out: TextIO) -> None:
    """One row of the waterfall: where its piece begins, how long it is, and the whole; narrow terminals have words and no bar."""
    begun, amount, whole = piece
    width = screen_width(out)
    cells = BAR if width is None else min(BAR, max(0, width - WORDS))
    first, last = (round(cells * moment / whole) if whole else 0 for moment in (begun, begun + amount))
    figures = f"  {format_ns(amount):>8} {format_ratio(amount / whole if whole else 0.0):>7} "
    bar = f"{' ' * first}{'#' * (last - first)}{' ' * (cells - last)} " if cells else ""
    text = words if width is None else shortened(words, width - len(figures) - len(bar))
    say(out, figures, Styled(bar, style), text, wrapped=False)


def _print_finding(number: int, finding: dict[str, Any], out: TextIO) -> None:
    evidence = finding["evidence"]
    alone = evidence.get("cost_alone_ns")
    form = "{cost_ns} of the mean step ({share_of_step})"
    if finding["cost_ns"] is None:
        form = "costs no time of the mean step, or it is not known how much"
    elif alone is not None and alone > finding["cost_ns"]:
        form = "{cost_ns} of the mean step ({share_of_step}); alone {cost_alone_ns}, of which other findings win the rest"
    elif alone is not None:
        form = "{cost_ns} of the mean step ({share_of_step}); alone {cost_alone_ns}, the rest only together with others"
    cost = in_form(form, **{"cost_ns": finding["cost_ns"], "share_of_step": finding["share_of_step"], "cost_alone_ns": alone})
    severity, title = Styled(told(finding["severity"]), SEVERITIES[finding["severity"]]), Styled(told(finding["title"]), "bold")
    say(out, f"\n{number}. ", severity, ": ", title, f" [{finding['rule']}]")
    say(out, f"   {told(cost)}")
    say(out, f"   {told('evidence')}: {quantity.listed(evidence, told)}")
    for action in finding["actions"]:
        say(out, f"   - {told(action)}")
    if finding["next"]:
        say(out, f"   {told('see also')}: {', '.join(finding['next'])}")


def _print_others(document: dict[str, Any], out: TextIO) -> None:
    if document["healthy"]:
        say(out, Styled(f"\n{told('healthy')}:", "green"))
        for entry in document["healthy"]:
            say(out, f"  {entry['rule']}: {quantity.listed(entry['evidence'], told)}")
    if document["not_measured"]:
        say(out, Styled(f"\n{told('not measured')}:", "bold"))
        for entry in document["to_collect"]:
            say(out, f"  {', '.join(entry['rules'])}. {told('To collect')}: {told(entry['how_to_collect'])}")
    for entry in document["failed"]:
        form = "rule {rule} failed, which is a bug of perfkit: {reason}"
        say(out, "\n", in_form(form, rule=entry["rule"], reason=entry["error"]))
