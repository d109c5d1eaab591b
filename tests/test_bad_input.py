"""Bad input, one test each: a clear message with file, field and value; what can be read is read; what was dropped is counted.

The readers' own tests go deeper; these go through the doors that a user takes.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
from pathlib import Path

import pytest

import perfkit
from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder
from perfkit.core.units import MIB
from perfkit.face import cli
from perfkit.record import _state

TWO_RANKS = data_folder() / "traces" / "torch_npu_2rank"
KINETO = next((data_folder() / "traces" / "kineto_resnet").glob("*.json.gz"))
CONFIG = next((data_folder() / "configs").glob("*llama2_13b*.yaml"))
HOSTILE = "<img src=x onerror=alert(1)>"
KERNELS = "Step Id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us)\n"


@pytest.fixture
def two_ranks(tmp_path: Path) -> Path:
    return Path(shutil.copytree(TWO_RANKS, tmp_path / "run"))


def one(folder: Path, name: str) -> Path:
    return sorted(folder.rglob(name))[0]


def write_kernels(folder: Path, *rows: str, line_end: str = "\n") -> Path:
    output = folder / "ASCEND_PROFILER_OUTPUT"
    output.mkdir(parents=True)
    (output / "kernel_details.csv").write_bytes(line_end.join([KERNELS.strip(), *rows, ""]).encode())
    return folder


def test_an_empty_folder(tmp_path: Path):
    with pytest.raises(InputError, match="the folder is empty"):
        perfkit.load(tmp_path)


def test_a_folder_of_another_tool(tmp_path: Path, capsys):
    (tmp_path / "report.nsys-rep").write_bytes(b"\x00\x01binary")
    assert cli.main(["summary", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "report.nsys-rep" in error
    assert "nsys export --type sqlite" in error


def test_truncated_json(tmp_path: Path):
    whole = gzip.decompress(KINETO.read_bytes())
    (tmp_path / "trace.json").write_bytes(whole[: len(whole) // 2])
    run = perfkit.load(tmp_path)
    assert 0 < run.facts["num_events"].value < perfkit.load(KINETO).facts["num_events"].value
    assert sum(drop.count for drop in run.dropped) > 0
    assert {drop.file for drop in run.dropped} == {"trace.json"}


def test_a_gzip_cut_in_half(tmp_path: Path):
    content = KINETO.read_bytes()
    (tmp_path / KINETO.name).write_bytes(content[: len(content) // 2])
    run = perfkit.load(tmp_path)
    assert 0 < run.facts["num_events"].value < perfkit.load(KINETO).facts["num_events"].value
    assert any(KINETO.name in drop.file for drop in run.dropped)


def test_a_csv_with_missing_columns(two_ranks: Path):
    file = one(two_ranks, "step_trace_time.csv")
    file.write_text("Step,Computing\n50,8873.7\n", encoding="utf-8")
    run = perfkit.load(two_ranks)
    said = " ".join([*run.notes, *(f"{drop.what} {drop.file}" for drop in run.dropped)])
    assert "Communication(Not Overlapped)" in said
    assert run.step_breakdown(0, 50).total > 0, "the kernels still tell the step"


def test_windows_line_ends(tmp_path: Path):
    unix = write_kernels(tmp_path / "unix", "1,MatMul,MatMulV2,AI_CORE,10.5,5.25,0")
    windows = write_kernels(tmp_path / "windows", "1,MatMul,MatMulV2,AI_CORE,10.5,5.25,0", line_end="\r\n")
    first, second = (perfkit.load(folder).frame("kernels") for folder in (unix, windows))
    assert first.astype(str).equals(second.astype(str))
    assert first["duration_ns"].tolist() == [5250]


@pytest.mark.skipif(os.name == "nt", reason="file names there are always Unicode")
def test_a_name_that_is_no_utf_8(tmp_path: Path, capsys):
    folder = os.path.join(os.fsencode(tmp_path), b"rank\xff\xfe")  # noqa: PTH118  bytes have no pathlib
    os.mkdir(folder)  # noqa: PTH102
    write_kernels(Path(os.fsdecode(folder)), "1,MatMul,MatMulV2,AI_CORE,10,5,0")
    assert cli.main(["summary", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ranks_found"] == 1


def test_two_runs_in_one_folder(two_ranks: Path):
    shutil.copytree(TWO_RANKS, two_ranks / "another")
    run = perfkit.load(two_ranks)
    assert len(run.frame("steps")) == 2, "each rank once"
    assert any("rank 0" in text for text in [*run.notes, *(drop.what for drop in run.dropped)])


def test_two_formats_in_one_folder(two_ranks: Path):
    shutil.copy(KINETO, two_ranks / KINETO.name)
    run = perfkit.load(two_ranks)
    assert any("also found and not read" in note for note in run.notes)


def test_a_rank_that_is_missing(two_ranks: Path, capsys):
    shutil.rmtree(one(two_ranks, "profiler_info_0.json").parent)
    assert cli.main(["summary", str(two_ranks), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["ranks_found"] == 1
    assert any("rank" in note and "0" in note for note in document["notes"])


def test_a_yaml_with_unknown_keys(tmp_path: Path):
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG.read_text(encoding="utf-8") + "\nmy_own_key: 3\n", encoding="utf-8")
    plan = perfkit.read_config(config)
    assert any("my_own_key" in key for key in plan.document.unknown)


def test_a_yaml_that_would_run_code(tmp_path: Path):
    marker = tmp_path / "executed"
    config = tmp_path / "config.yaml"
    tag = f"!!python/object/apply:os.system ['touch {marker}']"
    config.write_text(CONFIG.read_text(encoding="utf-8") + f"\nextra: {tag}\n", encoding="utf-8")
    with pytest.raises(InputError, match="python"):
        perfkit.read_config(config)
    assert not marker.exists()


def test_numbers_that_are_none_and_negative_ones(tmp_path: Path):
    rows = ["1,A,T,AI_CORE,10,5,0", "1,B,T,AI_CORE,20,nan,0", "1,C,T,AI_CORE,30,-5,0", "1,D,T,AI_CORE,oops,5,0"]
    run = perfkit.load(write_kernels(tmp_path, *rows))
    assert "A" in set(run.frame("kernels")["name"].astype(str))
    assert not {"B", "C"} & set(run.frame("kernels")["name"].astype(str))
    assert sum(drop.count for drop in run.dropped) >= 2
    assert all("kernel_details.csv" in drop.file for drop in run.dropped)


def test_negative_and_absurd_sizes_in_a_config_are_all_listed(tmp_path: Path):
    text = CONFIG.read_text(encoding="utf-8")
    config = tmp_path / "config.yaml"
    config.write_text(
        text.replace("data_parallel: 8", "data_parallel: -8").replace("pipeline_stage: 1", "pipeline_stage: two"), encoding="utf-8"
    )
    with pytest.raises(InputError) as error:
        perfkit.read_config(config)
    message = str(error.value)
    assert "-8" in message
    assert "two" in message
    assert "line" in message


def test_an_operator_with_a_hostile_name_stays_data(tmp_path: Path):
    run = perfkit.load(write_kernels(tmp_path, f'1,"{HOSTILE}",T,AI_CORE,10,5,0'))
    assert run.frame("kernels")["name"].astype(str).tolist() == [HOSTILE]


@pytest.mark.parametrize("least_bytes", [0, 4 * MIB], ids=["kept", "not kept"])
def test_a_file_that_may_not_be_read_is_named(least_bytes: int, two_ranks: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_state, "MIN_BYTES", least_bytes)
    blocked = one(two_ranks, "kernel_details.csv")
    real = Path.open

    def refuse(self: Path, *arguments, **options):
        if self == blocked:
            raise PermissionError(13, "Permission denied", str(self))
        return real(self, *arguments, **options)

    monkeypatch.setattr(Path, "open", refuse)
    monkeypatch.setattr(Path, "read_bytes", lambda self: refuse(self, "rb").read())
    run = perfkit.load(two_ranks)
    said = [*run.notes, *(f"{drop.what} {drop.file}" for drop in run.dropped)]
    assert any("kernel_details.csv" in text for text in said)
    assert len(run.frame("steps")) == 2
