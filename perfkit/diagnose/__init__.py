"""Diagnosis: what is wrong with a run, how much it costs, who is to blame, and what to do."""

from __future__ import annotations

from perfkit.diagnose._document import to_dict as to_dict
from perfkit.diagnose._engine import all_rules as all_rules
from perfkit.diagnose._engine import diagnose as diagnose
from perfkit.diagnose._rule import Diagnosis as Diagnosis
from perfkit.diagnose._rule import Finding as Finding
