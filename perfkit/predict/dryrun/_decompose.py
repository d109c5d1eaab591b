"""Decomposition: what a layer costs, from the logged peaks of stages that hold different layers, without a model of them.

The peak of stage i of P with n layers, c_k of them recomputed in way k, is  const + n x param + (P - i) x sum of c_k x kept_k, plus
`head` on the first and `tail` on the last stage (1F1B, one chunk). All are found by least squares of relative errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from perfkit.core.errors import InputError

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class StagePeak:
    """The logged peak of a stage and how many of its layers are recomputed in which way, for example {"none": 3, "full": 2}."""

    stage: int
    layers: Mapping[str, int]
    peak_bytes: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Decomposition:
    """Bytes of each term: `const`, `param` of a layer, a way of recomputation (kept of a layer and micro batch), `head`, `tail`.

    `largest_error` is that of the peaks themselves; `left_out_error` of a peak that is predicted from all others, None where
    no peak can be left out.
    """

    num_stages: int
    terms: Mapping[str, float]
    largest_error: float
    left_out_error: float | None

    def predict(self, stage: int, layers: Mapping[str, int]) -> float:
        """The peak of a stage in bytes; raises InputError for ways of recomputation that no log had."""
        unknown = sorted(kind for kind, count in layers.items() if count and kind not in self.terms)
        if unknown:
            raise InputError("dry run", [f"no logged stage has layers of kind {kind!r}" for kind in unknown])
        row = _row(StagePeak(stage=stage, layers=layers, peak_bytes=0), tuple(self.terms), self.num_stages)
        return float(row @ np.array(list(self.terms.values())))


def decompose(peaks: Sequence[StagePeak], num_stages: int) -> Decomposition:
    """Find the terms; raises InputError that names what the logs leave open (other layers or ways on some stages tell it)."""
    kinds = sorted({kind for peak in peaks for kind, count in peak.layers.items() if count})
    ends = [name for name, stage in (("head", 0), ("tail", num_stages - 1)) if any(peak.stage == stage for peak in peaks)]
    names = ("const", "param", *kinds, *ends)
    wrong = [f"stage {peak.stage} is not one of 0 to {num_stages - 1}" for peak in peaks if not 0 <= peak.stage < num_stages]
    wrong += [f"the peak of stage {peak.stage} is {peak.peak_bytes:g} bytes" for peak in peaks if not peak.peak_bytes > 0]
    if wrong:
        raise InputError("dry run", wrong)
    design = np.array([_row(peak, names, num_stages) for peak in peaks], dtype=np.float64).reshape(len(peaks), len(names))
    sizes = np.array([peak.peak_bytes for peak in peaks], dtype=np.float64)
    if (rank := int(np.linalg.matrix_rank(design)) if len(peaks) else 0) < len(names):
        text = f"{len(peaks)} logged stages tell {rank} of {len(names)} unknowns ({', '.join(names)}) apart"
        raise InputError("dry run", [f"{text}; log stages with another number of layers or other recomputation"])
    terms = _solve(design, sizes)
    return Decomposition(
        num_stages=num_stages,
        terms=dict(zip(names, map(float, terms), strict=True)),
        largest_error=float(np.abs(design @ terms / sizes - 1).max()),
        left_out_error=_left_out(design, sizes),
    )


def _left_out(design: Floats, sizes: Floats) -> float | None:
    errors = []
    for index in range(len(sizes)):
        others = np.delete(design, index, axis=0)
        if np.linalg.matrix_rank(others) == design.shape[1]:
            errors.append(abs(float(design[index] @ _solve(others, np.delete(sizes, index))) / sizes[index] - 1))
    return max(errors, default=None)


def _solve(design: Floats, sizes: Floats) -> Floats:
    found = np.linalg.lstsq(design / sizes[:, None], np.ones(len(sizes)), rcond=None)[0]
    return np.asarray(found, dtype=np.float64)


def _row(peak: StagePeak, names: Sequence[str], num_stages: int) -> list[float]:
    values = {
        "const": 1.0,
        "param": float(sum(peak.layers.values())),
        "head": float(peak.stage == 0),
        "tail": float(peak.stage == num_stages - 1),
    }
    return [values[name] if name in values else float((num_stages - peak.stage) * peak.layers.get(name, 0)) for name in names]
