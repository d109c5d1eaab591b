"""Incidents: lines of logs that say that something went wrong become rows with rank and line, and settings do not."""

from pathlib import Path

import pytest

from perfkit.explain.diagnose import diagnose
from perfkit.record.formats.logs._incidents import incident_of
from perfkit.record.load import load

LINES = [
    ("[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "out_of_memory", None, 3),
    ("RuntimeError: NPU out of memory. NPUWorkspaceAllocator tried to allocate 1.00 GiB", "out_of_memory", None, None),
    ("EL0004: [PID: 9] Failed to allocate memory", "out_of_memory", "EL0004", None),
    ("[rank0]:[E ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation timeout", "collective_timeout", None, 0),
    ("EI0002: [PID: 12] The wait execution of the Notify register times out.", "collective_timeout", "EI0002", None),
    ("NVRM: Xid (PCI:0000:17:00): 79, pid=1, GPU has fallen off the bus.", "device_error", "Xid 79", None),
    ("NVRM: Xid (PCI:0000:17:00): 63, pid=1, Row Remapper", "memory_error", "Xid 63", None),
    ("torch.AcceleratorError: uncorrectable ECC error encountered", "memory_error", None, None),
    ("[ERROR] 2025-01-01 (PID:1, Device:0, RankID:5) ERR02200 DIST call hccl api failed.", "device_error", "ERR02200", 5),
    ("EZ9999: Inner Error!", "device_error", "EZ9999", None),
    ("slurmstepd: error: Detected 1 oom_kill event in StepId=1234.0.", "host_memory", None, None),
    ("[12345.678] Out of memory: Killed process 4321 (python) total-vm:123456kB", "host_memory", None, None),
    ("RuntimeError: DataLoader worker (pid 12345) is killed by signal: Killed. ", "host_memory", None, None),
    ("RuntimeError: Device(id:0) memory isn't enough and alloc failed, kernel name: Default/net", "out_of_memory", None, None),
    ("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "out_of_memory", None, None),
    (
        "[ERROR] HCCL(1234,python):2024-05-01-10:00:00 [task_exception_handler.cc:560][TaskExecStage][Timeout] notify wait",
        "collective_timeout",
        None,
        None,
    ),
    ("torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 7/8", "collective_timeout", None, None),
    ("RuntimeError: [gloo/unbound_buffer.cc:84] Timed out waiting 1800000ms for recv operation", "collective_timeout", None, None),
    ("[ERROR] RUNTIME(1234): hbm multi bit ecc, device_id=3", "memory_error", None, None),
    ("rtStreamSynchronize execute failed, ret=507015 (aicore exception)", "device_error", "507015", None),
    ("RuntimeError: E39999: Inner Error, Please contact support engineer!", "device_error", "E39999", None),
    ("[default6]:torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 896.00 MiB", "out_of_memory", None, 6),
    ("[rank2]:   AssertionError: Rank 2: found NaN in local grad norm for bucket #0", "no_number", None, 2),
    ("[default3]:[rank11]: torch.OutOfMemoryError: CUDA out of memory.", "out_of_memory", None, 11),
    ("[ERROR] RUNTIME(1234): hbm multi bit ecc, device_id=0", "memory_error", None, None),
    ("CUDA error: uncorrectable ECC error on GPU: 0", "memory_error", None, None),
    ("RuntimeError: Function 'MulBackward0' returned nan values in its 0th output.", "no_number", None, None),
    ("NaN detected in gradient of layer 3", "no_number", None, None),
    ("Rank 3: Watchdog caught collective operation timeout: timeout was set to 600000", "collective_timeout", None, 3),
    ("RuntimeError: found 3 uncorrectable ECC errors, 0 corrected", "memory_error", None, None),
    (
        "[ERROR] DEVICE(1,f,python):2025 [ascend_memory_adapter.cc:120] Out of Memory!!! Request memory size: 9B",
        "out_of_memory",
        None,
        None,
    ),
    ("RuntimeError: HIP error: the operation cannot be performed in the present state", "device_error", None, None),
]


@pytest.mark.parametrize(("text", "kind", "code", "rank"), LINES)
def test_a_line_is_told_with_kind_code_and_rank(text: str, kind: str, code: str | None, rank: int | None):
    found = incident_of(text)
    assert found is not None
    assert (found.kind, found.code, found.rank) == (kind, code, rank)


@pytest.mark.parametrize(
    "text",
    [
        " iteration  10/ 1000 | elapsed time per iteration (ms): 5837.9 | lm loss: 1.2",
        "  distributed_timeout_minutes ................ 10",
        "export HCCL_CONNECT_TIMEOUT=1800; export NCCL_TIMEOUT=1800 default timeout",
        "torchrun --nccl-timeout 30",
        "WARNING: NCCL collective timeout set to 600000 ms",
        "ECC mode: enabled; ECC errors: 0",
        "    ECC Errors",
        "No ECC errors found",
        "0 uncorrectable ECC errors",
        "ECC errors: 0 (GPU 3)",
        "found inf in grad, skipping step, loss scale 65536 -> 32768",
        "if loss is nan, stop training",
        "    f'Rank {global_rank}: found NaN in local forward loss calculation. '",
        "    Volatile Uncorr. ECC : 0",
        "INFO: out of memory handler installed",
        "INFO: E1234 is the name of a model",
        "node E10123: ready",
        "INFO: set max_device_memory to avoid out of memory",
        "If you encounter out of memory, try reducing the micro batch size",
    ],
)
def test_settings_and_steps_are_no_incidents(text: str):
    assert incident_of(text) is None


def test_the_ranks_that_only_failed_are_read_beside_those_that_printed_steps(tmp_path: Path):
    counts = "number of skipped iterations: 2 | number of nan iterations: 1 |"
    step = " iteration {}/ 1000 | elapsed time per iteration (ms): 500.0 | " + counts
    (tmp_path / "rank_0.log").write_text("\n".join(step.format(number) for number in range(1, 6)) + "\n")
    (tmp_path / "rank_3.log").write_text("starting\n2025-04-07 15:34:27 RuntimeError: CUDA out of memory.\n")
    run = load(tmp_path, cache=False)
    rows = run.frame("incidents").to_dict("records")
    assert [(row["rank"], row["kind"], row["line"], row["file"]) for row in rows] == [(3, "out_of_memory", 2, "rank_3.log")]
    assert rows[0]["time_ns"] == 1_744_040_067_000_000_000
    log = run.frame("log")
    assert (log["num_skipped"].tolist(), log["num_nan"].tolist()) == ([2] * 5, [1] * 5)


def test_a_line_says_for_whom_it_waited_and_where_nothing_says_the_rank_it_has_none(tmp_path: Path):
    waited = "EI0002: The wait execution of the Notify register times out. Reason: no Notify record from remote rank [5].\n"
    (tmp_path / "worker_7.log").write_text(waited)
    (tmp_path / "train.log").write_text("kernel: NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n")
    run = load(tmp_path, cache=False)
    rows = run.frame("incidents").sort_values("file")
    assert rows["unnamed"].tolist() == [True, False]
    assert rows["peer"].fillna(-1).tolist() == [-1, 5]
    titles = {finding.rule: finding for finding in diagnose(run).findings}
    assert ", for rank 5:" in titles["collective-timeout"].title
    assert titles["device-error"].subject["ranks"] == ()
    assert titles["device-error"].title.startswith("A rank that the log does not name")
    assert "left its bus" in titles["device-error"].actions[0]
