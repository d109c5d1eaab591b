"""What every finding that any test here makes is held to."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from perfkit.core.quantity import unit_of
from perfkit.core.texts import Said
from perfkit.explain.diagnose.rule import Finding
from tests.face.test_one_writer import UNIT


@pytest.fixture(scope="session", autouse=True)
def _figures_of_titles_are_evidence() -> Iterator[None]:
    """A number with a unit in a title is a number of the evidence: what the table, the document and the title say is one value."""
    made = Finding.__post_init__

    def checked(finding: Finding) -> None:
        made(finding)
        bare = [name for name in finding.evidence if unit_of(name) is None and UNIT.search(name)]
        assert not bare, f"{finding.rule}: {bare} hold a unit and do not end in it: they are shown without"
        title = finding.title
        figures = title.figures() if isinstance(title, Said) else {}
        for name, value in figures.items():
            known = unit_of(name) is None or any(math.isclose(value, number, rel_tol=1e-9) for number in finding.evidence.values())
            assert known, f"{finding.rule}: {title!r} tells {name} = {value}, which the evidence has not"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Finding, "__post_init__", checked)
        yield
