"""The examples for containers and JupyterHub name what exists."""

from __future__ import annotations

import argparse
import ast
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from perfkit.face.cli import commands
from perfkit.face.cli.serve import COMMAND
from tests.install.deployment import manifest, problems_of

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
    asked = [word.format(port=8866, base_url="/user/x/") for word in entry["command"][3:]]
    parser = argparse.ArgumentParser()
    COMMAND.add(parser)
    read = parser.parse_args(asked)
    assert (read.port, read.base_url) == (8866, "/user/x/perfkit/")
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


def test_the_manifest_is_what_kubernetes_takes_and_mounts_what_the_container_has():
    documents = {document["kind"]: document for document in manifest()}
    assert problems_of(list(documents.values())) == []
    template = documents["Deployment"]["spec"]["template"]
    (container,) = template["spec"]["containers"]
    text = (DEPLOY / "Containerfile").read_text()
    assert f"EXPOSE {container['ports'][0]['containerPort']}" in text
    assert f"--uid {template['spec']['securityContext']['runAsUser']}" in text
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in template["spec"]["volumes"]}
    assert {"/project", "/var/cache/perfkit"} <= {mount["mountPath"] for mount in container["volumeMounts"]}
    claim = template["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"]
    assert claim == documents["PersistentVolumeClaim"]["metadata"]["name"]
    labels = template["metadata"]["labels"].items()
    for selector in (documents["Service"]["spec"]["selector"], documents["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"]):
        assert selector.items() <= labels


def test_the_manifest_gives_the_app_no_rights_and_no_way_out():
    documents = {document["kind"]: document for document in manifest()}
    pod = documents["Deployment"]["spec"]["template"]["spec"]
    own = pod["containers"][0]["securityContext"]
    assert (pod["automountServiceAccountToken"], pod["securityContext"]["runAsNonRoot"]) == (False, True)
    assert (own["allowPrivilegeEscalation"], own["readOnlyRootFilesystem"], own["capabilities"]) == (False, True, {"drop": ["ALL"]})
    assert {"memory", "cpu"} <= pod["containers"][0]["resources"]["limits"].keys()
    assert "egress" not in documents["NetworkPolicy"]["spec"]
    assert "Egress" in documents["NetworkPolicy"]["spec"]["policyTypes"]
    assert not re.search("token: |value: .*token", (DEPLOY / "kubernetes.yaml").read_text())


WRONG = {
    "a field that no version has": ("replicas: 1", "replica: 1"),
    "a number where a text belongs": ('value: "20"', "value: 20"),
    "a kind without a schema": ("kind: Service\n", "kind: Srvice\n"),
    "no image": ("image: perfkit:0.2.0", "imag: perfkit:0.2.0"),
}


@pytest.mark.parametrize("what", WRONG)
def test_the_schemas_refuse_a_manifest_with(what, monkeypatch, tmp_path):
    right, wrong = WRONG[what]
    text = (DEPLOY / "kubernetes.yaml").read_text()
    assert right in text
    (tmp_path / "wrong.yaml").write_text(text.replace(right, wrong, 1))
    monkeypatch.setattr("tests.install.deployment.MANIFEST", tmp_path / "wrong.yaml")
    assert len(problems_of(manifest())) >= 1
