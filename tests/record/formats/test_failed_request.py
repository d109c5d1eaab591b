"""A request for device memory that failed: lines as frameworks print them say what did not fit and what the device had."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfkit.core.units import GIB, MIB
from perfkit.explain.diagnose import diagnose
from perfkit.explain.diagnose.rules import out_of_memory
from perfkit.record.formats.logs._failed_request import FIGURES, failed_request
from perfkit.record.load import load

TORCH = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which "
    "1.50 GiB is free. {others}Including non-PyTorch memory, this process has 60.10 GiB memory in use. Of the allocated memory "
    "50.11 GiB is allocated by PyTorch, and {unused} is reserved by PyTorch but unallocated. If reserved but unallocated memory is "
    "large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
)
NPU = (
    "RuntimeError: NPU out of memory. Tried to allocate 896.00 MiB (NPU 3; 60.97 GiB total capacity; 55.00 GiB already allocated; "
    "55.00 GiB current active; 512.00 MiB free; 58.00 GiB reserved in total by PyTorch)"
)
LINES = [
    (TORCH.format(others="", unused="6.00 GiB"), (2 * GIB, 1.5 * GIB, 6 * GIB, None)),
    (TORCH.format(others="Process 7 has 8.00 GiB memory in use. ", unused="0 bytes"), (2 * GIB, 1.5 * GIB, 0, 8 * GIB)),
    (
        "Tried to allocate 14.00 MiB. GPU 0 has a total capacity of 14.75 GiB of which 7.00 MiB is free. Process 43207 has "
        "14.50 GiB memory in use. Of the allocated memory 13.72 GiB is allocated by PyTorch, and 2.00 MiB is reserved by PyTorch "
        "but unallocated.",
        (14 * MIB, 7 * MIB, 2 * MIB, None),
    ),
    (NPU, (896 * MIB, 512 * MIB, 3 * GIB, None)),
    ("Memory not enough: current free memory size[1024] is smaller than required size[4096].", (4096, 1024, None, None)),
    ("Device(id:0) memory isn't enough and alloc failed, kernel name: Default/net, alloc size: 4096B.", (4096, None, None, None)),
    ("Malloc device memory failed, size[4096], ret[207001], Device 6 Available HBM size:99 free size:7 may", (4096, 7, None, None)),
    ("[driver interface] halMemAlloc failed: device_id=6, size=4096, type=2", (4096, None, None, None)),
    ("Out of Memory!!! Request memory size: 4096B, Memory Statistic:", (4096, None, None, None)),
    ("EL0004: Failed to allocate memory", (None, None, None, None)),
]


@pytest.mark.parametrize(("text", "figures"), LINES, ids=[text[:30] for text, _ in LINES])
def test_a_line_says_what_did_not_fit_and_what_there_was(text: str, figures: tuple[float | None, ...]):
    assert failed_request(text) == dict(zip(FIGURES, figures, strict=True))


@pytest.mark.parametrize(("others", "unused", "first"), [
    ("", "6.00 GiB", "ALLOC_CONF"),
    ("", "12.00 MiB", "hold less"),
    ("Process 7 has 8.00 GiB memory in use. ", "12.00 MiB", "other processes"),
])  # fmt: skip
def test_what_helps_is_decided_by_what_there_was(tmp_path: Path, others: str, unused: str, first: str):
    (tmp_path / "rank_3.log").write_text("[rank3]: " + TORCH.format(others=others, unused=unused) + "\n")
    (finding,) = diagnose(load(tmp_path), only=[out_of_memory.RULE]).findings
    assert "2.00 GiB where 1.50 GiB were free" in finding.title
    assert finding.evidence["requested_bytes"] == 2 * GIB
    told = [action for action in finding.actions if "ALLOC_CONF" in action or "hold" in action]
    assert first in told[0]
    assert ("expandable" in " ".join(finding.actions)) == (unused == "6.00 GiB")


def test_ranks_that_ran_out_for_different_reasons_are_each_told_what_helps(tmp_path: Path):
    for rank, others, unused in ((2, "Process 7 has 8.00 GiB memory in use. ", "0 bytes"), (5, "", "6.00 GiB")):
        (tmp_path / f"rank_{rank}.log").write_text(f"[rank{rank}]: " + TORCH.format(others=others, unused=unused) + "\n")
    (finding,) = diagnose(load(tmp_path), only=[out_of_memory.RULE]).findings
    assert finding.subject["ranks"] == (2, 5)
    assert ", first by a request of 2.00 GiB" in finding.title
    assert {"other processes", "ALLOC_CONF"} <= {
        word for word in ("other processes", "ALLOC_CONF") for text in finding.actions if word in text
    }


def test_advice_is_in_the_words_of_what_ran_out(tmp_path: Path):
    (tmp_path / "rank_3.log").write_text(NPU + "\n")
    (finding,) = diagnose(load(tmp_path), only=[out_of_memory.RULE]).findings
    assert "PYTORCH_NPU_ALLOC_CONF" in " ".join(finding.actions)
    assert "CUDA" not in " ".join(finding.actions)
