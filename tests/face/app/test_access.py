"""Who gets in: whoever has the token, on this machine too, a student with a code, and whom a proxy names."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from http.cookiejar import CookieJar
from types import SimpleNamespace

import pytest
from jupyter_server.auth.identity import User

from perfkit.core.errors import InputError
from perfkit.core.settings import max_kernels_per_visitor, warm_kernels
from perfkit.face.app.access import Guesses, access_to, is_named, named, own_path
from perfkit.face.app.handlers import NAME_COOKIE, wishes_of, without_token
from perfkit.face.app.kernels import PageKernels, PageStart, page_start
from perfkit.project import create_project
from perfkit.teach import new_codes
from tests.browser.app_server import start, stop


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "0.0.0.0", "::", "192.0.2.7", "gpu-box"])
def test_a_token_is_made_and_printed_wherever_the_app_listens(host):
    access = access_to(host)
    assert len(access.token) >= 20
    assert access.address(80).endswith(f"/?token={access.token}")
    assert access.token != access_to(host).token
    assert access.token not in repr(access)


def test_to_ask_nobody_is_a_choice_on_this_machine_alone():
    assert access_to("127.0.0.1", no_token=True).token == ""
    for host, token in (("0.0.0.0", None), ("127.0.0.1", "open sesame")):
        with pytest.raises(InputError, match="--no-token goes with"):
            access_to(host, token, no_token=True)


def test_guesses_cost_more_and_more_and_no_guesser_makes_two_at_once(monkeypatch):
    slept = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr("perfkit.face.app.access.asyncio.sleep", sleep)

    async def guess() -> None:
        guesses = Guesses()
        await asyncio.gather(*(guesses.pay("a") for _ in range(9)), guesses.pay("b"))

    asyncio.run(guess())
    assert sorted(slept) == [1, 1, 1, 1, 2, 4, 8, 16, 30, 30]


def test_a_name_that_a_proxy_or_a_code_gives_is_no_typed_one():
    assert is_named(named("  Li\tWei\n"))
    assert named("  Li\tWei\n").name == "LiWei"
    assert not is_named(User(username="abc"))


def test_a_chosen_token_is_not_printed():
    access = access_to("0.0.0.0", "open sesame", "perf/kit")
    assert access.token == "open sesame"
    assert access.address(80) == "http://127.0.0.1:80/perf/kit/"


def test_what_keeps_nobody_out_is_refused_with_all_problems():
    with pytest.raises(InputError) as error:
        access_to(" ", "1234", "/a b/")
    assert len(error.value.problems) == 3


def test_a_token_leaves_the_address_and_the_rest_stays():
    assert without_token("/00_start_here?a=1&token=x&b=2") == "/00_start_here?a=1&b=2"
    assert without_token("/?token=x") == "/"


def test_a_visitor_has_as_many_pages_as_one_may_have(monkeypatch):
    kernels = PageKernels(visitor_limit=2, limit=9)
    kernels._visitors.update(k1="a", k2="a", k3="b")
    assert (kernels.full_for("a"), kernels.full_for("b")) == (True, False)
    kernels._ending.add("k1")
    assert not kernels.full_for("a")
    start = PageStart(visitor="b")
    kernels.take_place(start)
    assert (kernels.full_for("b"), kernels.num_pages) == (True, 1)
    kernels.give_place_back(start)
    assert (kernels.full_for("b"), kernels.num_pages) == (False, 0)
    assert not PageKernels(limit=9).full_for("a")
    assert page_start.get() is None
    assert PageStart(visitor="a").kernel_ids == []


def test_a_known_name_is_the_author_and_a_cookie_does_not_change_it(monkeypatch):
    def asked_by(user: User | None) -> dict[str, str]:
        return wishes_of(SimpleNamespace(current_user=user, get_cookie=lambda name, _: "typed" if name == NAME_COOKIE else ""))

    monkeypatch.delenv("JUPYTERHUB_USER", raising=False)
    assert asked_by(User(username="abc"))["PERFKIT_AUTHOR"] == "typed"
    assert asked_by(User(username="abc"))["PERFKIT_STUDENT"] == ""
    assert asked_by(named("s01"))["PERFKIT_STUDENT"] == "s01"
    monkeypatch.setenv("JUPYTERHUB_USER", "li")
    assert (asked_by(None)["PERFKIT_AUTHOR"], asked_by(named("s01"))["PERFKIT_AUTHOR"]) == ("li", "s01")


def test_visitors_are_capped_where_others_share(monkeypatch):
    monkeypatch.delenv("PERFKIT_MAX_KERNELS_PER_VISITOR", raising=False)
    assert (max_kernels_per_visitor(shared=True), max_kernels_per_visitor(shared=False)) == (6, 24)
    monkeypatch.setenv("PERFKIT_MAX_KERNELS_PER_VISITOR", "3")
    assert max_kernels_per_visitor(shared=False) == 3


def test_kernels_wait_for_the_next_pages_unless_told_otherwise(monkeypatch):
    monkeypatch.delenv("PERFKIT_WARM_KERNELS", raising=False)
    assert warm_kernels() == 2
    for told in (0, 5):
        monkeypatch.setenv("PERFKIT_WARM_KERNELS", str(told))
        assert warm_kernels() == told
    monkeypatch.setenv("PERFKIT_WARM_KERNELS", "few")
    with pytest.raises(InputError, match="'few' must be a positive whole number"):
        warm_kernels()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("guarded")
    arguments = ("--host", "0.0.0.0", "--token", "open sesame", "--base-url", "/team/perfkit")
    running = start(
        folder, tmp_path_factory.mktemp("log") / "server.log", arguments=arguments, base_url="/team/perfkit/", token="open sesame"
    )
    yield running
    stop(running)


def answer(opener: urllib.request.OpenerDirector, url: str, data: bytes | None = None, **headers: str) -> tuple[int, str, str]:
    try:
        with opener.open(urllib.request.Request(url, data=data, headers=headers), timeout=20) as reply:
            return reply.status, reply.url, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.url, error.read().decode()


@pytest.mark.slow
def test_without_the_token_there_is_only_the_field_for_it(server):
    nobody = urllib.request.build_opener()
    for path in ("", "00_start_here", "perfkit/health", "api/kernels/11111111-1111-1111-1111-111111111111/channels"):
        status, url, text = answer(nobody, f"{server.url}{path}")
        assert status == 403 or "/team/perfkit/login?next=" in url, path
        assert server.project.name not in text
    assert answer(nobody, f"{server.url}perfkit/presence/abc", Connection="Upgrade", Upgrade="websocket")[0] in {400, 403}
    assert answer(nobody, f"{server.url}voila/api/shutdown/abc", b"")[0] == 403
    assert server.health()["pages"] == 0


@pytest.mark.slow
def test_the_token_typed_once_is_remembered_and_leads_nowhere_else(server):
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar := CookieJar()))
    answer(browser, f"{server.url}login")
    proof = next(cookie.value for cookie in jar if cookie.name == "_xsrf")
    wanted = "/team/perfkit/perfkit/health"
    assert answer(browser, f"{server.url}login", f"_xsrf={proof}&token=wrong".encode())[0] == 401
    assert answer(browser, f"{server.url}perfkit/health")[1].startswith(f"{server.url}login")
    status, url, text = answer(browser, f"{server.url}login", f"_xsrf={proof}&token=open+sesame&next={wanted}".encode())
    assert (status, url) == (200, f"{server.url}perfkit/health")
    assert json.loads(text)["full"] is False


@pytest.mark.parametrize(
    "wanted", ["//evil.example/", "https://evil.example/", "/team/perfkit/../../x", "/other/app", "/team/perfkit/\\\\evil"]
)
def test_the_way_on_stays_in_the_app(wanted):
    assert own_path(wanted, "/team/perfkit/") == "/team/perfkit/"
    assert own_path("/team/perfkit/00_start_here?a=1", "/team/perfkit/") == "/team/perfkit/00_start_here?a=1"
    assert own_path("//evil.example/", "/") == "/"


@pytest.fixture(scope="module")
def class_server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("class")
    create_project(folder, "class")
    codes = new_codes(folder, ["s01", "s02"])
    arguments = ("--class", "--class-admin", "the instructor", "--token", "open sesame", "--user-header", "X-Forwarded-User")
    running = start(folder, tmp_path_factory.mktemp("log") / "server.log", arguments=arguments, token="open sesame")
    yield running, codes
    stop(running)


@pytest.mark.slow
def test_a_code_is_a_name_and_a_proxy_gives_one_only_with_the_token(class_server):
    server, codes = class_server
    nobody = urllib.request.build_opener()
    health = f"{server.url}perfkit/health"
    assert answer(nobody, health, Authorization=f"token {codes['s01'].lower()}")[0] == 200
    assert answer(nobody, health, **{"X-Forwarded-User": "teacher"})[1].startswith(f"{server.url}login")
    assert answer(nobody, health, Authorization="token wrong one", **{"X-Forwarded-User": "teacher"})[1].startswith(
        f"{server.url}login"
    )
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
    assert answer(browser, f"{server.url}perfkit/health?token={codes['s02']}")[0] == 200
    assert answer(browser, health)[:2] == (200, health)
    text = (server.project / "class.sqlite").read_bytes()
    assert all(code.encode() not in text for code in codes.values())
