"""Simulated runs: a plan laid out in time on every rank, with faults on demand, as the same `Run` that a recording becomes."""

from perfkit.simulate.faults import FAULTS as FAULTS
from perfkit.simulate.faults import Fault as Fault
from perfkit.simulate.faults import parse_faults as parse_faults
from perfkit.simulate.run import simulate as simulate
from perfkit.simulate.truth import truth as truth
from perfkit.simulate.write import write as write

__all__ = ["FAULTS", "Fault", "parse_faults", "simulate", "truth", "write"]
