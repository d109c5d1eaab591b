"""Session: who is here, in a class or alone; where answers go, how long a card has been open, and what the instructor tells all."""

from __future__ import annotations

import hmac
import time
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from threading import Lock
from typing import Any

from perfkit.core import settings
from perfkit.core.errors import InputError
from perfkit.core.texts import say
from perfkit.core.units import NS_PER_MS, NS_PER_S
from perfkit.project import project_here
from perfkit.teach._draw import student_name
from perfkit.teach._store import PRACTICE_SEED, Store, class_store, memory_store, practice_store

NOT_KEPT = "No project is open: answers are kept only as long as this page. Make one on page 00."
GUEST = "guest"
"""Who is here alone and has no name yet: what a guest answers is gone with the page."""
WELCOME = "You are a guest: answers go with this page. With your name they stay, in any tab."
AWAY_NS = 30 * NS_PER_S
"""A page that has not been heard of for so long is closed: it calls every few seconds."""
_opened: dict[tuple[str, str], float] = {}
_lock = Lock()
_wrong: set[str] = set()
_LONGEST_WAIT_S = 30


@dataclass(frozen=True, slots=True)
class Session:
    """A student in a class, or alone: the store, the seed and the name."""

    store: Store
    class_seed: int
    student: str

    def rows(self) -> list[dict[str, Any]]:
        """All that the student has done, oldest first."""
        return self.store.rows(self.class_seed, self.student)

    def told(self) -> str:
        """Who it is and where answers go."""
        if self.student == GUEST and self.store is _memory():
            return say(WELCOME)
        if not self.store.place:
            return say("You are {name}. {why}", name=self.student, why=NOT_KEPT)
        return say("You are {name}. Your answers are kept in {place}.", name=self.student, place=self.store.place)


def session_of(typed_name: str) -> Session | None:
    """Who is here: whom the server knows, else the typed name. Raises InputError for one that cannot be kept.

    Without a name None in a class, whose numbers a name chooses, and a guest elsewhere.
    """
    seed = settings.class_seed()
    name = settings.student() if seed is not None and settings.student() else typed_name  # a known name is not typed
    if name.strip():
        return Session(the_store(), PRACTICE_SEED if seed is None else seed, student_name(name))
    return Session(_memory(), PRACTICE_SEED, GUEST) if seed is None else None


def in_class() -> bool:
    """Whether a class is held here."""
    return settings.class_seed() is not None


def the_store() -> Store:
    """Where answers go: the class, else the project's experiment log, else this page's memory."""
    project = project_here()
    if settings.class_seed() is not None:
        if project is None:
            raise InputError("class", ["needs a project; start it with: perfkit serve FOLDER --class"])
        return class_store(project.folder)
    return practice_store(project.folder) if project is not None and not project.read_only else _memory()


@cache
def _memory() -> Store:
    return memory_store()


def num_present(store: Store) -> int:
    """How many students have a page open."""
    now_ns = time.time_ns()
    return sum(now_ns - seen_ns < AWAY_NS for seen_ns in store.present().values())


def bulletin(typed_name: str) -> dict[str, Any]:
    """What every page of a class shows above all else: the instructor's line, the clock, and how many are here.

    Says at once that the student's page is open. Empty without a class.
    """
    if settings.class_seed() is None:
        return {}
    try:
        store = the_store()
        if name := settings.student() or typed_name.strip():
            store.seen(student_name(name))
        ends_ns = int(store.control("timer_ends_ns", 0))
        state = "ended" if store.control("ended", False) else "paused" if store.control("frozen", False) else ""
        return {
            "message": store.control("message", ""),
            "state": state,
            "ends_ms": ends_ns // NS_PER_MS,
            "here": num_present(store),
        }
    except InputError as error:
        return {"message": error.problems[0], "state": "", "ends_ms": 0, "here": 0}


def opened(student: str, card: str) -> None:
    """A card is shown; its time runs from the first moment."""
    with _lock:
        _opened.setdefault((student, card), time.monotonic())


def spent_s(student: str, card: str) -> float:
    """Seconds since the card was opened or last answered; the next count begins."""
    now = time.monotonic()
    with _lock:
        before = _opened.get((student, card), now)
        _opened[student, card] = now
    return round(now - before, 1)


def is_instructor(token: str) -> bool:
    """Whether the token is the one that the server was started with; each new wrong one costs a second, then two, up to 30."""
    if not token.strip() or not settings.class_admin_digest():
        return False
    digest = sha256(token.strip().encode("utf-8")).hexdigest()
    right = hmac.compare_digest(digest, settings.class_admin_digest())
    if not right and digest not in _wrong:
        with _lock:
            _wrong.add(digest)
            time.sleep(min(2 ** (len(_wrong) - 1), _LONGEST_WAIT_S))
    return right


def check_open(store: Store, group: str) -> None:
    """Raises InputError while the instructor has closed a block, frozen all pages or ended the class."""
    if store.control("ended", False):
        raise InputError("class", ["has ended; your answers are kept, new ones are not taken"])
    if store.control("frozen", False):
        raise InputError("class", ["is paused by the instructor; wait for the sign to go on"])
    if group in store.control("closed", []):
        raise InputError(group, ["is not open yet; the instructor opens the blocks one by one"])
