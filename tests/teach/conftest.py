"""A class that is open, and the session of one of its students."""

from __future__ import annotations

import pytest

from perfkit.project import create_project
from perfkit.teach import class_store
from perfkit.teach.session import session_of


@pytest.fixture
def store(tmp_path, monkeypatch):
    create_project(tmp_path, "class")
    monkeypatch.setenv("PERFKIT_PROJECT", str(tmp_path))
    monkeypatch.setenv("PERFKIT_CLASS", "2024")
    monkeypatch.setenv("PERFKIT_READ_ONLY", "1")
    return class_store(tmp_path)


@pytest.fixture
def here(store):
    return session_of("s01")
