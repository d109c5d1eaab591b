"""Access: on which address the app listens, who gets in, and what a visitor without the token sees.

On this machine's own address nobody is asked for anything. Beyond it every request needs the token, once as `?token=` or typed on
the login page, from then on as a signed cookie of the browser; programs send the header `Authorization: token ...`.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import re
import secrets
from dataclasses import dataclass, field
from typing import Any

from jupyter_server.auth.decorator import allow_unauthenticated
from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.utils import url_path_join
from voila.voila_identity_provider import VoilaIdentityProvider

from perfkit.core.errors import InputError

LOCAL_HOST = "127.0.0.1"
SHORTEST_TOKEN = 8
_BASE_URL = re.compile(r"/(?:[\w.~@%+-]+/)*")


@dataclass(frozen=True, kw_only=True, slots=True)
class Access:
    """Where the app listens. `token` is empty where none is asked for; `made` says that nobody chose it."""

    host: str = LOCAL_HOST
    token: str = field(default="", repr=False)
    base_url: str = "/"
    made: bool = False

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the app."""
        return is_loopback(self.host)

    def address(self, port: int) -> str:
        """What to open in a browser; with the token only if it is printed nowhere else."""
        host = "127.0.0.1" if self.host in ("0.0.0.0", "::", "") else self.host
        host = f"[{host}]" if ":" in host else host
        return f"http://{host}:{port}{self.base_url}" + (f"?token={self.token}" if self.made else "")


def access_to(host: str = LOCAL_HOST, token: str | None = None, base_url: str = "/") -> Access:
    """Who may reach an app at `host`: beyond this machine a token is required, and made if none is given.

    Raises InputError with all problems: a token that is too short to keep anybody out, an address or path that is none.
    """
    problems = []
    if not host.strip():
        problems.append("--host is empty; 127.0.0.1 is this machine only, 0.0.0.0 every network that it is in")
    if token is not None and len(token.strip()) < SHORTEST_TOKEN:
        problems.append(f"--token has {len(token.strip())} characters; at least {SHORTEST_TOKEN} keep guessers out")
    path = "/" + base_url.strip("/") + "/" if base_url.strip("/") else "/"
    if not _BASE_URL.fullmatch(path):
        problems.append(f"--base-url {base_url!r} is no path such as /perfkit/")
    if problems:
        raise InputError("serve", problems)
    made = token is None and not is_loopback(host)
    return Access(host=host.strip(), token=secrets.token_urlsafe(18) if made else (token or "").strip(), base_url=path, made=made)


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Identity(VoilaIdentityProvider):  # type: ignore[misc]
    """One identity a browser, kept in a signed cookie; with a token, only for browsers that have shown it."""

    def get_handlers(self) -> list[tuple[str, Any]]:
        """The login page."""
        return [(url_path_join(self.parent.base_url, "login"), LoginHandler)] if self.token else []


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
        """Compare what was typed, in constant time; a wrong guess costs its guesser a second."""
        typed = self.get_argument("token", "").strip()
        if not hmac.compare_digest(typed.encode(), self.identity_provider.token.encode()):
            await asyncio.sleep(1)
            self.set_status(401)
            self._page(failed=True)
            return
        self.identity_provider.set_login_cookie(self, self.identity_provider.generate_anonymous_user(self))
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
