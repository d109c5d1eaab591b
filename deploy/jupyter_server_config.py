# ruff: noqa: F821  `c` is given by Jupyter
"""The single-user server of a Hub: /user/NAME/perfkit/ is the app, started when it is first opened.

The app listens on the loopback of the student's container, behind a token that only this proxy knows, so that nobody who shares
the network of the container gets past the Hub.
"""

import os
import secrets

TOKEN = secrets.token_urlsafe(24)
PROJECT = os.environ.get("PERFKIT_HUB_PROJECT", "project")

c.ServerProxy.servers = {
    "perfkit": {
        # Whoever has no project yet gets the sample project.
        "command": [
            "sh",
            "-c",
            'test -e "$0/perfkit.toml" || perfkit demo "$0"; exec perfkit serve "$0" "$@"',
            PROJECT,
            "--port",
            "{port}",
            "--base-url",
            "{base_url}perfkit/",
        ],
        "environment": {"PERFKIT_TOKEN": TOKEN},
        "request_headers_override": {"Authorization": f"token {TOKEN}"},
        "absolute_url": True,  # the app knows its path and makes its own links
        "timeout": 60,
        "launcher_entry": {"title": "perfkit"},
    }
}
