"""Operator names: what a kernel does, as one word for all executions of it."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

_NUMBER = re.compile(r"[_/#]?\d+$")
_SCOPED = re.compile(r"^.*/([^/]+?)-op\d*$")
"""A name of MindSpore: the classes that an operator is in, its type, and its number."""


def operators(rows: pd.DataFrame) -> pd.Series:
    """What a kernel does: its type, or its name without the numbers at its end and the scope that MindSpore puts before it."""
    types = rows["type"].astype("object").to_numpy(copy=True)
    missing = pd.isna(types)
    unnamed = pd.Categorical(rows["name"][missing]).remove_unused_categories()  # of many names few belong to kernels without a type
    plain = [_NUMBER.sub("", _SCOPED.sub(r"\1", str(name))) for name in unnamed.categories.tolist()]
    types[missing] = np.array([*plain, None], dtype=object)[unnamed.codes]
    return pd.Series(pd.Categorical(types), index=rows.index)
