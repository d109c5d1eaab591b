"""Tables of TOML, of torchtitan's files and perfkit's own: their settings, and what they decide that no prediction counts."""

from __future__ import annotations

import re
import tomllib

from perfkit.config.dialects.key_effects import leaves, left_over, reason_of
from perfkit.core.errors import InputError
from perfkit.core.texts import say
from perfkit.explain.fragments.kind import FragmentKind, Part, Piece

_HEADER = re.compile(r"^\s*\[[A-Za-z][\w.-]*\]\s*(?:#.*)?$")
_SETTING = re.compile(r"^\s*[\w.-]+\s*=")
TORCHTITAN = {
    "job",
    "parallelism",
    "training",
    "activation_checkpoint",
    "compile",
    "float8",
    "experimental",
    "metrics",
    "checkpoint",
}


def _read(piece: Piece) -> Part:
    try:
        values = tomllib.loads(piece.text)
    except tomllib.TOMLDecodeError as error:
        raise InputError("TOML", [str(error)]) from error
    titan = bool(TORCHTITAN & set(values))
    decides = dict(left_over("torchtitan", values, ()).unread) if titan else {}
    says: list[str] = []
    for key, value in leaves(values):
        if why := decides.get(key) or (titan and reason_of("torchtitan", key)):
            says.append(say("{key} = {value}: {meaning}", key=key, value=str(value), meaning=why))
        else:
            says.append(say("{key} = {value}", key=key, value=str(value)))
    return Part(
        kind=FRAGMENT.name,
        title="tables of torchtitan's TOML" if titan else "tables of TOML",
        belongs="the file that --job.config_file names" if titan else "",
        says=tuple(says),
    )


FRAGMENT = FragmentKind(
    name="toml_tables",
    title="tables of TOML",
    looks_for="a line such as `[parallelism]` with settings below it",
    order=20,
    claims=lambda line: _HEADER.match(line) is not None,
    read=_read,
    holds=lambda text, line: (
        _HEADER.match(text.lstrip("\n").split("\n")[0]) is not None
        and (not line.strip() or _HEADER.match(line) is not None or _SETTING.match(line) is not None)
    ),
)
