"""Operator names: what a kernel does, as one word for all executions of it."""

from __future__ import annotations

import numpy as np
import pandas as pd

SCOPED = r"^.*/([^/]+?)-op\d*$"
"""A name of MindSpore: the classes that an operator is in, its type, and its number."""


def operators(rows: pd.DataFrame) -> pd.Series:
    """What a kernel does: its type, or its name without the numbers at its end and the scope that MindSpore puts before it."""
    named = pd.Series(pd.Categorical(rows["name"]), index=rows.index)
    plain = named.cat.categories.astype("str").str.replace(SCOPED, r"\1", regex=True).str.replace(r"[_/#]?\d+$", "", regex=True)
    codes = named.cat.codes.to_numpy()
    names = np.asarray(plain, dtype=object)[codes] if len(plain) else np.array([], dtype=object)
    types = rows["type"].astype("object").to_numpy()
    missing = pd.isna(types)
    return pd.Series(pd.Categorical(np.where(missing, names, types)), index=rows.index)
