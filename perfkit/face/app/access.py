"""Access: on which address the app listens, who gets in, and what a visitor without the token sees.

Every request needs the token, once as `?token=` or typed on the login page, from then on as a signed cookie of the browser;
programs send the header `Authorization: token ...`. On this machine's own address too: other accounts of a shared machine reach it.
A student of a class types a code instead, which is a name; and a proxy that sends the token may tell who somebody is in a header.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import re
import secrets
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any, cast

from jupyter_server.auth.decorator import allow_unauthenticated
from jupyter_server.auth.identity import User
from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.utils import url_path_join
from traitlets import Dict, Unicode
from traitlets.log import get_logger

from perfkit.core.errors import InputError
from perfkit.face.app.adapter import IdentityProvider

LOCAL_HOST = "127.0.0.1"
SHORTEST_TOKEN = 8
_NAMED = "named:"
_LONGEST_WAIT_S, _FORGIVEN_S = 30, 600
_HEADER = re.compile(r"[A-Za-z0-9-]{1,60}")
_BASE_URL = re.compile(r"/(?:[\w.~@%+-]+/)*")


@dataclass(frozen=True, kw_only=True, slots=True)
class Access:
    """Where the app listens. `token` is empty where none is asked for; `made` says that nobody chose it."""

    host: str = LOCAL_HOST
    token: str = field(default="", repr=False)
    base_url: str = "/"
    made: bool = False
    user_header: str = ""

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the app."""
        return is_loopback(self.host)

    def address(self, port: int) -> str:
        """What to open in a browser; with the token only if it is printed nowhere else."""
        host = "127.0.0.1" if self.host in ("0.0.0.0", "::", "") else self.host
        host = f"[{host}]" if ":" in host else host
        return f"http://{host}:{port}{self.base_url}" + (f"?token={self.token}" if self.made else "")


def access_to(
    host: str = LOCAL_HOST, token: str | None = None, base_url: str = "/", *, no_token: bool = False, user_header: str = ""
) -> Access:
    """Who may reach an app at `host`: a token is required, and made if none is given.

    `no_token` asks nobody, on this machine's own address alone; `user_header` is where a proxy that sends the token names the
    visitor. Raises InputError with all problems: a token that is too short to keep anybody out, an address or path that is none.
    """
    problems = []
    if not host.strip():
        problems.append("--host is empty; 127.0.0.1 is this machine only, 0.0.0.0 every network that it is in")
    if token is not None and len(token.strip()) < SHORTEST_TOKEN:
        problems.append(f"--token has {len(token.strip())} characters; at least {SHORTEST_TOKEN} keep guessers out")
    path = "/" + base_url.strip("/") + "/" if base_url.strip("/") else "/"
    if not _BASE_URL.fullmatch(path):
        problems.append(f"--base-url {base_url!r} is no path such as /perfkit/")
    if no_token and (token is not None or not is_loopback(host)):
        problems.append("--no-token goes with no --token, and with 127.0.0.1 alone: who reaches the address has the project")
    if user_header and not _HEADER.fullmatch(user_header):
        problems.append(f"--user-header {user_header!r} is no name of a header such as X-Forwarded-User")
    if problems:
        raise InputError("serve", problems)
    made = token is None and not no_token
    secret = secrets.token_urlsafe(18) if made else (token or "").strip()
    return Access(host=host.strip(), token=secret, base_url=path, made=made, user_header=user_header)


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Identity(IdentityProvider):
    """One identity a browser, kept in a signed cookie; with a token, only for browsers that have shown it, or a student's code."""

    user_header = Unicode("", config=True, help="where a proxy that sends the token names the visitor")
    codes = Dict(config=True, help="students by the SHA-256 of their code")

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.guesses = Guesses()
        self.cookie_options = {"samesite": "Lax"}

    def get_handlers(self) -> list[tuple[str, Any]]:
        """The login page."""
        return [(url_path_join(self.parent.base_url, "login"), LoginHandler)] if self.token else []

    async def get_user_token(self, handler: Any) -> User | None:
        """Who shows the token or a code with this very request, by the name that a proxy gives if it does."""
        shown = self.get_token(handler) if self.token else ""
        if not shown:
            return None
        user = await self.user_of(shown, handler)
        told = handler.request.headers.get(self.user_header, "") if self.user_header else ""
        return named(told) if told.strip() and user is not None and not is_named(user) else user

    async def user_of(self, secret: str, handler: Any) -> User | None:
        """Who knows `secret`: the token, or the code of a student; a wrong one costs its guesser time."""
        if hmac.compare_digest(secret.encode(), self.token.encode()):
            known = self.get_user_cookie(handler)
            return known if isinstance(known, User) else self.generate_anonymous_user(handler)
        if self.codes:
            from perfkit.teach import digest_of  # noqa: PLC0415  half a second that a server without a class does not need

            student = self.codes.get(digest_of(secret))
            if student is not None:
                return named(student)
        await self.guesses.pay(handler.request.remote_ip)
        return None


