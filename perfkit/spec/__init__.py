"""What decides a run before it starts: frozen inputs with no arithmetic beyond their own consistency."""

from perfkit.spec.hardware import HardwareSpec, Link
from perfkit.spec.model import ModelSpec
from perfkit.spec.optimizer import OptimizerSpec
from perfkit.spec.parallel import ParallelPlan
from perfkit.spec.plan import Plan
from perfkit.spec.recompute import RecomputePlan
from perfkit.spec.workload import Workload

__all__ = [
    "HardwareSpec",
    "Link",
    "ModelSpec",
    "OptimizerSpec",
    "ParallelPlan",
    "Plan",
    "RecomputePlan",
    "Workload",
]
