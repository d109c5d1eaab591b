"""Every test of a panel: a page of its own, so that no panel of another test shares values with it."""

from __future__ import annotations

import pytest

from perfkit.face.widgets.page_state import page_state


@pytest.fixture(autouse=True)
def _own_page() -> None:
    page_state.cache_clear()
