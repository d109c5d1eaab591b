"""What decides a run before it starts: frozen inputs with no arithmetic beyond their own consistency."""

from perfkit.core.spec.adapters import Adapters
from perfkit.core.spec.compressed import CompressedAttention
from perfkit.core.spec.hardware import HardwareSpec, Link
from perfkit.core.spec.memory_limit import MemoryLimit
from perfkit.core.spec.model import ModelSpec
from perfkit.core.spec.optimizer import OptimizerSpec
from perfkit.core.spec.parallel import ParallelPlan
from perfkit.core.spec.plan import Plan
from perfkit.core.spec.recompute import RecomputePlan
from perfkit.core.spec.software import SoftwareSpec
from perfkit.core.spec.trained import TrainedLayers
from perfkit.core.spec.workload import Workload

__all__ = [
    "Adapters",
    "CompressedAttention",
    "HardwareSpec",
    "Link",
    "MemoryLimit",
    "ModelSpec",
    "OptimizerSpec",
    "ParallelPlan",
    "Plan",
    "RecomputePlan",
    "SoftwareSpec",
    "TrainedLayers",
    "Workload",
]
