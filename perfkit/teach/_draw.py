"""Draw: every student gets own numbers, and the same ones again when the page is opened anew.

digest = SHA-256 of the UTF-8 text `CLASSSEED|STUDENT|EXERCISE`; the i-th parameter takes choice
digest[i] mod the number of choices.
Nothing else is random.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from perfkit.core.errors import InputError

MAX_NAME = 80


def digest(class_seed: int, student: str, exercise: str, *more: object) -> bytes:
    """The 32 bytes that all draws of an exercise come from."""
    text = "|".join(str(part) for part in (class_seed, student, exercise, *more))
    return sha256(text.encode("utf-8")).digest()


def draw(class_seed: int, student: str, exercise: str, choices: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """One choice for every parameter, in their order."""
    drawn = digest(class_seed, student, exercise)
    return {name: options[drawn[place] % len(options)] for place, (name, options) in enumerate(choices.items())}


def student_name(text: str) -> str:
    """The name as it is kept: composed characters, no spaces around. Raises InputError for one that cannot be kept."""
    name = unicodedata.normalize("NFC", text).strip()
    problems = []
    if not name:
        problems.append("is empty; type your name, or the one that you were given (for example s01)")
    if len(name) > MAX_NAME:
        problems.append(f"has {len(name)} characters; {MAX_NAME} are kept")
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in name):
        problems.append("has control characters; letters, digits and signs of any script are fine")
    if problems:
        raise InputError("student", problems)
    return name
