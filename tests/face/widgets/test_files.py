"""The path picker: what it lists, and that it stays inside the folders that a shared server opens."""

from __future__ import annotations

import pytest

from perfkit.core.errors import InputError
from perfkit.core.resources import data_folder
from perfkit.face.widgets._files import list_folder
from perfkit.face.widgets.control import PathPicker


@pytest.fixture
def shared(tmp_path, monkeypatch):
    (tmp_path / "open" / "run").mkdir(parents=True)
    (tmp_path / "secret").mkdir()
    monkeypatch.delenv("PERFKIT_PROJECT", raising=False)
    monkeypatch.setenv("PERFKIT_ROOTS", str(tmp_path / "open"))
    return tmp_path


def test_without_a_limit_any_folder_is_listed(tmp_path, monkeypatch):
    monkeypatch.delenv("PERFKIT_ROOTS", raising=False)
    assert list_folder(str(tmp_path))["parent"] == str(tmp_path.parent)


@pytest.mark.parametrize("asked", ["secret", "open/../secret", "", "/"])
def test_outside_of_the_roots_the_first_root_is_listed(shared, asked):
    listing = list_folder(str(shared / asked) if asked not in ("", "/") else asked)
    assert (listing["folder"], listing["parent"]) == (str(shared / "open"), None)


def test_a_path_outside_is_refused_and_those_inside_and_the_samples_are_taken(shared):
    picker = PathPicker("run", label="Recording")
    with pytest.raises(InputError, match="outside of the folders"):
        picker.accept(str(shared / "open" / ".." / "secret"), {})
    assert picker.accept(str(shared / "open" / "run"), {}) == (str(shared / "open" / "run"), "")
    assert picker.accept(str(data_folder() / "traces"), {})[1] == ""


def test_a_link_does_not_lead_out(shared):
    (shared / "open" / "link").symlink_to(shared / "secret")
    with pytest.raises(InputError, match="outside of the folders"):
        PathPicker("run").accept(str(shared / "open" / "link"), {})
