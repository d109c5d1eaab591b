"""Uses an installed perfkit as somebody does who has just installed it: a sample project, a recording, a page of the app.

Runs with the Python of that installation, in any folder, with nothing but the standard library of its own; its argument is the
folder in which perfkit is installed. Ends with 1 and says why if something does not work, or if perfkit comes from elsewhere.
"""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

PAGES = ("00_start_here", "02_model_cost")


def run(*arguments: str) -> str:
    done = subprocess.run([sys.executable, "-m", "perfkit", *arguments], capture_output=True, text=True, check=False, timeout=180)
    if done.returncode:
        sys.exit(f"perfkit {' '.join(arguments)} ended with {done.returncode}:\n{done.stdout[-500:]}{done.stderr[-1500:]}")
    return done.stdout


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def page(url: str, name: str, token: str) -> str:
    """A page with all its cells; tries until the server listens."""
    request = urllib.request.Request(f"{url}{name}", headers={"Authorization": f"token {token}"})
    end = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(request, timeout=120) as reply:
                return str(reply.read().decode())
        except urllib.error.HTTPError as error:
            sys.exit(f"page {name}: {error.code}\n{error.read().decode()[-500:]}")
        except OSError:
            if time.monotonic() > end:
                sys.exit("the app does not listen after 60 s")
            time.sleep(0.2)


def served(project: Path) -> None:
    """The app shows pages whose cells all compute, and ends when it is told to."""
    port, token = free_port(), "matrix-of-installs"
    # Whatever a shell runs in the background ignores Ctrl-C, and what that starts would too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with Path("server.log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "perfkit", "serve", str(project), "--port", str(port), "--token", token],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        for name in PAGES:
            text = page(f"http://127.0.0.1:{port}/", name, token)
            wrong = re.findall(r"cell-error|</html>", text)
            if wrong != ["</html>"] or "perfkitPage.started(" not in text:
                sys.exit(f"page {name} is not whole: {wrong}\n{Path('server.log').read_text()[-2000:]}")
    finally:
        server.send_signal(signal.SIGINT)
        ended = server.wait(timeout=30)
    if ended:
        sys.exit(f"the app ended with {ended}:\n{Path('server.log').read_text()[-2000:]}")


def main() -> None:
    import perfkit
    from perfkit.core.resources import data_folder

    place, expected = Path(perfkit.__file__).resolve(), Path(sys.argv[1]).resolve()
    if not place.is_relative_to(expected):
        sys.exit(f"perfkit is that of {place}, not the one installed in {expected}")
    if run("--version").split()[-1] != perfkit.__version__:
        sys.exit("perfkit --version says another version")
    project = Path("mein Projekt für später")
    run("demo", str(project))
    sample = data_folder() / "traces" / "torch_npu_2rank"
    if not json.loads(run("summary", str(sample), "--json")):
        sys.exit("the summary of a sample is empty")
    served(project)
    print(f"perfkit {perfkit.__version__} works on Python {sys.version.split()[0]}")


if __name__ == "__main__":
    main()
