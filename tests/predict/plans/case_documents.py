"""Cases with answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

CASES = Path(__file__).resolve().parents[2] / "data" / "plans"


def document(name: str) -> dict[str, Any]:
    """The case file whose name begins with `name`."""
    (path,) = CASES.glob(f"{name}_*.json")
    return dict(json.loads(path.read_text(encoding="utf-8")))
