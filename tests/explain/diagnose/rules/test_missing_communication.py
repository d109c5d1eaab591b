"""Replicas that do not reduce their gradients."""

from dataclasses import replace

from perfkit.core.run import Fact
from perfkit.core.source import Source
from perfkit.explain.diagnose.rules.missing_communication import RULE
from tests.explain.diagnose.made import changed, healthy, judged, lacks, stays_healthy


def replicas(run, count):
    return replace(run, facts={"data_parallel_size": Fact(value=count, source=Source("measured", "made"))})


def test_a_training_that_reduces_its_gradients_is_healthy_with_their_bytes():
    assert stays_healthy(RULE, replicas(healthy(), 4))["gradient_bytes_a_step"] == 4 * 32 * 2**20


def test_replicas_that_only_exchange_single_numbers_drift_apart():
    (found,) = judged(RULE, replicas(changed(healthy(), "collectives", bytes=8), 4)).findings
    assert found.severity == "high"
    assert "4 replicas" in found.title


def test_one_replica_has_nothing_to_reduce():
    stays_healthy(RULE, replicas(changed(healthy(), "collectives", bytes=8), 1))


def test_without_the_number_of_replicas_it_is_not_measured():
    assert "replicas" in lacks(RULE, healthy())
