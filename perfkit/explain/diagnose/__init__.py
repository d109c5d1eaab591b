"""Diagnosis: what is wrong with a run, how much it costs, who is to blame, and what to do."""

from __future__ import annotations

from perfkit.explain.diagnose._document import to_dict as to_dict
from perfkit.explain.diagnose._engine import all_rules as all_rules
from perfkit.explain.diagnose._engine import diagnose as diagnose
from perfkit.explain.diagnose._engine import judged as judged
from perfkit.explain.diagnose.rule import Diagnosis as Diagnosis
from perfkit.explain.diagnose.rule import Finding as Finding
