"""Reading configurations as every prediction and page takes them: what one leaves open is solved (`perfkit.predict.unstated`)."""

from __future__ import annotations

from pathlib import Path

from perfkit.config import dialects
from perfkit.core.spec.plan import Plan


def read_config(path: str | Path) -> Plan:
    """Read a MindFormers YAML, a file of Megatron arguments, perfkit's TOML or a table of one row; `-` reads standard input.

    The dialect is recognised by content. `plan.document` holds the text and what is worth telling: keys that nothing reads,
    defaults taken, notes. Raises InputError that lists every problem with file, line, key and value.
    """
    return completed(dialects.read_config(path))


def read_text(text: str, name: str, path: Path | None = None) -> Plan:
    """As `read_config`, for a text that is in memory; `name` is what messages call it, what it refers to lies beside `path`."""
    return completed(dialects.read_text(text, name, path))


def completed(plan: Plan) -> Plan:
    """The plan with what its document leaves open solved, under the limit that it has now, and that told."""
    if not plan.document.is_open:
        return plan
    from perfkit.predict.unstated import solved  # noqa: PLC0415  all formulas, for the few texts that leave something open

    return solved(plan)
