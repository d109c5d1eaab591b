"""Lint: what is wrong or slow in configurations, environments, user code and logs, seen without running anything.

One problem a file in `checks/`, each with one `CHECK`: adding one edits no list.
"""

from perfkit.config.lint._engine import all_checks as all_checks
from perfkit.config.lint._engine import check_named as check_named
from perfkit.config.lint._engine import check_table as check_table
from perfkit.config.lint._engine import lint as lint
from perfkit.config.lint._engine import lint_environment as lint_environment
from perfkit.config.lint._engine import lint_text as lint_text
from perfkit.config.lint.check import SEVERITIES as SEVERITIES
from perfkit.config.lint.check import Check as Check
from perfkit.config.lint.check import Found as Found
from perfkit.config.lint.check import LintReport as LintReport
from perfkit.config.lint.check import Problem as Problem
