"""Simulated runs: a plan laid out in time on every rank, with faults on demand, as the same `Run` that a recording becomes."""

from perfkit.predict.simulate.faults import FAULTS as FAULTS
from perfkit.predict.simulate.faults import Fault as Fault
from perfkit.predict.simulate.faults import parse_faults as parse_faults
from perfkit.predict.simulate.run import simulate as simulate
from perfkit.predict.simulate.truth import truth as truth

__all__ = ["FAULTS", "Fault", "parse_faults", "simulate", "truth"]
