"""The examples for containers and JupyterHub name what exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from perfkit.face.cli import commands
from perfkit.face.cli.serve import COMMAND

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy"


class Settings(SimpleNamespace):
    """`c` of a configuration file: takes any option of any class."""

    def __getattr__(self, name: str) -> Settings:
        setattr(self, name, Settings())
        return self.__dict__[name]


def configuration(name: str, monkeypatch, **environment: str) -> Settings:
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    settings = Settings()
    exec(compile((DEPLOY / name).read_text(), name, "exec"), {"c": settings})
    return settings


def test_the_proxy_starts_the_app_with_options_that_exist(monkeypatch):
    entry = configuration("jupyter_server_config.py", monkeypatch).ServerProxy.servers["perfkit"]
    assert entry["command"][:2] == ["sh", "-c"]
    assert f"exec perfkit {COMMAND.name} " in entry["command"][2]
    assert "perfkit demo " in entry["command"][2]
    options = {word for word in entry["command"] if word.startswith("--")}
    source = (ROOT / "perfkit" / "face" / "cli" / "serve.py").read_text()
    assert all(f'"{option}"' in source for option in options)
    token = entry["environment"]["PERFKIT_TOKEN"]
    assert entry["request_headers_override"] == {"Authorization": f"token {token}"}


@pytest.mark.parametrize("image", [{}, {"PERFKIT_HUB_IMAGE": "perfkit"}], ids=["processes", "containers"])
def test_the_hub_opens_the_app_and_ends_idle_servers(monkeypatch, image):
    hub = configuration("jupyterhub_config.py", monkeypatch, PERFKIT_HUB_PASSWORD="x", **image)
    assert hub.Spawner.default_url.startswith("/perfkit/")
    assert any("idle_culler" in word for word in hub.JupyterHub.services[0]["command"])
    assert hub.Spawner.environment["PERFKIT_HUB_PROJECT"] == ("/project" if image else "project")


def test_the_variables_of_the_examples_are_read_by_perfkit():
    settings = (ROOT / "perfkit" / "core" / "settings.py").read_text() + (
        ROOT / "perfkit" / "face" / "app" / "server.py"
    ).read_text()
    for path in DEPLOY.iterdir():
        for variable in re.findall(r"PERFKIT_(?!HUB_)\w+", path.read_text()):
            assert variable in settings, f"{path.name}: {variable}"


def test_the_container_copies_what_the_repository_has():
    text = (DEPLOY / "Containerfile").read_text()
    for line in re.findall(r"^COPY (.*) \S+$", text, re.MULTILINE):
        for source in line.split():
            assert (ROOT / source).exists(), source
    assert "USER perfkit" in text
    assert any(known.name == "demo" for known in commands())
    assert ast.literal_eval(text[text.index('CMD ["sh"') + 4 :])[0] == "sh"
