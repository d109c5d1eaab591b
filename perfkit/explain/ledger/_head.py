"""Head: what makes the logits and the loss of them, told by the vocabulary as a dimension of what it computes.

The loss is an exponential or a softmax along the vocabulary, whatever it is called, and the head is the product with the weights
that have it. Neither an attention nor a router is taken for one: the products of the one have more than two dimensions, and the
other chooses among fewer experts than what it multiplies is wide.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import pandas as pd

HEAD, PRODUCT = "work/head", "work/product"
_ALONG = re.compile(r"^exp$|softmax|cross_?entropy|nll_?loss", re.IGNORECASE)
_NOT = re.compile(r"embedding|adam|optim|momentum|sgd|lamb", re.IGNORECASE)
_Shapes = tuple[tuple[int, ...], ...]


def of_head(operators: pd.Series, shapes: pd.Series, work: npt.NDArray[np.object_]) -> npt.NDArray[np.bool_]:
    """Which executions are of the head and its loss, of their `operators`, recorded `shapes` and causes as `work`."""
    names = operators.astype("category")
    along = _matching(names, _ALONG)
    nothing = np.zeros(len(work), dtype=bool)
    if not along.any() or shapes.isna().all():
        return nothing
    texts = shapes.astype("category")
    known = [_shapes(str(text)) for text in texts.cat.categories.tolist()]
    codes = texts.cat.codes.to_numpy()

    def of(which: npt.NDArray[np.bool_]) -> list[tuple[int, ...]]:
        return [shape for code in np.unique(codes[which & (codes >= 0)]) for shape in known[int(code)]]

    lasts = {shape[-1] for shape in of(along) if 2 <= len(shape) <= 3}
    wide = {max(shape) for shape in of(work == PRODUCT) if len(shape) == 2 and shape[0] != shape[1]}
    vocabularies = lasts & wide - {min(shape) for shape in of(work == PRODUCT) if len(shape) == 2}
    if not vocabularies:
        return nothing
    having = np.array([*(any(vocabularies & set(shape) for shape in each) for each in known), False], dtype=bool)
    return having[codes] & ~_matching(names, _NOT)


def _matching(names: pd.Series, pattern: re.Pattern[str]) -> npt.NDArray[np.bool_]:
    found = np.array([*(pattern.search(str(name)) is not None for name in names.cat.categories.tolist()), False], dtype=bool)
    matching: npt.NDArray[np.bool_] = found[names.cat.codes.to_numpy()]
    return matching


def _shapes(text: str) -> _Shapes:
    return tuple(tuple(int(size) for size in re.findall(r"\d+", part)) for part in text.split(";"))
