# ruff: noqa: F821  `c` is given by JupyterHub
"""A Hub for a class or a team: one perfkit a person, ended when nobody uses it. Start: jupyterhub -f deploy/jupyterhub_config.py.

For containers install `dockerspawner` and take the lines below CONTAINERS; for people of one machine whom you trust, the default
spawner does with `pip install jupyterhub jupyter-server-proxy` beside perfkit and deploy/jupyter_server_config.py in
/etc/jupyter/.
"""

import os
import sys

# Who may come: people of this list, with one password for the class. A team takes its own authenticator instead
# (OAuth, LDAP, PAM), see https://jupyterhub.readthedocs.io.
c.JupyterHub.authenticator_class = "dummy"
c.DummyAuthenticator.password = os.environ["PERFKIT_HUB_PASSWORD"]
c.Authenticator.allowed_users = {f"s{number:02}" for number in range(1, 21)} | {"teacher"}
c.Authenticator.admin_users = {"teacher"}

# What they see: the app, not JupyterLab.
c.Spawner.default_url = "/perfkit/00_start_here"
c.Spawner.http_timeout = 60
c.Spawner.environment = {
    "PERFKIT_MAX_KERNELS_PER_VISITOR": "4",  # an open page holds up to 183 MB
    "PERFKIT_HUB_PROJECT": os.environ.get("PERFKIT_HUB_PROJECT", "project"),
}
c.Spawner.mem_limit = "1G"
c.Spawner.cpu_limit = 1

# CONTAINERS: every person's project is a volume of its own; the image is that of deploy/Containerfile.
if "PERFKIT_HUB_IMAGE" in os.environ:
    c.JupyterHub.spawner_class = "dockerspawner.DockerSpawner"
    c.DockerSpawner.image = os.environ["PERFKIT_HUB_IMAGE"]
    c.DockerSpawner.remove = True
    c.DockerSpawner.volumes = {"perfkit-{username}": "/project"}
    c.Spawner.environment["PERFKIT_HUB_PROJECT"] = "/project"
    c.DockerSpawner.cmd = ["sh", "-c", "test -e /project/perfkit.toml || perfkit demo /project; exec jupyterhub-singleuser"]
    c.JupyterHub.hub_ip = "0.0.0.0"  # containers must reach the Hub

# Servers that nobody has used for an hour end (pip install jupyterhub-idle-culler).
c.JupyterHub.services = [
    {"name": "cull", "command": [sys.executable, "-m", "jupyterhub_idle_culler", "--timeout=3600"]},
]
c.JupyterHub.load_roles = [
    {
        "name": "cull",
        "scopes": ["list:users", "read:users:activity", "read:servers", "delete:servers"],
        "services": ["cull"],
    }
]
