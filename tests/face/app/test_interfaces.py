"""What the app takes from Jupyter, Voila and tornado beyond their documented interfaces, as the installed versions have it.

Each line is a name that perfkit calls or overrides, with the parameters that it relies on. A release that changes one of them fails
here, by name, before a page does; pyproject.toml allows no release that was not tried.
"""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from jinja2 import Environment
from voila.paths import collect_template_paths

from perfkit.face.app.adapter import PageExporter

APP = Path(__file__).resolve().parents[3] / "perfkit" / "face" / "app"
CALLED = {
    "ipywidgets.widgets.widget:Widget.get_state": ("key",),
    "ipywidgets.widgets.widget:Widget.send_state": ("key",),
    "ipywidgets.widgets.widget:Widget.set_state": ("sync_data",),
    "jupyter_client.asynchronous.client:AsyncKernelClient._handle_kernel_info_reply": ("msg",),
    "jupyter_client.asynchronous.client:AsyncKernelClient.wait_for_ready": ("timeout",),
    "jupyter_client.client:KernelClient.execute": ("code", "store_history"),
    "jupyter_client.client:KernelClient.kernel_info": (),
    "jupyter_client.client:KernelClient.start_channels": ("shell", "iopub", "stdin", "hb", "control"),
    "jupyter_client.manager:KernelManager.cleanup_connection_file": (),
    "jupyter_client.manager:KernelManager.cleanup_ipc_files": (),
    "jupyter_client.manager:KernelManager.connect_shell": ("identity",),
    "jupyter_client.manager:KernelManager.connect_control": ("identity",),
    "jupyter_client.manager:KernelManager.connect_iopub": ("identity",),
    "jupyter_client.manager:KernelManager.connect_stdin": ("identity",),
    "jupyter_client.multikernelmanager:MultiKernelManager.new_kernel_id": (),
    "jupyter_client.multikernelmanager:MultiKernelManager.remove_kernel": ("kernel_id",),
    "jupyter_client.provisioning.local_provisioner:LocalProvisioner.launch_kernel": ("cmd",),
    "jupyter_client.provisioning.factory:KernelProvisionerFactory.GROUP_NAME": None,
    "jupyter_server.auth.identity:IdentityProvider.generate_anonymous_user": ("handler",),
    "jupyter_server.auth.identity:IdentityProvider.get_cookie_name": ("handler",),
    "jupyter_server.auth.identity:IdentityProvider.get_token": ("handler",),
    "jupyter_server.auth.identity:IdentityProvider.get_user_cookie": ("handler",),
    "jupyter_server.auth.identity:IdentityProvider.get_user_token": ("handler",),
    "jupyter_server.auth.identity:IdentityProvider.set_login_cookie": ("handler", "user"),
    "jupyter_server.services.kernels.connection.base:deserialize_msg_from_ws_v1": ("ws_msg",),
    "jupyter_server.services.kernels.connection.base:serialize_msg_to_ws_v1": ("msg_or_list", "channel"),
    "jupyter_server.services.kernels.kernelmanager:AsyncMappingKernelManager.cull_kernel_if_idle": ("kernel_id",),
    "jupyter_server.services.kernels.kernelmanager:AsyncMappingKernelManager.stop_buffering": ("kernel_id",),
    "jupyter_server.services.kernels.kernelmanager:ServerKernelManager": None,
    "tornado.httpserver:HTTPServer.handle_stream": ("stream", "address"),
    "tornado.httpserver:HTTPServer.initialize": ("request_callback",),
    "tornado.web:RequestHandler.flush": ("include_footers",),
    "tornado.web:RequestHandler.on_connection_close": (),
    "voila.app:Voila.init_handlers": (),
    "voila.app:Voila.listen": (),
    "voila.app:Voila.setup_template_dirs": (),
    "voila.execute:VoilaExecutor.execute_cell": ("cell", "resources", "cell_index", "store_history"),
    "voila.exporter:VoilaExporter._create_environment": (),
    "voila.notebook_renderer:VoilaExecutor": None,
    "voila.notebook_renderer:VoilaExporter": None,
    "voila.shutdown_kernel_handler:VoilaShutdownKernelHandler.post": ("kernel_id",),
    "voila.tornado.handler:TornadoVoilaHandler.get": ("path",),
    "voila.tornado.kernel_websocket_handler:VoilaKernelWebsocketHandler.open": ("kernel_id",),
    "voila.tornado.treehandler:TornadoVoilaTreeHandler": None,
    "voila.voila_identity_provider:VoilaIdentityProvider": None,
}
"""Where a name stands, and the parameters that are given to it; None: the name alone."""
TRAITS = {
    "voila.app:Voila": "ip port base_url token cookie_secret identity_provider_class port_retries root_dir open_browser",
    "voila.configuration:VoilaConfiguration": "template strip_sources show_tracebacks allow_template_override file_allowlist "
    "allow_theme_override extension_allowlist multi_kernel_manager_class kernel_spec_manager_class page_config_hook "
    "http_keep_alive_timeout",
    "jupyter_server.services.kernels.kernelmanager:AsyncMappingKernelManager": "cull_idle_timeout cull_interval cull_connected "
    "kernel_info_timeout kernel_manager_class connection_dir",
    "jupyter_client.manager:KernelManager": "transport autorestart context",
    "jupyter_client.manager:AsyncKernelManager": "client_factory",
    "jupyter_client.provisioning.factory:KernelProvisionerFactory": "default_provisioner_name",
    "ipywidgets.widgets.widget:Widget": "comm",
}
TAKEN_FOR_GRANTED = {
    "voila.handler": ("voila_heartbeat",),
    "voila.notebook_renderer": ("kernel_start", "cell_generator"),
    "jupyter_server.services.kernels.websocket": ("v1.kernel.websocket.jupyter.org",),
    "ipywidgets.widgets.widget": ("jupyter.widget.control", "request_states", "update_states"),
}
"""What the app's template, handlers and script expect in the code of others: there is no interface for it."""


