"""A printed table: rows of cells with bars, tabs, commas or wide gaps; formulas of letters in it are computed for the plan."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from perfkit.config.lint.check import Problem
from perfkit.core.errors import InputError
from perfkit.core.figure import Figure, figure
from perfkit.core.texts import say
from perfkit.explain.fragments.kind import FragmentKind, Part, Piece
from perfkit.explain.fragments.symbols import Meaning, evaluate, formula_in, meaning_of
from perfkit.predict.cost.flops import training_flops

_BAR, _RULE = re.compile(r"^\s*\|.*\|\s*$"), re.compile(r"^[\s|:+-]+$")
_CELLS = re.compile(r"\t|,(?![^(]*\))")
_GAP = re.compile(r"\s{2,}")
_MEASURED = re.compile(r"^[-+]?\d[\d.,]*\s?(?:%|[nuµm]?s|[KMGT]?i?[bB])?$")
MAX_NAME = 24
"""Letters that the name of a column has at most."""
_NUMBER = re.compile(r"^[-+]?[\d.,]+\s*%?$")


def _rows(text: str) -> list[list[str]]:
    rows = []
    for line in text.split("\n"):
        if line.strip() and not _RULE.match(line):
            cells = line.strip().strip("|").split("|") if _BAR.match(line) else _split(line)
            rows.append([cell.strip().replace("\\*", "*") for cell in cells])
    return rows


def _split(line: str) -> list[str]:
    spaced = _GAP.split(line.strip())
    return spaced if len(spaced) > 2 and "\t" not in line else _CELLS.split(line)


def _read(piece: Piece) -> Part:
    rows = _rows(piece.text)
    found = [(row[0], formula, row) for row in rows if (formula := _formula(row))]
    static = any("N" in formula for _, formula, _ in found)
    meaning = meaning_of(piece.plan, static=static)
    unit = _unit(rows, [formula for _, formula, _ in found])
    figures, problems = list(_figures(found, meaning, unit)), list(_errata(rows, found, meaning, piece))
    if not found:
        columns = ", ".join(cell for cell in rows[0] if cell)
        numbers = sum(bool(_NUMBER.match(cell)) for row in rows[1:] for cell in row)
        says = (say("columns: {columns}", columns=columns), say("cells with a number: {number}", number=numbers))
        return Part(kind=FRAGMENT.name, title=say("a printed table, rows: {number}", number=len(rows) - 1), says=says)
    form = {"FLOP": "a table of formulas of work, rows: {number}", "bytes": "a table of formulas of memory, rows: {number}"}[unit]
    return Part(
        kind=FRAGMENT.name,
        title=say(form, number=len(found)),
        says=(say("computed for {whom}", whom=meaning.of),),
        figures=tuple(figures),
        problems=tuple(problems),
    )


def _formula(row: Sequence[str]) -> str:
    """The formula of a row: the last cell that is one and no list of shapes; not the first, which is its name."""
    for cell in reversed(row[1:]):
        if re.search(r"\[[^\]]*,", cell):
            continue  # shapes
        if formula := formula_in(cell):
            return formula
    return ""


def _unit(rows: Sequence[Sequence[str]], formulas: Sequence[str]) -> str:
    """FLOP or bytes: by the rows where they say it, then by the header, then by the letters."""
    names = " ".join(row[0].lower() for row in rows[1:])
    header = " ".join(rows[0]).lower()
    if "flop" in names or "flop" in header or "matmul" in " ".join(rows[0]).lower():
        return "FLOP"
    if "byte" in header or "memory" in header or "内存" in header or any("N" in one for one in formulas):
        return "bytes"
    return "FLOP"


def _figures(found: Sequence[tuple[str, str, Sequence[str]]], meaning: Meaning, unit: str) -> Iterator[Figure]:
    for name, formula, _ in found:
        try:
            value = evaluate(formula, meaning.values)
        except InputError:
            continue
        yield figure(name or formula, value, unit, "computed", formula)
    if any("corr" in formula for _, formula, _ in found):
        exact = float(training_flops(meaning.model, int(meaning.values["s"])).total) * meaning.values["s"] * meaning.values["b"]
        yield figure("model FLOP, summed over its matrices", exact, "FLOP", "computed", "perfkit: 3 x forward, head once")


def _errata(
    rows: Sequence[Sequence[str]], found: Sequence[tuple[str, str, Sequence[str]]], meaning: Meaning, piece: Piece
) -> Iterator[Problem]:
    header, names = " ".join(rows[0]).lower(), " ".join(row[0].lower() for row in rows)
    model = meaning.model
    if ("memory" in header or "byte" in header) and "flop" in names:
        yield piece.problem(
            "erratum-X01", "warning", "the header says memory, the rows are work (FLOP)", line=1, fix="read it as FLOP"
        )
    for name, formula, _ in found:
        if "total" in name.lower() and "v" in formula and "h^2" in formula:
            repeated = say(
                "the head 2bshv stands in the total of a layer; over all layers it is counted {number} times",
                number=model.num_layers,
            )
            yield piece.problem("erratum-X04", "warning", repeated, key=name, fix="count the head once a model")
    if any("corr" in formula for _, formula, _ in found) and (model.gated_ffn or model.ffn_hidden_size != 4 * model.hidden_size):
        message = "the closed form holds for a feed-forward of two matrices of width 4h, not for this model"
        yield piece.problem("erratum-X05", "warning", message, fix="sum the matrices, as the last row does")
    if any(re.fullmatch(r"10 ?N.*", formula) for _, formula, _ in found):
        message = "10N leaves out the master copy in 32 bit (4N) and the gradient (2N to 4N): 16N to 18N"
        yield piece.problem("erratum-X09", "warning", message, fix="count 16N with a 16-bit gradient, 18N with one of 32 bit")
    if any("34" in formula or "5a" in formula for _, formula, _ in found):
        message = "the table is of one layer of GPT with dropout and without flash attention, not of the whole model"
        yield piece.problem(
            "erratum-X10", "warning", message, fix="multiply by layers and micro batches in flight; flash attention drops 5abs^2"
        )


def _claims(line: str) -> bool:
    cells = _GAP.split(line.strip())
    measured = sum(_MEASURED.match(cell) is not None for cell in cells)
    names = len(cells) > 3 and not measured and all(len(cell) <= MAX_NAME and not set(cell) & set(":={}()") for cell in cells)
    spaced = len(cells) > 2 and (measured > 1 or names or _RULE.match(line) is not None)
    return _BAR.match(line) is not None or line.strip().count("\t") > 1 or spaced


FRAGMENT = FragmentKind(
    name="printed_table",
    title="a printed table",
    looks_for="rows with bars, or cells with tabs or two spaces between them",
    order=40,
    claims=_claims,
    read=_read,
)
