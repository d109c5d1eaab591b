"""Which of Voila's routes the app serves does not depend on the words of the path that it is served under."""

import pytest

from perfkit.face.app.adapter import is_of_lab

KERNEL = r"api/kernels/(?P<kernel_id>\w+-\w+-\w+-\w+-\w+)"
OF_LAB = [
    "voila/static/(.*)",
    "voila/labextensions/(.*)",
    "voila/api/themes/(.*)",
    "voila/files/(.*)",
    "voila/templates/(.*)",
    KERNEL,
]
OF_PAGES = [f"{KERNEL}/channels", "voila/api/shutdown/(.*)", "voila/render/(.*)", r"(\d\d_[a-z0-9_]+)"]


@pytest.mark.parametrize("base_url", ["/", "/user/anna/", "/user/static/", "/themes/contents/", "/api/kernels/x/", "/voila/files/"])
def test_only_what_follows_the_base_tells_what_a_route_is_for(base_url: str):
    assert [route for route in OF_LAB if not is_of_lab(f"{base_url}{route}", base_url)] == []
    assert [route for route in OF_PAGES if is_of_lab(f"{base_url}{route}", base_url)] == []
