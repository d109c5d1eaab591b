"""What perfkit brings along is listed, and leaves those who use it free."""

from __future__ import annotations

import hashlib
import json
import re

import pytest

from tests.install.licences import PAGE, ROOT, bill, bundled, installed, is_permitted

NOTICES = ROOT / "perfkit" / "face" / "charts" / "_vega.licences.txt"
GRANTS = ("Permission is hereby granted", "Permission to use, copy, modify", "Redistribution and use in source")


def test_every_package_that_is_installed_or_bundled_is_listed_with_its_licence():
    listed = set(re.findall(r"^\| (\S+) \| (.+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    names = {name for name, _ in listed}
    missing = [package.name for package in (*installed(), *bundled()) if package.name not in names]
    assert missing == [], "run: python -m tests.install.licences"


def test_no_licence_asks_something_of_what_perfkit_is_used_for():
    assert [package for package in (*installed(), *bundled()) if not is_permitted(package.licence)] == []


@pytest.mark.parametrize(
    ("licence", "free"), [("MIT", True), ("MIT OR GPL-3.0", True), ("BSD-3-Clause AND GPL-2.0", False), ("", False)]
)
def test_of_alternatives_one_must_be_free_and_of_several_all(licence, free):
    assert is_permitted(licence) is free


def test_the_bill_of_materials_names_each_package_once_with_its_version():
    components = json.loads(json.dumps(bill()))["components"]
    assert len(components) == len({component["bom-ref"] for component in components}) > 50
    assert all(re.fullmatch(r"pkg:(pypi|npm)/[\w.%/-]+@[\w.+-]+", component["purl"]) for component in components)
    assert {"voila", "ipywidgets", "vega"} <= {component["name"] for component in components}


def test_the_licence_of_every_bundled_library_goes_into_the_wheel_with_it():
    """`tests/install/test_wheel.py` shows that the wheel has all files of the package."""
    head, *parts = NOTICES.read_text(encoding="utf-8").split("\n" + "=" * 80 + "\n")
    lock = (ROOT / "js" / "package-lock.json").read_bytes()
    assert head.startswith(f"sources {hashlib.sha256(lock).hexdigest()[:16]}:"), "run: make js"
    texts = {}
    for part in parts:
        names, _, text = part.partition("\n\n")
        texts |= dict.fromkeys(names.splitlines(), text)
    assert texts.keys() == {f"{package.name} {package.version}" for package in bundled()}
    granted = {name for name, text in texts.items() if "Copyright" in text and any(grant in text for grant in GRANTS)}
    assert texts.keys() - granted == {name for name, text in texts.items() if "released into the public domain" in text}
