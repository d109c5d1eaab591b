"""A diagnosis as text for a terminal."""

from __future__ import annotations

from typing import Any, TextIO

from perfkit.core import quantity
from perfkit.core.shortening import shortened
from perfkit.core.units import format_ns, format_ratio
from perfkit.face.cli._screen import Style, Styled, say, screen_width

LEAST_SHOWN = 0.005
BAR = 40
WORDS = 70
MODULES = 5
"""So many modules of the network are told, those that compute longest."""
UNEXPLAINED = "unexplained"
SEVERITIES: dict[str, Style] = {"high": "red", "medium": "yellow", "low": "cyan"}


def print_diagnosis(document: dict[str, Any], out: TextIO) -> None:
    """Print the findings with cost, evidence and actions, then what is healthy, not measured or failed."""
    step = "" if document["step_ns"] is None else f", mean step {format_ns(document['step_ns'])}"
    say(out, Styled(f"{document['run']}{step}: {_count(len(document['findings']), 'finding')}", "bold"))
    for note in document["notes"]:
        say(out, f"note: {note}")
    for number, finding in enumerate(document["findings"], start=1):
        _print_finding(number, finding, out)
    _print_ledger(document, out)
    _print_others(document, out)


def _print_ledger(document: dict[str, Any], out: TextIO) -> None:
    """The mean step by cause as a waterfall: the largest first, each from where the one before ends, unexplained time last."""
    if document["explained_share"] is None:
        return
    rows = document["waterfall"]
    causes = [row for row in rows if row["share"] >= LEAST_SHOWN and row["cause"] != UNEXPLAINED]
    parts = [(row["words"] if row["who"] < 0 else f"{row['words']} (rank {row['who']})", row["ns"]) for row in causes]
    small = [row["ns"] for row in rows if row["share"] < LEAST_SHOWN and row["cause"] != UNEXPLAINED]
    if small:
        parts.append((_count(len(small), "smaller cause"), sum(small)))
    parts += [(row["words"], row["ns"]) for row in rows if row["cause"] == UNEXPLAINED]
    whole = sum(row["ns"] for row in rows)
    say(out, Styled("\nwhere the mean step of a rank went:", "bold"))
    _print_part("the mean step of a rank", 0, whole, whole, out)
    begun = 0
    for words, amount in parts:
        _print_part(words, begun, amount, whole, out)
        begun += amount
    by_module: dict[str, int] = {}
    for row in document["modules"]:
        by_module[row["module"]] = by_module.get(row["module"], 0) + row["ns"]
    for module in sorted(by_module, key=by_module.__getitem__, reverse=True)[:MODULES]:
        figures = f"  {format_ns(by_module[module]):>8} {format_ratio(by_module[module] / whole):>7}"
        say(out, f"{figures} computing in {module or 'no module'}")
    share = document["explained_share"]
    say(out, Styled(f"explained {format_ratio(share)}, unexplained {format_ratio(1 - share)}", "bold"))


def _print_part(words: str, begun: int, amount: int, whole: int, out: TextIO) -> None:
    """One row of the waterfall; the bar gives way to the words on a narrow terminal."""
    width = screen_width(out)
    cells = BAR if width is None else min(BAR, max(0, width - WORDS))
    first, last = (round(cells * moment / whole) if whole else 0 for moment in (begun, begun + amount))
    figures = f"  {format_ns(amount):>8} {format_ratio(amount / whole if whole else 0.0):>7} "
    bar = f"{' ' * first}{'#' * (last - first)}{' ' * (cells - last)} " if cells else ""
    text = words if width is None else shortened(words, width - len(figures) - len(bar))
    say(out, figures, Styled(bar, "dim" if words.startswith(UNEXPLAINED) else "cyan"), text, wrapped=False)


def _print_finding(number: int, finding: dict[str, Any], out: TextIO) -> None:
    cost = (
        "costs no time, or it is not known how much"
        if finding["cost_ns"] is None
        else f"{format_ns(finding['cost_ns'])} of the mean step ({format_ratio(finding['share_of_step'])})"
    )
    if (alone := finding["evidence"].get("cost_alone_ns")) is not None:
        whose = "of which other findings win the rest" if alone > finding["cost_ns"] else "the rest only together with others"
        cost += f"; alone {format_ns(alone)}, {whose}"
    severity, title = Styled(finding["severity"], SEVERITIES[finding["severity"]]), Styled(finding["title"], "bold")
    say(out, f"\n{number}. ", severity, ": ", title, f" [{finding['rule']}]")
    say(out, f"   {cost}")
    say(out, f"   evidence: {quantity.listed(finding['evidence'])}")
    for action in finding["actions"]:
        say(out, f"   - {action}")
    if finding["next"]:
        say(out, f"   see also: {', '.join(finding['next'])}")


def _print_others(document: dict[str, Any], out: TextIO) -> None:
    if document["healthy"]:
        say(out, Styled("\nhealthy:", "green"))
        for entry in document["healthy"]:
            say(out, f"  {entry['rule']}: {quantity.listed(entry['evidence'])}")
    if document["not_measured"]:
        say(out, Styled("\nnot measured:", "bold"))
        for entry in document["to_collect"]:
            say(out, f"  {', '.join(entry['rules'])}. To collect: {entry['how_to_collect']}")
    for entry in document["failed"]:
        say(out, f"\nrule {entry['rule']} failed, which is a bug of perfkit: {entry['error']}")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