class Guesses:
    """What wrong guesses cost: the second of one guesser a second, then two, up to half a minute, one after the other."""

    def __init__(self) -> None:
        self._wrong: Counter[str] = Counter()
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def pay(self, guesser: str) -> None:
        """Wait; nobody guesses several at once."""
        async with self._turns[guesser]:
            self._wrong[guesser] += 1
            get_logger().warning("a wrong token or code from %s, guess %d", guesser, self._wrong[guesser])
            await asyncio.sleep(self.delay_s(guesser))
            asyncio.get_running_loop().call_later(_FORGIVEN_S, self._forgive, guesser)

    def delay_s(self, guesser: str) -> float:
        """Seconds that the last wrong guess costs."""
        return float(min(2 ** max(0, self._wrong[guesser] - 3), _LONGEST_WAIT_S))

    def _forgive(self, guesser: str) -> None:
        self._wrong[guesser] -= 1
        if self._wrong[guesser] <= 0:
            del self._wrong[guesser]
            if not self._turns[guesser].locked():
                self._turns.pop(guesser, None)


def named(name: str) -> User:
    """Somebody whose name is not typed but known."""
    clean = " ".join("".join(letter for letter in name if letter.isprintable()).split())[:60]
    return User(username=f"{_NAMED}{clean}", name=clean, display_name=clean)


def is_named(user: User) -> bool:
    """Whether the name was given by a proxy or a code."""
    return str(user.username).startswith(_NAMED)


class LoginHandler(JupyterHandler):
    """/login: a field for the token, for those who came without it."""

    @allow_unauthenticated
    def get(self) -> None:
        """Show the field, or go on if the browser is known."""
        if self.current_user:
            self.redirect(self._wanted())
        else:
            self._page(failed=False)

    @allow_unauthenticated
    async def post(self) -> None:
        """Compare what was typed, in constant time; a wrong guess costs its guesser a second and more."""
        identity = cast(Identity, self.identity_provider)
        user = await identity.user_of(self.get_argument("token", "").strip(), self)
        if user is None:
            self.set_status(401)
            self._page(failed=True)
            return
        identity.set_login_cookie(self, user)
        self.redirect(self._wanted())

    def _wanted(self) -> str:
        return own_path(self.get_argument("next", ""), self.base_url)

    def _page(self, *, failed: bool) -> None:
        from perfkit.face.app.handlers import login_page  # noqa: PLC0415  handlers builds on the kernels, access on nothing

        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.set_header("Cache-Control", "no-store")
        self.finish(login_page(self, wanted=self._wanted(), failed=failed))


def own_path(path: str, base_url: str) -> str:
    """`path` if it lies in the app, else the app's first page: a link to the login page must not lead elsewhere."""
    inside = path.startswith(base_url) and re.match(r"/(?![/\\])", path)
    return path if inside and ".." not in path and "\\" not in path else base_url
