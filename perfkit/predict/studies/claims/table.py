"""The table of claims: as a frame, of the reader's plan too, and as the page docs/claims.md, which this module writes."""

from __future__ import annotations

import contextlib
from collections import Counter
from pathlib import Path

import pandas as pd

from perfkit.core.errors import InputError
from perfkit.core.spec.plan import Plan
from perfkit.core.units import significant
from perfkit.predict.studies.claims import cases, memory, work
from perfkit.predict.studies.claims.claim import Claim

DOCUMENT = Path(__file__).resolve().parents[4] / "docs" / "claims.md"


def claims() -> tuple[Claim, ...]:
    """All claims, by subject."""
    return (*work.CLAIMS, *memory.CLAIMS, *cases.CLAIMS)


def claims_table(plan: Plan | None = None) -> pd.DataFrame:
    """One row a claim: `number`, `guide`, `claim`, `unit`, `stated`, `computed`, `verdict`, `why`, and of a `plan` `yours`.

    `computed` is empty where a claim states no figure, `yours` where the plan cannot tell it.
    """
    rows = []
    for one in claims():
        row = {
            "number": one.number,
            "guide": one.guide,
            "claim": one.claim,
            "unit": one.unit,
            "stated": one.stated,
            "computed": one.computed() if one.computed is not None else None,
            "verdict": one.verdict,
            "why": one.why,
        }
        rows.append(row | ({"yours": _yours(one, plan)} if plan is not None else {}))
    return pd.DataFrame(rows)


def _yours(claim: Claim, plan: Plan) -> float | None:
    if claim.of_plan is not None:
        with contextlib.suppress(InputError):
            return claim.of_plan(plan)
    return None


def document() -> str:
    """The page as text."""
    table = claims_table()
    counts = Counter(table["verdict"])
    summary = ", ".join(f"{counts[verdict]} {verdict}" for verdict in ("reproduced", "explained", "contradicted"))
    lines = [
        "# Claims of the guides",
        "",
        f"What the four tuning guides claim, computed anew: {summary}. A figure is reproduced if it is met to half a",
        "percent (a predicted step to 5 %), explained if another reading that is named meets it, else contradicted. Written by",
        "`python -m perfkit.predict.studies.claims.table`; `perfkit.predict.studies.claims.claims_table(plan)` has the same rows",
        "with the figures of a plan of your own.",
        "",
        "| | guide | claim | stated | computed | verdict | why |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in table.to_dict("records"):
        stated, computed = (_shown(row[name], row["unit"]) for name in ("stated", "computed"))
        lines.append(
            f"| {row['number']} | {row['guide']} | {row['claim']} | {stated} | {computed} | {row['verdict']} | {row['why']} |"
        )
    return "\n".join(lines) + "\n"


def _shown(value: float | None, unit: str) -> str:
    if value is None or pd.isna(value):
        return ""
    return f"{significant(value, 4)} {unit}".rstrip()


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
