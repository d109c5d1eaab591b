"""Source lines: which functions of the user's own code the host was in, where a profiler recorded Python's calls.

A frame is named as torch.profiler and torch_npu.profiler write it: `file.py(line): function`, the line being that at which the
function begins. Frames of Python's own library and of frameworks say nothing about whose code it is, and are passed over.
"""

from __future__ import annotations

import re
import sys
from collections import Counter

import numpy as np
import numpy.typing as npt

from perfkit.core.texts import say
from perfkit.explain.diagnose import host
from perfkit.explain.diagnose.case import Case

FRAME = re.compile(r"^(?P<file>[^<>].*\.py)\((?P<line>\d{1,7})\): (?P<function>.+)$")
LIBRARIES = frozenset(
    {
        "accelerate",
        "apex",
        "deepspeed",
        "flash_attn",
        "lightning",
        "megatron",
        "mindformers",
        "mindspeed",
        "mindspeed_llm",
        "mindspore",
        "numpy",
        "pytorch_lightning",
        "torch",
        "torch_npu",
        "torchaudio",
        "torchvision",
        "transformer_engine",
        "transformers",
        "triton",
    }
)
INSTALLED = re.compile(r"(?:site|dist)-packages/|/lib/python\d|^<frozen")
MOST_MOMENTS = 256
MOST_TOLD = 3


def called_from(case: Case, rank: int, moments_ns: npt.NDArray[np.int64]) -> tuple[str, ...]:
    """Where a rank's host was in code of its own at some moments on its clock, as an action; nothing where no frame is known."""
    lines = _lines(case, rank, moments_ns)
    return (say("look here first, where the host was then: {lines}", lines=", ".join(lines)),) if lines else ()


def _lines(case: Case, rank: int, moments_ns: npt.NDArray[np.int64]) -> tuple[str, ...]:
    """The innermost own frames around the moments as `function (file.py:line)`, the most frequent first."""
    rows = host.recorded(case, rank)
    if rows is None or not len(moments_ns):
        return ()
    rows = rows[(rows["kind"] == "python").to_numpy(dtype=bool)]
    names = rows["name"].astype("category")
    frames = [_own(str(name)) for name in names.cat.categories.tolist()]
    own = np.array([*(frame is not None for frame in frames), False], dtype=bool)[names.cat.codes.to_numpy()]
    rows, codes = rows[own], names.cat.codes.to_numpy()[own]
    starts = rows["start_ns"].to_numpy(dtype=np.int64)
    ends = starts + rows["duration_ns"].to_numpy(dtype=np.int64)
    found: Counter[str] = Counter()
    for moment in moments_ns[:: max(1, len(moments_ns) // MOST_MOMENTS)].tolist():
        around = np.flatnonzero((starts <= moment) & (moment < ends))
        if len(around):
            found[str(frames[int(codes[around[int(starts[around].argmax())]])])] += 1
    return tuple(line for line, _ in found.most_common(MOST_TOLD))


def _own(name: str) -> str | None:
    frame = FRAME.match(name)
    if frame is None or INSTALLED.search(frame["file"]):
        return None
    package = frame["file"].lstrip("./").split("/")[0].removesuffix(".py")
    if not frame["file"].startswith("/") and (package in LIBRARIES or package in sys.stdlib_module_names):
        return None
    return f"{frame['function']} ({frame['file']}:{frame['line']})"
