"""Kernels by what they are: a finding about all kernels of a kind, with what a step would win without them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit.explain.diagnose import work
from perfkit.explain.diagnose.case import Case
from perfkit.explain.diagnose.rule import Finding

FORMATS = re.compile(r"transdata|formattransfer|convert_?layout|(?:nchw|nhwc)_?to_?(?:nchw|nhwc)", re.IGNORECASE)
"""Operators that only change the layout of their input."""
_VIEWS = r"(?:_+(?:unsafe_view|view|reshape|t|transpose|permute|clone|slice|split|select|expand|unsqueeze|squeeze))*$"
CONVERSIONS = re.compile(
    rf"\bcast|^cast|(?<!_)_to_copy|fused__to_copy{_VIEWS}|direct_copy_kernel|float16_copy_kernel|tensormove|{FORMATS.pattern}",
    re.IGNORECASE,
)
"""Operators that only change the type or the layout of their input; a kernel that a compiler fused with others does more."""


SHORT, LONGEST = 40, 80
_INNER = re.compile(r"at::native::(?:\(anonymous namespace\)::)?(\w*(?:copy|silu|pow|neg|rsqrt|mul|add|fill|scatter)\w*_kernel\w*)")


def matching(case: Case, pattern: re.Pattern[str], column: str = "op") -> pd.DataFrame:
    """The computing kernels whose `column` matches."""
    return case.computing[which(case.computing[column], pattern)]


def which(values: pd.Series, pattern: re.Pattern[str]) -> npt.NDArray[np.bool_]:
    """Which of these texts match; each is looked at once however often it is there, null does not match."""
    texts = values.astype("category").cat
    wanted = np.array([*(bool(pattern.search(str(text))) for text in texts.categories.tolist()), False], dtype=bool)
    found: npt.NDArray[np.bool_] = wanted[texts.codes.to_numpy()]
    return found


def share_of_step(case: Case, rows: pd.DataFrame) -> float:
    """The largest share of the step that any rank spends in `rows`."""
    if rows.empty:
        return 0.0
    total = rows.groupby("rank")["duration_ns"].sum().max()
    return float(total) / case.num_kernel_steps / (case.step_ns or 1)


def largest(rows: pd.DataFrame, top: int = 5) -> tuple[str, ...]:
    """The names of the operators in `rows` that take longest."""
    sums = rows.groupby("op", observed=True)["duration_ns"].sum().sort_values(ascending=False)
    return tuple(str(name) for name in sums.index[:top])


def told(names: tuple[str, ...], top: int = 3) -> str:
    """The first of these names for a sentence: kernels of C++ without their templates and arguments."""
    return ", ".join(dict.fromkeys(_short(name) for name in names[:top]))


def finding(case: Case, rows: pd.DataFrame, **fields: Any) -> Finding:
    """A finding about all of `rows`: its operators are the largest of them, its cost what a step would win without them."""
    return Finding(
        subject={"operators": largest(rows)},
        cost_ns=won_ns(case, rows),
        next=("12_operators",),
        part="computing",
        loss=work.loss(rows, alone=True),
        **fields,
    )


def won_ns(case: Case, rows: pd.DataFrame, fraction: float | pd.Series = 1.0) -> int:
    """What a step would win without a fraction of `rows`."""
    return work.price(case, [work.loss(rows, fraction=fraction, alone=True)])


def _short(name: str) -> str:
    """The innermost function of PyTorch that a C++ name is made of, else the name without templates, arguments and namespaces."""
    if len(name) <= SHORT or not ("<" in name or "(" in name):
        return name[:LONGEST]
    inner = _INNER.findall(name)
    if inner:
        return str(inner[0])
    plain = re.split(r"[<(]", name.removeprefix("void ").replace("(anonymous namespace)::", ""), maxsplit=1)[0]
    return plain.split("::")[-1][:LONGEST]
