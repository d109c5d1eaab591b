"""Keys of a configuration, with or without their parents, or as dotted names with or without a value."""

from __future__ import annotations

import re

from perfkit.config.fragments.place import DOTTED, KEY
from perfkit.explain.fragments.keys_part import explain_keys
from perfkit.explain.fragments.kind import FragmentKind, Part, Piece

_PROSE = re.compile(r"^\s*[A-Z]?[a-z]+(?: [a-z]+){2,}:")


def _claims(line: str) -> bool:
    found = KEY.match(line)
    if found:
        return not _PROSE.match(line)
    dotted = DOTTED.match(line.strip())
    return dotted is not None and not dotted["key"].endswith((".py", ".com", ".txt", ".yaml", ".yml", ".sh", ".json", ".log"))


def _read(piece: Piece) -> Part:
    return explain_keys(piece, FRAGMENT.name)


FRAGMENT = FragmentKind(
    name="keys",
    title="keys of a configuration",
    looks_for="lines such as `key: value` or `section.key`",
    order=70,
    claims=_claims,
    read=_read,
)
