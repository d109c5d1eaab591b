"""The catalogue: every number has a source, every name can be found."""

from __future__ import annotations

import csv
import os
import tomllib
from pathlib import Path

import pytest

from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.params import count_params

DATA = Path(__file__).parents[2] / "data"
TERA = 1e12


def rows(name: str) -> list[dict[str, str]]:
    with (DATA / "reference" / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_every_model_names_its_source():
    for name, record in catalog.records().items():
        assert record.source.kind == "published"
        assert len(record.source.where) > 5, name
        assert record.seq_length >= 512
        assert record.spec.name == name


def test_every_number_of_a_device_names_its_source():
    tables = tomllib.loads((DATA / "hardware.toml").read_text(encoding="utf-8"))
    for name, device in catalog.hardware().items():
        numbers = {"peak_flops_per_s", "memory_bytes", "memory_bytes_per_s", "devices_per_node"}
        assert set(device.sources) == numbers | {f"links.{link}" for link in device.links}, name
        assert all(len(source.where) > 5 for source in device.sources.values())
    for name, table in tables.items():
        if name != "aliases":
            assert set(table.get("assumed", ())) <= set(catalog.hardware()[name].sources), name


def test_typical_values_are_called_assumed():
    assert catalog.hardware_named("H100-80GB-PCIe").sources["links.inter_node"].kind == "assumed"
    assert catalog.hardware_named("Ascend-910B2").sources["peak_flops_per_s"].kind == "published"


@pytest.mark.parametrize(("preset", "tflops"), [("Ascend 376", 376), ("Ascend 313", 313), ("A100 312", 312), ("H100 989", 989.4)])
def test_presets_have_the_peak_they_are_named_after(preset, tflops):
    assert catalog.hardware_named(preset).peak("bfloat16") == tflops * TERA


def test_the_devices_are_those_of_the_reference_table():
    for row in rows("accelerators.csv"):
        device = catalog.hardware()[row["accelerator"]]
        peaks = {"bfloat16": "bf16_flop_per_s", "float16": "fp16_flop_per_s", "float8": "fp8_flop_per_s"}
        stated = {dtype: peak for dtype, peak in device.peak_flops_per_s.items() if dtype in peaks}
        assert stated == {dtype: float(row[key]) for dtype, key in peaks.items() if row[key]}
        assert device.memory_bytes == int(row["hbm_bytes"])
        assert device.memory_bytes_per_s == float(row["hbm_bytes_per_s"])
        assert device.devices_per_node == int(row["devices_per_node"])
        assert device.links["intra_node"].bytes_per_s == float(row["intra_node_bytes_per_s_per_direction"])
        inter = float(row["inter_node_bytes_per_s_per_device"])
        assert (device.links["inter_node"].bytes_per_s if "inter_node" in device.links else 0) == inter


def test_the_models_are_those_of_the_reference_table():
    reference = [row["model"] for row in rows("models.csv")]
    assert list(catalog.models())[: len(reference)] == reference


def test_models_beside_the_reference_table_have_nearly_the_parameters_that_their_authors_publish():
    reference = {row["model"] for row in rows("models.csv")}
    for name, record in catalog.records().items():
        if name not in reference:
            assert count_params(record.spec).total == pytest.approx(record.published_parameters, rel=0.01), name


def test_products_of_fewer_bits_are_never_slower_and_no_domain_is_smaller_than_a_node():
    order = ("bfloat16", "float8", "float4")
    for name, device in catalog.hardware().items():
        peaks = [device.peak_flops_per_s[dtype] for dtype in order if dtype in device.peak_flops_per_s]
        assert peaks == sorted(peaks), name
        assert device.linked_devices >= device.devices_per_node, name


@pytest.mark.parametrize("name", ["llama2-7b", "Llama2_7B", "LLAMA2 7b"])
def test_case_and_separators_do_not_matter(name):
    assert catalog.model(name) is catalog.find_model(name) is catalog.models()["llama2-7b"]


def test_the_first_words_of_a_device_are_enough_where_no_other_begins_so():
    assert catalog.hardware_named("h200") is catalog.hardware()["H200-141GB-SXM"]
    with pytest.raises(InputError, match="did you mean A100 312, A100-40GB-SXM, A100-80GB-SXM, A100-80GB-PCIe"):
        catalog.hardware_named("A100")


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(InputError, match="no model is called 'llama2-7'; did you mean llama2-7b"):
        catalog.model("llama2-7")
    with pytest.raises(InputError, match="no device is called 'Ascend 910B'; did you mean Ascend-910B"):
        catalog.hardware_named("Ascend 910B")
    with pytest.raises(InputError, match="known are"):
        catalog.hardware_named("<img src=x onerror=alert(1)>")
    assert catalog.find_model("nothing") is None


def test_the_catalogue_cannot_be_changed():
    with pytest.raises(TypeError):
        catalog.models()["x"] = catalog.model("llama2-7b")


OWN_DEVICE = """
[Own-1]
peak_flops_per_s = { bfloat16 = 500e12 }
memory_bytes = 68_719_476_736
memory_bytes_per_s = 2e12
links.intra_node = { bytes_per_s = 200e9 }
links.inter_node = { bytes_per_s = 25e9 }
"""
OWN_MODEL = """
[own-1b]
num_layers = 16
hidden_size = 2048
num_attention_heads = 16
num_key_value_heads = 4
head_size = 128
ffn_hidden_size = 8192
vocab_size = 50_000
"""


@pytest.fixture
def own_project(tmp_path, monkeypatch):
    (tmp_path / "perfkit.toml").write_text('name = "own"\n', encoding="utf-8")
    monkeypatch.setenv("PERFKIT_PROJECT", str(tmp_path))
    return tmp_path


def test_devices_and_models_beside_the_project_are_in_the_catalogue(own_project):
    assert "Own-1" not in catalog.hardware()
    (own_project / "hardware.toml").write_text(OWN_DEVICE, encoding="utf-8")
    (own_project / "models.toml").write_text(OWN_MODEL, encoding="utf-8")
    assert next(iter(catalog.hardware())) == "Own-1"
    assert catalog.hardware_named("own-1").peak("bfloat16") == 500e12
    assert str(own_project) in str(catalog.hardware_named("Own-1").sources["memory_bytes"])
    assert catalog.model("own-1b").num_layers == 16
    assert "Ascend-910B2" in catalog.hardware()


def test_a_changed_file_is_read_again_and_wins_over_the_bundled_name(own_project):
    file = own_project / "hardware.toml"
    before = catalog.hardware_named("Ascend-910B2").memory_bytes
    file.write_text(OWN_DEVICE.replace("Own-1", "Ascend-910B2"), encoding="utf-8")
    os.utime(file, ns=(1, 1))
    assert catalog.hardware_named("Ascend-910B2").memory_bytes == 68_719_476_736
    file.write_text(OWN_DEVICE, encoding="utf-8")
    os.utime(file, ns=(2, 2))
    assert catalog.hardware_named("Ascend-910B2").memory_bytes == before


def test_a_file_of_ones_own_that_is_wrong_is_named_with_every_problem(own_project):
    (own_project / "models.toml").write_text("[a]\nnum_layers = 2\n[b]\nhidden_size = 3\n", encoding="utf-8")
    with pytest.raises(InputError) as raised:
        catalog.models()
    assert [problem[:2] for problem in raised.value.problems] == ["a:", "b:"]
