"""Every test: the same generated inputs on every machine, and no cache or project of the person who runs them."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from perfkit.core.units import MIB
from perfkit.record import _state

settings.register_profile("perfkit", max_examples=50, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("perfkit")

MAX_BYTES = 8 * 2**30
COLLECT_AFTER = (10_000, 20, 20)
"""Objects until the first of Python's collections, and how many of each until the next: a process of tests keeps so many alive that
looking through them again and again, as after 700 objects, takes an eighth of its time."""


def pytest_configure() -> None:
    """A test that takes more memory fails by its name; without a limit the system would end the process that runs it."""
    gc.set_threshold(*COLLECT_AFTER)
    if sys.platform == "linux":
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (MAX_BYTES, resource.getrlimit(resource.RLIMIT_DATA)[1]))


@pytest.fixture(autouse=True, scope="session")
def _own_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for variable in ("PERFKIT_PROJECT", "PERFKIT_READ_ONLY", "PERFKIT_APP", "PERFKIT_DASK"):
            patch.delenv(variable, raising=False)
        patch.setenv("PERFKIT_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(_state, "MIN_BYTES", 4 * MIB)  # samples are read, not opened again: a test may change what reads them
        yield
