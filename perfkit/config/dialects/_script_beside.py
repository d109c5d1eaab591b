"""The script that another one names, in the folder of that one or below."""

from __future__ import annotations

from pathlib import Path

MAX_BYTES = 1_000_000
NO_SCRIPTS = (".py", ".yaml", ".yml", ".json", ".toml")
"""Ends of what a queue is given beside scripts."""


def script_beside(path: Path | None, named: str) -> Path | None:
    """A script that another one names: by the end of its path, since its beginning (`$SCRIPT_DIR/`) is known to the shell alone."""
    if path is None:
        return None
    unknown = max(named.rfind(sign, 0, named.rfind("/") + 1) for sign in "$`){}")
    plain = named[named.find("/", unknown) + 1 :] if unknown >= 0 else named
    folder = path.resolve().parent
    for count in range(1, plain.count("/") + 1):  # named from a folder above: examples/gpt3/run.sh in examples/gpt3
        parts = plain.split("/")
        if tuple(parts[:count]) == folder.parts[-count:]:
            plain = "/".join(parts[count:])
            break
    try:
        file = (folder / plain).resolve()
        return file if file.is_relative_to(folder) and file.is_file() and file.stat().st_size <= MAX_BYTES else None
    except (OSError, ValueError):  # a name that no file can have
        return None
