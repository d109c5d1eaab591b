"""What an installed perfkit brings along and under which licences: docs/licences.md, and a bill of materials (CycloneDX).

`python -m tests.install.licences` renews the list; `--sbom FILE` writes the bill with the versions that are installed here. Both
hold what perfkit needs to run, with what that needs, and the JavaScript that is bundled; not what only its developers use.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "licences.md"
HEAD = """# Licences

perfkit itself is under Apache-2.0 ([LICENSE](../LICENSE)). On Linux it installs the following Python packages, none of which is
part of its wheel; the JavaScript ones are bundled in it, and their licences stand beside the bundle
(`perfkit/face/charts/_vega.licences.txt`). Versions stand in `requirements.lock` and `js/package-lock.json`;
`make sbom` writes a bill of materials (CycloneDX) of what is installed. Renewed by `python -m tests.install.licences`.

"""
KNOWN = (  # as authors write them, to SPDX
    (r"Apache", "Apache-2.0"),
    (r"MPL|Mozilla", "MPL-2.0"),
    (r"ISC", "ISC"),
    (r"PSF|Python Software", "PSF-2.0"),
    (r"LGPL|Lesser", "LGPL"),
    (r"GPL", "GPL"),
    (r"MIT|Expat", "MIT"),
    (r"BSD-2|2-Clause", "BSD-2-Clause"),
    (r"BSD", "BSD-3-Clause"),
    (r"Zope|ZPL", "ZPL-2.1"),
)
PERMITTED = re.compile(
    r"Apache-2\.0|MPL-2\.0|ISC|PSF-2\.0|MIT(-0|-CMU)?|BSD-[23]-Clause|0BSD|Unlicense|CC0-1\.0|Zlib|Python-2\.0|ZPL-2\.1|BlueOak-1\.0\.0|CNRI-Python"
)


@dataclass(frozen=True, order=True)
class Package:
    """One package. `kind` is "pypi" or "npm"; `licence` an SPDX expression, empty if its author states none."""

    kind: str
    name: str
    version: str
    licence: str


def installed(name: str = "perfkit") -> list[Package]:
    """What a distribution needs to run here, with what that needs; without itself."""
    found: dict[str, Package] = {}
    waiting = _needs(distribution(name), frozenset())
    while waiting:
        requirement = waiting.pop()
        key = canonicalize_name(requirement.name)
        try:
            needed = distribution(requirement.name)
        except PackageNotFoundError:  # for another system or Python
            continue
        if key not in found or requirement.extras:
            found[key] = Package("pypi", key, needed.version, licence_of(needed))
            waiting += [more for more in _needs(needed, requirement.extras) if canonicalize_name(more.name) not in found]
    return sorted(found.values())


def _needs(package: Distribution, extras: frozenset[str] | set[str]) -> list[Requirement]:
    needs = [Requirement(line) for line in package.requires or []]
    return [need for need in needs if need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in {"", *extras})]


def licence_of(package: Distribution) -> str:
    """The SPDX expression that the author gives, else what a classifier or the free text says."""
    told = package.metadata
    if expression := told.get("License-Expression"):
        return str(expression)
    said = [line.rpartition(":: ")[2] for line in told.get_all("Classifier") or [] if line.startswith("License ::")]
    free = (told.get("License") or "").strip().splitlines()
    for text in (*said, *free[:1]):
        for pattern, expression in KNOWN:
            if re.search(pattern, text):
                return expression
    return ""


def bundled() -> list[Package]:
    """The JavaScript packages in the committed bundles; what builds them is not in them."""
    packages = json.loads((ROOT / "js" / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    return sorted(
        Package("npm", path.rpartition("node_modules/")[2], package["version"], package.get("license", ""))
        for path, package in packages.items()
        if path and not package.get("dev")
    )


def is_permitted(licence: str) -> bool:
    """Whether an expression leaves those who use perfkit free to use and pass on their own work."""
    alternatives = re.split(r"\bOR\b", licence.replace("(", "").replace(")", ""))
    return any(all(PERMITTED.fullmatch(part.strip()) for part in re.split(r"\bAND\b", each)) for each in alternatives)


def page() -> str:
    """docs/licences.md."""
    sections = (("Python", installed()), ("JavaScript in the bundles of the wheel", bundled()))
    return HEAD + "\n".join(_table(title, packages) for title, packages in sections)


def _table(title: str, packages: list[Package]) -> str:
    rows = sorted({f"| {package.name} | {package.licence} |" for package in packages})
    return "\n".join([f"## {title}", "", "| package | licence |", "|---|---|", *rows, ""])


def bill() -> dict[str, object]:
    """A bill of materials in CycloneDX 1.5 (https://cyclonedx.org/docs/1.5/json/)."""
    from perfkit import __version__

    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "name": "perfkit",
                "version": __version__,
                "licenses": [{"expression": "Apache-2.0"}],
            }
        },
        "components": list(_components([*installed(), *bundled()])),
    }


def _components(packages: list[Package]) -> Iterator[dict[str, object]]:
    for package in sorted(set(packages)):
        purl = f"pkg:{package.kind}/{package.name.replace('@', '%40')}@{package.version}"
        component: dict[str, object] = {
            "type": "library",
            "name": package.name,
            "version": package.version,
            "purl": purl,
            "bom-ref": purl,
        }
        yield component | ({"licenses": [{"expression": package.licence}]} if package.licence else {})


def main() -> int:
    """Write the list or the bill."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sbom", type=Path)
    arguments = parser.parse_args()
    if arguments.sbom:
        arguments.sbom.parent.mkdir(parents=True, exist_ok=True)
        arguments.sbom.write_text(json.dumps(bill(), indent=1) + "\n", encoding="utf-8")
    else:
        PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
