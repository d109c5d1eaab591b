"""Checks what stands in deploy/: the Kubernetes manifest against the schemas, and the container by building and running it.

`python -m tests.install.deployment` does both and says what cannot be done here. The schemas of tests/data/kubernetes check the
manifest, and kubeconform where it is installed; podman, buildah or docker builds the image, and podman or docker runs it, reads a
page and ends it. Ends with 1 if something is wrong.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import jsonschema
import yaml

ROOT = Path(__file__).resolve().parents[2]
MANIFEST = ROOT / "deploy" / "kubernetes.yaml"
SCHEMAS = ROOT / "tests" / "data" / "kubernetes" / "v1.37.0.json"
BUILDERS, RUNNERS = ("podman", "buildah", "docker"), ("podman", "docker")
IMAGE, TOKEN, PORT = "perfkit:checked", "token-of-a-check", 18866
STARTED_S = 120


def manifest() -> list[dict[str, Any]]:
    """The objects of the manifest."""
    return [document for document in yaml.safe_load_all(MANIFEST.read_text(encoding="utf-8")) if document]


def problems_of(documents: list[dict[str, Any]]) -> list[str]:
    """What the schemas refuse, each with its place; a kind that they do not have is refused too."""
    schemas = json.loads(SCHEMAS.read_text(encoding="utf-8"))
    found = []
    for document in documents:
        name = f"{document.get('kind')} {document.get('metadata', {}).get('name')}"
        if document.get("kind") not in schemas["kinds"]:
            found.append(f"{name}: no schema for this kind")
            continue
        schema = {**schemas["kinds"][document["kind"]], "$defs": schemas["$defs"]}
        errors = jsonschema.Draft202012Validator(schema).iter_errors(document)
        found += [f"{name}: {error.json_path}: {error.message[:200]}" for error in errors]
    return found


def check_manifest() -> list[str]:
    """By the schemas here, and by kubeconform where there is one."""
    found = problems_of(manifest())
    if kubeconform := shutil.which("kubeconform"):
        done = subprocess.run([kubeconform, "-strict", "-summary", str(MANIFEST)], capture_output=True, text=True, check=False)
        found += [done.stdout + done.stderr] if done.returncode else []
    return found


def works(tool: str) -> str:
    """Why a builder cannot be used here; empty if it can."""
    if shutil.which(tool) is None:
        return "not installed"
    done = subprocess.run([tool, "info"], capture_output=True, text=True, check=False, timeout=60)
    return done.stderr.strip().splitlines()[-1] if done.returncode else ""


def built(tool: str) -> list[str]:
    """Build the image; what went wrong."""
    command = [tool, "build", "-q", "-t", IMAGE, "-f", "deploy/Containerfile", "."]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=1800)
    return [f"{tool} build: {done.stderr[-1500:]}"] if done.returncode else []


def run_once(tool: str) -> list[str]:
    """Run the image as docs/app.md says, with nothing to write but its volumes, and read its first page; what went wrong."""
    limits = ["--read-only", "--tmpfs", "/tmp", "--tmpfs", "/srv/perfkit", "--cap-drop", "ALL", "--memory", "2g"]
    command = [tool, "run", "--rm", "-d", *limits, "-p", f"127.0.0.1:{PORT}:8866", "-e", f"PERFKIT_TOKEN={TOKEN}", IMAGE]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if done.returncode:
        return [f"{tool} run: {done.stderr[-1500:]}"]
    container = done.stdout.strip()
    try:
        return [] if "perfkitPage.started(" in first_page() else ["the first page is not whole"]
    except OSError as error:
        log = subprocess.run([tool, "logs", container], capture_output=True, text=True, check=False)
        return [f"the app does not answer: {error}\n{(log.stdout + log.stderr)[-1500:]}"]
    finally:
        subprocess.run([tool, "stop", "-t", "10", container], capture_output=True, check=False)


def first_page() -> str:
    """The first page, once the app listens."""
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}/00_start_here", headers={"Authorization": f"token {TOKEN}"})
    end = time.monotonic() + STARTED_S
    while True:
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                return str(reply.read().decode())
        except urllib.error.HTTPError:
            raise
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.5)


def main() -> int:
    """Check both."""
    problems = check_manifest()
    print(f"{MANIFEST.name}: {len(manifest())} objects, {len(problems)} problems")
    why = {tool: works(tool) for tool in BUILDERS}
    usable = [tool for tool in BUILDERS if not why[tool]]
    if usable:
        problems += built(usable[0])
        print(f"container: {'not built' if problems else 'built'} by {usable[0]}")
        if not problems and usable[0] in RUNNERS:
            problems += run_once(usable[0])
            print(f"container: {'failed' if problems else 'shows its first page'}")
    else:
        print("container: cannot be built here: " + "; ".join(f"{tool} {reason}" for tool, reason in why.items()))
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
