"""Web: what a browser may do with the app's pages, and which of its requests may start one.

Browsers say of each request where it comes from (fetch metadata). A page of another origin may lead here by a link, and gets a
doorstep without a kernel; it may not draw a page, fetch it, or put it into a frame. Scripts run only from the app itself, or with
the number that this very answer was given.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal
from urllib.parse import urlsplit

from tornado.httputil import HTTPServerRequest

Entry = Literal["page", "doorstep", "refused"]
_HOST = re.compile(r"[\w.\-\[\]:]+")
_OWN = ("same-origin", "none")

PLAIN_POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
"""Of what is no page: data, files, errors."""
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": PLAIN_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}


def page_policy(nonce: str, host: str) -> str:
    """The policy of a page: everything from this server; inline scripts only with `nonce`.

    Style attributes cannot be told apart (charts and widgets set them); they can request nothing but pictures of this server. The
    chart library compiles expressions, for which browsers have one switch ('unsafe-eval').
    """
    sockets = f" ws://{host} wss://{host}" if _HOST.fullmatch(host) else ""  # some browsers do not count them to 'self'
    return "; ".join(
        (
            "default-src 'self'",
            f"script-src 'self' 'nonce-{nonce}' 'unsafe-eval'",
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data: blob:",
            "font-src 'self' data:",
            f"connect-src 'self'{sockets}",
            "worker-src 'self'",
            "object-src 'none'",
            "base-uri 'self'",
            "form-action 'self'",
            "frame-ancestors 'self'",
        )
    )


def entry(request: HTTPServerRequest) -> Entry:
    """Whether a request may start a page: not from another origin, and not ahead of a visitor who may never come."""
    headers = request.headers
    if "prefetch" in headers.get("Sec-Purpose", headers.get("Purpose", "")).lower():
        return "refused"
    site = headers.get("Sec-Fetch-Site", "")
    if not site:  # a program, or a browser of before 2023
        referer = headers.get("Origin", headers.get("Referer", ""))
        return "page" if not referer or urlsplit(referer).netloc == request.host else "doorstep"
    if site in _OWN:
        return "page"
    leads_here = headers.get("Sec-Fetch-Mode") == "navigate" and headers.get("Sec-Fetch-Dest") == "document"
    return "doorstep" if leads_here else "refused"
