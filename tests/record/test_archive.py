"""Archives of ranks: harmless ones open like their folder, harmful ones are refused by name and leave nothing behind."""

import io
import os
import shutil
import stat
import tarfile
import zipfile
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder
from perfkit.record import _state
from perfkit.record import archive as _archive
from perfkit.record.load import load

SAMPLE = data_folder() / "traces" / "torch_npu_2rank"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("PERFKIT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def zipped(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def tarred(path: Path, members: dict[str, bytes], mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def sample() -> dict[str, bytes]:
    return {str(file.relative_to(SAMPLE.parent)): file.read_bytes() for file in SAMPLE.rglob("*") if file.is_file()}


def left_behind(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    ("name", "pack"), [("a.zip", zipped), ("a.tar.gz", tarred), ("a.tar", lambda path, members: tarred(path, members, "w"))]
)
def test_an_archive_of_ranks_opens_like_its_folder(tmp_path: Path, name: str, pack):
    run, plain = load(pack(tmp_path / name, sample())), load(SAMPLE)
    assert run.name == "a"
    assert (run.ranks, run.format) == (plain.ranks, plain.format)
    pd.testing.assert_frame_equal(run.steps(), plain.steps())
    pd.testing.assert_frame_equal(run.frame("kernels"), plain.frame("kernels"))


def test_an_archive_is_known_by_its_content(tmp_path: Path):
    assert load(zipped(tmp_path / "no suffix", sample())).ranks == (0, 1)
    single = next((data_folder() / "traces" / "kineto_resnet").glob("*.json.gz"))
    assert not _archive.is_archive(single)


def test_an_archive_is_unpacked_once_and_again_if_it_changes(tmp_path: Path):
    path = zipped(tmp_path / "a.zip", sample())
    first = _archive.unpacked(path)
    marker = first / "marker"
    marker.touch()
    assert _archive.unpacked(path) == first
    assert marker.exists()
    os.utime(path, (1, 1))
    assert _archive.unpacked(path) != first


def test_a_kept_run_of_an_archive_survives_the_deletion_of_the_cache(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_state, "MIN_BYTES", 0)
    path = zipped(tmp_path / "a.zip", sample())
    read, kept = load(path), load(path)
    shutil.rmtree(folder)
    pd.testing.assert_frame_equal(read.frame("kernels"), kept.frame("kernels"))


BAD_NAMES = {
    "../../evil.txt": "leads out of the folder",
    "a/../../evil.txt": "leads out of the folder",
    "/etc/evil.txt": "has an absolute path",
    "C:evil.txt": "has an absolute path",
}
OF_TAR = {"..\\..\\evil.txt": "has a backslash", "a\\evil.txt": "has a backslash"}
OF_ZIP = {"x\\..\\..\\evil.txt": "leads out of the folder", "D:\\evil.txt": "has an absolute path"}
"""In a zip file a backslash is the separator of Windows."""


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_every_member_that_leads_out_is_named_and_nothing_remains(tmp_path: Path, folder: Path, pack):
    bad = BAD_NAMES | (OF_ZIP if pack is zipped else OF_TAR)
    path = pack(tmp_path / "archive", {"good.txt": b"fine", **dict.fromkeys(bad, b"evil")})
    with pytest.raises(InputError) as error:
        load(path)
    assert error.value.problems[0] == "refused, nothing was unpacked"
    for name, reason in bad.items():
        shown = _archive.printable(name.replace("\\", "/") if pack is zipped else name)
        assert any(shown in problem and reason in problem for problem in error.value.problems)
    assert not any("good.txt" in problem for problem in error.value.problems)
    assert not left_behind(folder)
    assert not list(tmp_path.rglob("evil.txt"))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE])
def test_links_and_devices_of_a_tar_are_refused(tmp_path: Path, folder: Path, kind: bytes):
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as archive:
        info = tarfile.TarInfo("odd")
        info.type, info.linkname = kind, "/etc/passwd"
        archive.addfile(info)
    with pytest.raises(InputError, match="odd: is a link or device"):
        load(path)
    assert not left_behind(folder)


def test_links_of_a_zip_are_refused(tmp_path: Path, folder: Path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        info = zipfile.ZipInfo("odd")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(info, "/etc/passwd")
    with pytest.raises(InputError, match="odd: is a link or device"):
        load(tmp_path / "a.zip")
    assert not left_behind(folder)


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_a_bomb_is_refused_by_the_limit_that_it_breaks(tmp_path: Path, folder: Path, pack):
    path = pack(tmp_path / "bomb", {"big.json": bytes(64 << 20)})
    with pytest.raises(InputError, match=r"200-fold"):
        load(path)
    assert not left_behind(folder)


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_too_much_content_is_refused(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, pack):
    monkeypatch.setattr(_archive, "MAX_BYTES", 1000)
    with pytest.raises(InputError, match=r"more than 1.000 B when unpacked"):
        load(pack(tmp_path / "much", {"a": bytes(600), "b": bytes(600)}))
    assert not left_behind(folder)


def test_a_header_that_would_fill_the_memory_is_refused(tmp_path: Path):
    path = tmp_path / "a.tar.gz"
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(tarfile.TarInfo("a" * (3 << 20)))
    with pytest.raises(InputError, match=r"damaged or of an unknown kind"):
        load(path)


def test_too_many_members_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_archive, "MAX_MEMBERS", 3)
    with pytest.raises(InputError, match="more than 3 members"):
        load(zipped(tmp_path / "a.zip", {str(number): b"" for number in range(4)}))


def test_a_name_used_twice_is_refused(tmp_path: Path):
    path = tarred(tmp_path / "a.tar", {"a/b": b"1"}, "w")
    with tarfile.open(path, "a") as archive:
        info = tarfile.TarInfo("./a/b")
        archive.addfile(info)
    with pytest.raises(InputError, match="a/b: appears more than once"):
        load(path)


def test_archives_in_archives_stay_closed(tmp_path: Path):
    inner = zipped(tmp_path / "inner.zip", sample()).read_bytes()
    with pytest.raises(InputError, match=r"no known format in 1 files: inner\.zip"):
        load(zipped(tmp_path / "outer.zip", {"inner.zip": inner}))


def test_an_empty_archive_is_told(tmp_path: Path):
    with pytest.raises(InputError, match="the archive is empty"):
        load(zipped(tmp_path / "a.zip", {}))


FLIPS = st.lists(st.tuples(st.floats(0, 0.999), st.integers(0, 255)), max_size=3)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    cut=st.floats(0.01, 0.99), flips=st.lists(st.tuples(st.floats(0, 0.999), st.integers(0, 255)), max_size=3), zip_it=st.booleans()
)
def test_damage_is_an_error_or_harmless_but_never_a_crash(tmp_path: Path, folder: Path, cut, flips, zip_it):
    members = {"a/step_trace_time.csv": (SAMPLE / "x").name.encode() * 50, "b.json": b'{"traceEvents": []}'}
    content = bytearray((zipped if zip_it else tarred)(tmp_path / "good", members).read_bytes())
    for place, value in flips:
        content[int(place * len(content))] = value
    path = tmp_path / "damaged"
    path.write_bytes(content[: int(cut * len(content))] if not flips else content)
    with pytest.raises(InputError):
        load(path)
    assert not any(part.name == "work" and any(part.iterdir()) for part in folder.glob("*"))
