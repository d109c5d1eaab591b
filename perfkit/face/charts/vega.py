"""The chart library: Vega, Vega-Lite and their tooltips as one JavaScript module, for pages and reports that load nothing else."""

from __future__ import annotations

import re
from pathlib import Path

VEGA_FILE = Path(__file__).with_name("_vega.js")
"""Built from js/vega and committed."""

_EXPORTS = re.compile(r"export\s*\{([^{}]*)\};?\s*$")


def module_source() -> str:
    """The library as a module with named exports."""
    return VEGA_FILE.read_text(encoding="utf-8")


def licences() -> str:
    """The licences of all that the library is built from; they ask to stand wherever it is handed on."""
    return VEGA_FILE.with_name("_vega.licences.txt").read_text(encoding="utf-8").partition("\n")[2].strip()


def inline_source() -> str:
    """The library as a script that a page can hold: its exports become the module "vega" of js/src/load_module.js.

    No text in it can end the script element around it.
    """
    source = module_source()
    exports = _EXPORTS.search(source)
    if exports is None:
        raise ValueError(f"{VEGA_FILE} has no list of exports at its end; build it with `make js`")
    pairs = (item.split(" as ") for item in exports[1].split(","))
    members = ",".join(f"{pair[-1].strip()}:{pair[0].strip()}" for pair in pairs)
    return script_text(f"{source[: exports.start()]};globalThis.__perfkitModules={{vega:{{{members}}}}};")


def script_text(source: str) -> str:
    """JavaScript that may stand between script tags: what would end or reopen one is written with an escape in its strings."""
    return re.sub(r"<(?=/script|!--|script)", r"\\x3C", source, flags=re.IGNORECASE)
