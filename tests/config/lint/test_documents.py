"""The list of checks in the documentation is made from the checks: `python -m tests.config.lint.test_documents` writes it."""

from __future__ import annotations

from pathlib import Path

import yaml

from perfkit.config.lint import all_checks

ROOT = Path(__file__).resolve().parents[3]
DOCUMENT = ROOT / "docs" / "lints.md"
KINDS = {
    "config": "Configurations",
    "config-text": "Configurations that do not parse",
    "environment": "Environments and launch scripts",
    "code": "User code",
    "log": "Logs",
}
HEAD = """# Checks

What `perfkit lint` looks for, made from the checks themselves (`perfkit/config/lint/checks`, one problem a module). A comment
`# perfkit: ignore[rule]` on a line silences a rule there. Two more rules report files that cannot be read: `syntax-error` and
`unreadable-config`.

As a pre-commit hook: `id: perfkit-lint` of this repository (`.pre-commit-hooks.yaml`).
"""


def document() -> str:
    """The whole document."""
    parts = [HEAD]
    for kind, title in KINDS.items():
        rows = [check for check in all_checks() if check.kind == kind]
        parts.append(f"\n## {title}\n\n| rule | severity | problem | why | instead |\n|---|---|---|---|---|\n")
        parts += [
            f"| `{check.name}` | {check.severity} | {_cell(check.title)} | {_cell(check.why)} | {_cell(check.fix)} |\n"
            for check in rows
        ]
    return "".join(parts)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def test_the_documentation_lists_every_check_as_it_is():
    assert DOCUMENT.read_text(encoding="utf-8") == document()


def test_the_hook_runs_the_command():
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    assert hook["entry"] == "perfkit lint"


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