def thing(place: str) -> object:
    module, _, names = place.partition(":")
    found: object = import_module(module)
    for name in names.split("."):
        found = inspect.getattr_static(found, name) if inspect.isclass(found) else getattr(found, name)
    return found


@pytest.mark.parametrize("place", CALLED)
def test_a_name_that_the_app_calls_or_overrides_is_there_with_its_parameters(place):
    found = thing(place)
    if (wanted := CALLED[place]) is None:
        return
    assert callable(found), place
    parameters = inspect.signature(found).parameters
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    assert takes_any or set(wanted) <= set(parameters), f"{place} has {list(parameters)}"
    required = [name for name, each in parameters.items() if each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD]
    assert set(required) <= {"self", "cls", *wanted}, f"{place} wants more than it is given: {required}"


@pytest.mark.parametrize("place", TRAITS)
def test_a_setting_that_the_app_makes_exists(place):
    names = thing(place).class_trait_names()
    assert [name for name in TRAITS[place].split() if name not in names] == []


@pytest.mark.parametrize("module", TAKEN_FOR_GRANTED)
def test_what_template_and_script_expect_stands_there(module):
    source = inspect.getsource(import_module(module))
    assert [word for word in TAKEN_FOR_GRANTED[module] if word not in source] == []


def test_whatever_the_app_imports_is_required_with_a_bound_above():
    used = set()
    for path in APP.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [each.name for each in getattr(node, "names", [])]
            used |= {name.partition(".")[0] for name in names if isinstance(node, ast.Import | ast.ImportFrom)}
    wanted = {name: name.replace("_", "-") for name in used} | {"zmq": "pyzmq"}
    project = tomllib.loads((APP.parents[2] / "pyproject.toml").read_text())["project"]
    bounds = {re.match(r"[\w-]+", line)[0]: line for line in project["dependencies"]}
    foreign = {"jupyter-client", "jupyter-server", "jupyterlab", "ipykernel", "tornado", "traitlets", "voila", "pyzmq"}
    assert {wanted[name] for name in used} & foreign == foreign
    assert [name for name in foreign if "<" not in bounds.get(name, "")] == []


def test_the_template_of_pages_is_compiled_once_in_the_life_of_a_server(monkeypatch):
    folders = [str(APP / "templates"), *collect_template_paths(["voila", "nbconvert"], "lab")]

    def template() -> Any:
        return PageExporter(template_paths=folders, template_name="lab").template

    template()
    monkeypatch.setattr(Environment, "compile", lambda *_, **__: pytest.fail("compiled again"))
    assert template().filename == str(APP / "templates" / "index.html.j2")
