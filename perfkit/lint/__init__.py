"""Lint: what is wrong or slow in configurations, environments, user code and logs, seen without running anything.

One problem a file in `checks/`, each with one `CHECK`: adding one edits no list.
"""

from perfkit.lint._check import SEVERITIES as SEVERITIES
from perfkit.lint._check import Check as Check
from perfkit.lint._check import Found as Found
from perfkit.lint._check import LintReport as LintReport
from perfkit.lint._check import Problem as Problem
from perfkit.lint._engine import all_checks as all_checks
from perfkit.lint._engine import lint as lint
from perfkit.lint._engine import lint_text as lint_text
