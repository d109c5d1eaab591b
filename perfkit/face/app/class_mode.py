"""Class mode: one server for a class; the project is only read, answers go to class.sqlite, the instructor has a token."""

from __future__ import annotations

import os
import secrets
from hashlib import sha256
from pathlib import Path

from perfkit.core import settings
from perfkit.core.errors import InputError
from perfkit.core.texts import say
from perfkit.face.app.access import SHORTEST_TOKEN

DEFAULT_SEED = 2024
KERNEL_BYTES = 183_000_000
"""Measured: one open page."""
RESERVED_BYTES = 4_000_000_000
CLASS_SIZE = 20
SPARE = 4


def start_class(project: Path, *, seed: int | None = None, token: str | None = None) -> list[str]:
    """Set this process up for a class and give the lines to print.

    `seed` is by default that of the class that the project held last, so that a restarted server goes on with it. Without `token`
    one is made. Raises InputError if the folder is no project or cannot be written.
    """
    if not (project / settings.PROJECT_FILE).is_file():
        raise InputError(str(project), [f"has no {settings.PROJECT_FILE}; `perfkit demo FOLDER` writes a project for a class"])
    if seed is not None and seed < 0:
        raise InputError("--class-seed", [f"{seed} must be at least 0"])
    if token is not None and not token.strip():
        raise InputError("--class-admin", ["is empty; give a token, or leave the option out and one is made"])
    if token is not None and len(token.strip()) < SHORTEST_TOKEN:
        short = f"has {len(token.strip())} characters; at least {SHORTEST_TOKEN} keep students from guessing it"
        raise InputError("--class-admin", [short])
    from perfkit.teach import class_store  # noqa: PLC0415  half a second that a server without a class does not need

    store = class_store(project)
    chosen = int(store.control("seed", DEFAULT_SEED)) if seed is None else seed
    store.set_control("seed", chosen)
    secret = (token or secrets.token_urlsafe(9)).strip()
    os.environ["PERFKIT_CLASS"] = str(chosen)
    os.environ["PERFKIT_CLASS_ADMIN"] = sha256(secret.encode("utf-8")).hexdigest()
    os.environ["PERFKIT_READ_ONLY"] = "1"
    form = "class {seed}: page 40_class; answers go to {file}"
    lines = [say(form, seed=str(chosen), file=str(project / "class.sqlite"))]
    if token is None:
        lines.append(say("instructor's token (type it on page 40, under Instructor): {token}", token=secret))
    return [*lines, *capacity(settings.free_memory_bytes())]


def codes_of_class() -> dict[str, str]:
    """The students of the class that this server holds by the digest of their code; empty where names are typed."""
    project = settings.project_folder()
    if project is None or settings.class_seed() is None:
        return {}
    from perfkit.teach import class_codes  # noqa: PLC0415  as above

    return class_codes(project)


def capacity(free_bytes: int) -> list[str]:
    """How many pages fit, and a warning if that is too few for a class."""
    fit = max(0, (free_bytes - RESERVED_BYTES) // KERNEL_BYTES)
    fit = min(fit, settings.max_kernels(free_bytes)) if os.environ.get("PERFKIT_MAX_KERNELS") else fit
    lines = [f"{fit} pages fit at once"]
    if fit < CLASS_SIZE + SPARE:
        lines.append(f"warning: a class of {CLASS_SIZE} needs {CLASS_SIZE + SPARE}; free memory, or let pairs share a page")
    return lines
