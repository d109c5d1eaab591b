"""Codes: what a student of a class types to get in, where no proxy says who somebody is; one a student, printed on a sheet.

Only digests are kept (class.sqlite); a new sheet replaces the codes of the students that it names.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from perfkit.teach._draw import student_name
from perfkit.teach._store import class_store

_LETTERS = "ABCDEFGHJKMNPQRSTUVWXYZ23456789"
"""Without those that look alike on paper."""
_LENGTH = 10
_CONTROL = "codes"


def new_codes(project: Path, students: Iterable[str]) -> dict[str, str]:
    """Make a code for each student, keep its digest, and give the codes by student. Raises InputError for a name that is none."""
    codes = {student_name(student): "".join(secrets.choice(_LETTERS) for _ in range(_LENGTH)) for student in students}
    store = class_store(project)
    others = {digest: student for digest, student in store.control(_CONTROL, {}).items() if student not in codes}
    store.set_control(_CONTROL, others | {digest_of(code): student for student, code in codes.items()})
    return codes


def class_codes(project: Path) -> dict[str, str]:
    """Students by the digest of their code; empty where names are typed."""
    return dict(class_store(project).control(_CONTROL, {}))


def digest_of(code: str) -> str:
    """The SHA-256 of a code as it is typed, in either case."""
    return sha256(code.strip().upper().encode()).hexdigest()
