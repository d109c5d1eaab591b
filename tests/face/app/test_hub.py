"""The example for JupyterHub with a real Hub: a person logs in, gets a server, and sees a page of the app computed.

Needs `pip install jupyterhub jupyter-server-proxy jupyterhub-idle-culler` and configurable-http-proxy (on PATH, or named by
`CONFIGURABLE_HTTP_PROXY`); skipped without them. Everything stays on 127.0.0.1.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import requests

from tests.browser.app_server import free_port

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
PROXY = os.environ.get("CONFIGURABLE_HTTP_PROXY") or shutil.which("configurable-http-proxy")
NEEDED = ("jupyterhub", "jupyter_server_proxy", "jupyterhub_idle_culler")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(any(importlib.util.find_spec(name) is None for name in NEEDED), reason="JupyterHub is not installed"),
    pytest.mark.skipif(PROXY is None, reason="configurable-http-proxy is not installed"),
]
CONFIG = """
load_subconfig({example!r})
c.JupyterHub.spawner_class = "simple"
c.JupyterHub.bind_url = "http://127.0.0.1:{port}/"
c.JupyterHub.hub_port = {hub_port}
c.JupyterHub.db_url = "sqlite:///{folder}/hub.sqlite"
c.JupyterHub.cookie_secret_file = "{folder}/cookie_secret"
c.ConfigurableHTTPProxy.command = [{proxy!r}]
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{proxy_port}"
c.SimpleLocalProcessSpawner.home_dir_template = "{folder}/home-{{username}}"
c.Spawner.cmd = [{python!r}, "-m", "jupyterhub.singleuser", "--allow-root", "--config={server}"]
c.Spawner.env_keep = ["PATH", "PYTHONPATH", "LANG"]
c.Spawner.start_timeout = c.Spawner.http_timeout = 120
"""


@pytest.fixture
def hub(tmp_path):
    """The address of a Hub that runs the example with processes of this account."""
    port = free_port()
    path = tmp_path / "config.py"
    path.write_text(
        CONFIG.format(
            example=str(DEPLOY / "jupyterhub_config.py"),
            server=DEPLOY / "jupyter_server_config.py",
            port=port,
            hub_port=free_port(),
            proxy_port=free_port(),
            proxy=PROXY,
            python=sys.executable,
            folder=tmp_path,
        )
    )
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PERFKIT_", "JUPYTERHUB_"))}
    places = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", "")])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with (tmp_path / "hub.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "jupyterhub", "-f", str(path)],
            env=kept | {"PERFKIT_HUB_PASSWORD": "of the class", "PATH": places},
            cwd=tmp_path,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield f"http://127.0.0.1:{port}", tmp_path / "hub.log"
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=60)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def until(ask, wanted, log: Path, timeout_s: float = 180) -> requests.Response:
    """The first answer that is wanted; says what the Hub said if none comes."""
    end, reply = time.monotonic() + timeout_s, None
    while time.monotonic() < end:
        with contextlib.suppress(requests.ConnectionError):
            reply = ask()
            if wanted(reply):
                return reply
        time.sleep(1)
    raise AssertionError(f"{reply and (reply.status_code, reply.url, reply.text[-500:])}\n{log.read_text()[-4000:]}")


def logged_in(url: str, name: str, password: str, log: Path) -> requests.Session:
    browser = requests.Session()
    until(lambda: browser.get(f"{url}/hub/login", timeout=10), lambda reply: reply.ok, log)
    form = {"username": name, "password": password, "_xsrf": browser.cookies.get("_xsrf", path="/hub/")}
    browser.post(f"{url}/hub/login", data=form, timeout=60)
    return browser


def test_a_person_of_the_hub_sees_a_page_of_the_app_and_a_stranger_none(hub):
    url, log = hub
    stranger = logged_in(url, "mallory", "of the class", log)
    assert "/hub/login" in stranger.get(f"{url}/user/s01/perfkit/02_model_cost", timeout=60).url

    browser = logged_in(url, "s01", "of the class", log)
    browser.get(f"{url}/hub/spawn", timeout=60)
    page = until(
        lambda: browser.get(f"{url}/user/s01/perfkit/02_model_cost", timeout=180),
        lambda reply: reply.ok and "perfkitPage.started(" in reply.text,
        log,
    )
    assert "cell-error" not in page.text
    health = browser.get(f"{url}/user/s01/perfkit/perfkit/health", timeout=60).json()
    assert health["version"]

    other = logged_in(url, "s02", "of the class", log)
    assert other.get(f"{url}/user/s01/perfkit/02_model_cost", timeout=60).status_code in {403, 404}
