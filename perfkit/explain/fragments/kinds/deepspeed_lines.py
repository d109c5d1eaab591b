"""Lines that DeepSpeed logs: samples a second of the whole job, the time of a step with stages, and the memory that it states.

`deepspeed/utils/timer.py` divides the global batch by the time of a step, `runtime/pipe/engine.py` prints that time itself. Its
gigabytes are units of 2**30.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from statistics import median

from perfkit.core.figure import Figure, figure
from perfkit.core.spec.plan import Plan
from perfkit.core.texts import say
from perfkit.core.units import GIB, NS_PER_S
from perfkit.explain.fragments.kind import FragmentKind, Part, Piece

_LOGGED = re.compile(
    r"\[(?:timer|logging)\.py:\d+:(?:stop|log_dist)\]|\bCurrSamplesPerSec=|\bsteps: \d+ loss: .*\biter time \(s\):"
)
_NUMBER = r"\s*=?\s*(\d{1,12}(?:\.\d{1,20})?(?:e[+-]?\d{1,2})?)"
_SAMPLES = re.compile(r"(?:CurrSamplesPerSec|samples/sec:)" + _NUMBER)
_TIME = re.compile(r"iter time \(s\):" + _NUMBER)
_PEAK = re.compile(r"MaxMemAllocated" + _NUMBER + "GB")


def _read(piece: Piece) -> Part:
    samples, times, peaks = ([float(found[1]) for found in pattern.finditer(piece.text)] for pattern in (_SAMPLES, _TIME, _PEAK))
    return Part(
        kind=FRAGMENT.name,
        title=say("log of DeepSpeed, steps: {number}", number=max(len(samples), len(times))),
        says=("samples a second are those of all devices together: the global batch over the time of a step",) if samples else (),
        figures=tuple(_figures(samples, times, peaks, piece.plan)),
    )


def _figures(samples: list[float], times: list[float], peaks: list[float], plan: Plan | None) -> Iterator[Figure]:
    if samples:
        yield figure("samples of all devices, median", median(samples), "samples/s", "reported", "CurrSamplesPerSec, samples/sec")
    if times:
        yield figure("step time, median", median(times) * NS_PER_S, "ns", "reported", "iter time")
    if peaks:
        yield figure("peak of tensors", max(peaks) * GIB, "bytes", "reported", "MaxMemAllocated, in units of 2^30 bytes")
    if plan is not None and (times or (samples and median(samples) > 0)):
        seconds = median(times) if times else plan.workload.global_batch_size / median(samples)
        if not times:
            yield figure("step time, computed", seconds * NS_PER_S, "ns", "computed", "the plan's global batch / samples a second")
        if seconds > 0:
            tokens = plan.tokens_per_step / seconds / plan.num_devices
            how = "global batch x sequence / (step time x all devices)"
            yield figure("tokens a device, computed", tokens, "tokens/s", "computed", how)


FRAGMENT = FragmentKind(
    name="deepspeed_lines",
    title="lines of a log of DeepSpeed",
    looks_for="lines with `CurrSamplesPerSec=`, or `steps: 10 loss: ... iter time (s): ...`",
    order=12,
    claims=lambda line: _LOGGED.search(line) is not None,
    read=_read,
)
