"""Serving: the arguments and the call that `serve` and `open` share."""

from __future__ import annotations

import argparse

from perfkit.core.errors import InputError
from perfkit.face.app.forks import Preloaded


def add_serving(parser: argparse.ArgumentParser) -> None:
    """Declare what is served, where, and to whom."""
    parser.add_argument(
        "paths",
        metavar="PATH",
        nargs="*",
        help="a project, recording, log, configuration, graph, or a folder of them (default: here)",
    )
    parser.add_argument("--port", type=int, default=8866, help="port (default: 8866)")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1, this machine only)")
    parser.add_argument("--token", help="what visitors must know, or PERFKIT_TOKEN (default: one is made and printed)")
    parser.add_argument("--no-token", action="store_true", help="ask nobody: every account of this machine gets the pages")
    parser.add_argument("--user-header", metavar="NAME", default="", help="where a proxy that sends the token names the visitor")
    parser.add_argument("--base-url", metavar="PATH", default="/", help="path of the app behind a proxy (default: /)")
    parser.add_argument("--lab", action="store_true", help="open JupyterLab, with the code visible")
    parser.add_argument("--read-only", action="store_true", help="never write to the project")
    parser.add_argument("--class", dest="classroom", action="store_true", help="hold a class on page 40, write class.sqlite only")
    parser.add_argument("--class-admin", metavar="TOKEN", help="the instructor's token (default: one is made and printed)")
    parser.add_argument("--class-seed", metavar="S", type=int, help="chooses all numbers (default: the last class's, or 2024)")


def serve_with(arguments: argparse.Namespace, *, open_browser: bool) -> int:
    """Serve until Ctrl-C; gives the exit code."""
    given = [name for name in ("class_admin", "class_seed") if getattr(arguments, name) is not None]
    if given and not arguments.classroom:
        raise InputError("serve", [f"--{name.replace('_', '-')} needs --class" for name in given])
    preloaded = Preloaded()
    if not arguments.lab:
        preloaded.begin()  # it imports for two seconds, beside the server
    try:
        _serve(arguments, preloaded, open_browser=open_browser)
    finally:
        preloaded.end()
    return 0


def _serve(arguments: argparse.Namespace, preloaded: Preloaded, *, open_browser: bool) -> None:
    from perfkit.face.app.server import serve

    serve(
        *arguments.paths,
        preloaded=preloaded,
        port=arguments.port,
        lab=arguments.lab,
        read_only=arguments.read_only,
        classroom=arguments.classroom,
        class_seed=arguments.class_seed,
        class_admin=arguments.class_admin,
        host=arguments.host,
        token=arguments.token,
        base_url=arguments.base_url,
        no_token=arguments.no_token,
        user_header=arguments.user_header,
        open_browser=open_browser,
    )
