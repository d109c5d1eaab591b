"""A diagnosis as text for a terminal."""

from __future__ import annotations

from typing import Any, TextIO

from perfkit.core import quantity
from perfkit.core.units import format_ns, format_ratio
from perfkit.record.listing import printable

LEAST_SHOWN = 0.005
BAR = 20


def print_diagnosis(document: dict[str, Any], out: TextIO) -> None:
    """Print the findings with cost, evidence and actions, then what is healthy, not measured or failed."""
    step = "" if document["step_ns"] is None else f", step {format_ns(document['step_ns'])}"
    print(f"{printable(document['run'])}{step}: {_count(len(document['findings']), 'finding')}", file=out)
    for note in document["notes"]:
        print(f"note: {printable(note)}", file=out)
    for number, finding in enumerate(document["findings"], start=1):
        _print_finding(number, finding, out)
    _print_ledger(document, out)
    _print_others(document, out)


def _print_ledger(document: dict[str, Any], out: TextIO) -> None:
    """The mean step by cause, the largest first, down to what is unexplained."""
    if document["explained_share"] is None:
        return
    print("\nwhere the mean step of a rank went:", file=out)
    shown = [row for row in document["waterfall"] if row["share"] >= LEAST_SHOWN or row["cause"] == "unexplained"]
    for row in shown:
        whom = "" if row["who"] < 0 else f" (rank {row['who']})"
        bar = "#" * round(BAR * row["share"])
        print(f"  {format_ns(row['ns']):>8} {format_ratio(row['share']):>7} {bar:<{BAR}} {row['words']}{whom}", file=out)
    if len(shown) < len(document["waterfall"]):
        rest = sum(row["ns"] for row in document["waterfall"]) - sum(row["ns"] for row in shown)
        print(f"  {format_ns(rest):>8} {'':>7} {'':<{BAR}} {len(document['waterfall']) - len(shown)} smaller causes", file=out)
    share = document["explained_share"]
    print(f"explained {format_ratio(share)}, unexplained {format_ratio(1 - share)}", file=out)


def _print_finding(number: int, finding: dict[str, Any], out: TextIO) -> None:
    cost = (
        "costs no time, or it is not known how much"
        if finding["cost_ns"] is None
        else f"{format_ns(finding['cost_ns'])} a step ({format_ratio(finding['share_of_step'])})"
    )
    if (alone := finding["evidence"].get("cost_alone_ns")) is not None:
        whose = "of which other findings win the rest" if alone > finding["cost_ns"] else "the rest only together with others"
        cost += f"; alone {format_ns(alone)}, {whose}"
    print(f"\n{number}. {finding['severity']}: {printable(finding['title'])} [{finding['rule']}]", file=out)
    print(f"   {cost}", file=out)
    print(f"   evidence: {quantity.listed(finding['evidence'])}", file=out)
    for action in finding["actions"]:
        print(f"   - {printable(action)}", file=out)
    if finding["next"]:
        print(f"   see also: {', '.join(finding['next'])}", file=out)


def _print_others(document: dict[str, Any], out: TextIO) -> None:
    if document["healthy"]:
        print("\nhealthy:", file=out)
        for entry in document["healthy"]:
            print(f"  {entry['rule']}: {quantity.listed(entry['evidence'])}", file=out)
    if document["not_measured"]:
        print("\nnot measured:", file=out)
        for entry in document["to_collect"]:
            print(f"  {', '.join(entry['rules'])}. To collect: {entry['how_to_collect']}", file=out)
    for entry in document["failed"]:
        print(f"\nrule {entry['rule']} failed, which is a bug of perfkit: {printable(entry['error'])}", file=out)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
