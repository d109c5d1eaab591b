"""Frozen layers that files state are counted where whole parts of first or last layers are trained, and written back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perfkit.config.dialects import read_text, write_config
from perfkit.config.dialects.key_effects import SOME_TRAINED
from perfkit.core import catalog, texts
from perfkit.core.errors import InputError
from perfkit.core.params import trained_params
from perfkit.core.spec import RecomputePlan, TrainedLayers
from perfkit.predict.estimate import estimate
from tests.predict.random_plans import partly_frozen_plans

TOML = """[model]
name = "llama2-7b"
trained_layers = "last 2"

[workload]
seq_length = 4096
micro_batch_size = 1
global_batch_size = 8
"""
FACTORY = """model_name_or_path: {}
finetuning_type: freeze
cutoff_len: 2048
bf16: true
per_device_train_batch_size: 1
"""
LLAMA, QWEN = "meta-llama/Llama-2-7b-hf", "Qwen/Qwen3-8B"
SWIFT = "NPROC_PER_NODE=8 swift sft --model Qwen/Qwen3-8B --train_type full --num_train_epochs 1 --max_length 2048 {}\n"


def of_factory(lines: str, model: str = LLAMA):
    return read_text(FACTORY.format(model) + lines, "a.yaml")


def unread(plan) -> set[str]:
    return {key for key, _ in plan.document.unread}


def test_a_model_of_the_catalogue_may_have_frozen_layers():
    plan = read_text(TOML, "a.toml")
    assert plan.model == replace(catalog.model("llama2-7b"), trained_layers=TrainedLayers(last=2))
    assert trained_params(plan.model).total == 404_766_720
    assert plan.write().text == TOML
    other = replace(plan, model=replace(plan.model, trained_layers=TrainedLayers.of("first 4, attention, head"))).write()
    assert 'trained_layers = "first 4, attention, head"' in other.text
    assert read_text(other.text, "a.toml").model.trained_layers == TrainedLayers.of("first 4, attention, head")
    without = replace(plan, model=catalog.model("llama2-7b")).write()
    assert (without.lost, read_text(without.text, "a.toml").model) == ((), catalog.model("llama2-7b"))


@pytest.mark.parametrize(
    ("new", "told"),
    [
        ('"2"', "must be as 'last 2' or"),
        ("2", "must be a text"),
        ('"last 33"', "is more than num_layers = 32"),
        ('"last 2"\nadapters = { rank = 8, targets = ["query"] }', "trained_layers and adapters exclude each other"),
    ],
)
def test_trained_layers_of_a_toml_are_checked(new, told):
    with pytest.raises(InputError, match=told):
        read_text(TOML.replace('"last 2"', new), "a.toml")


@pytest.mark.parametrize(
    ("new", "told"),
    [
        ("[1]", "[1] must be a text"),
        ("true", "True must be a text"),
        ("2.5", "2.5 must be a text"),
        ("[]", "[] must be a text"),
        ("{ last = 2 }", "{'last': 2} must be a text"),
        ('""', "'' must be as 'last 2' or"),
        ('"lst 2"', "'lst 2' must be as 'last 2' or"),
        ('"last 0"', "nothing is trained: give first, last or outside"),
    ],
)
def test_what_is_wrong_with_trained_layers_is_told_once_with_line_and_key(new, told):
    with pytest.raises(InputError) as caught:
        read_text(TOML.replace('"last 2"', new), "a.toml")
    (problem,) = caught.value.problems
    assert problem.startswith(f"line 3, model.trained_layers: {told}")


@pytest.mark.parametrize("dialect", ["perfkit", "table"])
def test_random_plans_with_frozen_layers_are_written_and_read(dialect):
    for plan in partly_frozen_plans(60):
        written = write_config(plan, dialect=dialect)
        assert written.lost == ()
        assert replace(read_text(written.text, written.name), document=None).model == plan.model


ALL, FIRST, NONE = RecomputePlan(all_layers=True), RecomputePlan(full_layers=((3,),)), RecomputePlan()


@pytest.mark.parametrize(
    ("lines", "layers", "recompute"),
    [
        ("", "last 2", ALL),
        ("freeze_trainable_layers: 4", "last 4", ALL),
        ("freeze_trainable_layers: -3", "first 3", FIRST),
        ("freeze_trainable_layers: -3\ndisable_gradient_checkpointing: true", "first 3", NONE),
        ("freeze_trainable_layers: 99", "last 32", ALL),
        ("freeze_trainable_modules: self_attn", "last 2, attention", ALL),
        ("freeze_trainable_modules: mlp,self_attn", "last 2, attention, feed_forward", ALL),
        ("freeze_trainable_modules: [input_layernorm, post_attention_layernorm]", "last 2, norms", ALL),
        ("freeze_extra_modules: lm_head", "last 2, head", ALL),
        # The text `norm` is found in the names of the norms of all layers: all are computed again, and gradients go through all.
        ("freeze_extra_modules: norm,lm_head", "last 2, final_norm, head, input_gradients", ALL),
        ("freeze_extra_modules: embed_tokens\ndisable_gradient_checkpointing: true", "last 2, embedding", NONE),
        ("freeze_trainable_layers: 0\nfreeze_extra_modules: lm_head", "last 0, head", ALL),
    ],
)
def test_llama_factorys_layers_are_those_that_it_trains(lines, layers, recompute):
    plan = of_factory(lines)
    assert (str(plan.model.trained_layers), plan.recompute) == (layers, recompute)
    assert not unread(plan)
    told = f"{layers} of the layers are trained, all other weights are frozen"
    assert ("only the head is trained, all layers are frozen" if layers == "last 0, head" else told) in plan.document.notes
    again = plan.write()
    assert (again.lost, again.text) == ((), plan.document.text)


@pytest.mark.parametrize(
    "lines",
    [
        "use_llama_pro: true",
        "freeze_trainable_modules: q_proj",
        "freeze_trainable_modules: input_layernorm",
        "freeze_extra_modules: wte",
        "freeze_trainable_layers: 0",
        # Layers that gradients pass are not computed again, though those behind are: no counts of first layers say that.
        "freeze_extra_modules: embed_tokens",
    ],
)
def test_llama_factorys_layers_that_are_not_counted_keep_their_note(lines):
    plan = of_factory(lines)
    assert plan.model.trained_layers is None
    assert dict(plan.document.unread)["finetuning_type"] == SOME_TRAINED


@pytest.mark.parametrize(
    ("model", "lines", "layers"),
    [
        # Qwen3 30B A3B has 48 layers of 128 experts: `.46.` is found in `mlp.experts.46.` of all of them.
        ("Qwen/Qwen3-30B-A3B", "", None),
        ("Qwen/Qwen3-30B-A3B", "freeze_trainable_layers: -1", None),
        ("Qwen/Qwen3-30B-A3B", "freeze_trainable_modules: self_attn", "last 2, attention"),
        ("Qwen/Qwen3-30B-A3B", "freeze_trainable_modules: self_attn,mlp", "last 2, attention, feed_forward"),
        # Mixtral has 32 layers of 8 experts; its block of them is `block_sparse_moe`.
        ("mistralai/Mixtral-8x7B-v0.1", "", "last 2"),
        ("mistralai/Mixtral-8x7B-v0.1", "freeze_trainable_layers: 25", None),
        ("mistralai/Mixtral-8x7B-v0.1", "freeze_trainable_layers: -2", None),
        ("mistralai/Mixtral-8x7B-v0.1", "freeze_trainable_modules: self_attn", "last 2, attention"),
        ("mistralai/Mixtral-8x7B-v0.1", "freeze_trainable_modules: mlp", None),
    ],
)
def test_numbers_of_layers_that_are_numbers_of_experts_are_not_counted(model, lines, layers):
    plan = of_factory(lines, model)
    assert plan.model.num_experts
    assert (plan.model.trained_layers and str(plan.model.trained_layers)) == layers
    why = "numbers of trained layers are numbers of experts too, which are then trained in every layer"
    assert (why in plan.document.notes) == (layers is None and "mlp" not in lines)
    assert dict(plan.document.unread).get("finetuning_type") == (None if layers else SOME_TRAINED)


@pytest.mark.parametrize(
    ("model", "layers"), [("Qwen/Qwen3-30B-A3B", "last 3"), ("mistralai/Mixtral-8x7B-v0.1", "last 2, feed_forward")]
)
def test_layers_of_experts_that_llama_factory_has_no_words_for_are_told(model, layers):
    plan = of_factory("freeze_trainable_modules: self_attn", model)
    written = replace(plan, model=replace(plan.model, trained_layers=TrainedLayers.of(layers))).write()
    assert any("trained_layers" in lost for lost in written.lost)


def test_a_tied_table_is_trained_at_both_ends():
    plan = of_factory("freeze_extra_modules: embed_tokens\ndisable_gradient_checkpointing: true", "Qwen/Qwen3-0.6B")
    assert plan.model.tied_embeddings
    assert str(plan.model.trained_layers) == "last 2, embedding, head"
    assert plan.write().text == plan.document.text
    refused = of_factory("freeze_extra_modules: lm_head", "Qwen/Qwen3-0.6B")
    assert refused.model.trained_layers is None


def test_trained_weights_have_a_copy_of_32_bits_and_frozen_ones_none():
    frozen, pure = of_factory(""), of_factory("pure_bf16: true")
    assert (frozen.optimizer.parameter_dtype, frozen.optimizer.master_weights, frozen.optimizer.gradient_dtype) == (
        *("bfloat16", True, "float32"),
    )
    assert (pure.optimizer.parameter_dtype, pure.optimizer.master_weights) == ("bfloat16", False)


def test_a_file_of_a_full_training_becomes_one_of_frozen_layers():
    full = read_text(FACTORY.format(LLAMA).replace("freeze", "full"), "a.yaml")
    frozen = replace(full, model=replace(full.model, trained_layers=TrainedLayers.of("first 3, attention")), recompute=FIRST)
    text = frozen.write().text
    read = read_text(text, "a.yaml")
    assert (read.model.trained_layers, read.recompute) == (TrainedLayers.of("first 3, attention"), FIRST)
    assert 'freeze_trainable_modules: "self_attn"' in text


@pytest.mark.parametrize(
    ("options", "layers"),
    [
        # Qwen3 8B has 36 layers; gradients go down to the embedding, whose output asks for one beside layers computed again.
        ("--freeze_parameters model.embed_tokens", "last 36, final_norm, head, input_gradients"),
        ("--freeze_parameters_ratio 1.0 --trainable_parameters lm_head", "last 0, head, input_gradients"),
        ("--freeze_parameters_ratio 1.0 --trainable_parameters model.layers.34 model.layers.35", "last 2, input_gradients"),
        ("--freeze_parameters_ratio 1 --trainable_parameters_regex 'layers.3[45].mlp'", "last 2, feed_forward, input_gradients"),
        ("--freeze_parameters_regex 'embed_tokens|self_attn'", "last 36, feed_forward, norms, final_norm, head, input_gradients"),
        ("--freeze_parameters_ratio 0.5", "last 18, final_norm, head, input_gradients"),
        ("--freeze_parameters_ratio 0.45", "last 21, final_norm, head, input_gradients"),
        ("--freeze_parameters_ratio 0.5 --gradient_checkpointing false", "last 18, final_norm, head"),
        ("--freeze_parameters lm_head", "last 36, embedding, final_norm"),
    ],
)
def test_swifts_layers_are_those_that_it_trains(options, layers):
    plan = read_text(SWIFT.format(options), "run.sh")
    assert str(plan.model.trained_layers) == layers
    assert not unread(plan)


@pytest.mark.parametrize("options", ["--trainable_parameters lm_head", "--freeze_parameters_ratio 0.01", "--freeze_parameters ''"])
def test_swifts_rules_that_freeze_nothing_are_read(options):
    plan = read_text(SWIFT.format(options), "run.sh")
    assert plan.model.trained_layers is None
    assert not unread(plan)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("--freeze_parameters_ratio 1 --trainable_parameters lm_head", ("only the head is trained", "只训练输出头，各层全部冻结")),
        (
            "--freeze_parameters model.layers",
            ("only the embedding, the final norm, the head are trained", "只训练嵌入, 最后的归一化, 输出头，各层全部冻结"),
        ),
    ],
)
def test_what_is_trained_beside_layers_is_told_in_both_languages(options, told):
    plan = read_text(SWIFT.format(options), "run.sh")
    (note,) = [note for note in plan.document.notes if note.startswith("only")]
    assert note == f"{told[0]}, all layers are frozen"
    assert texts.told(note, "zh") == told[1]


@pytest.mark.parametrize(
    "options",
    [
        "--freeze_parameters_regex 'layers.[0-9].self_attn'",
        "--freeze_parameters_regex '(a+)+b'",
        "--freeze_parameters model.layers.3",
        "--freeze_parameters_ratio 1.0",
        "--freeze_parameters_ratio $RATIO",
        "--freeze_llm true --freeze_parameters_ratio 0.5",
    ],
)
def test_swifts_layers_that_are_not_counted_keep_their_note(options):
    plan = read_text(SWIFT.format(options), "run.sh")
    assert plan.model.trained_layers is None
    key = options.split()[0].removeprefix("--")
    assert dict(plan.document.unread)[key] == SOME_TRAINED


def test_the_layer_within_which_a_share_ends_is_counted_as_trained_and_said():
    """Half of all parameters end with the last norm of the 18th layer; 0.45 of them within the feed-forward block of the 16th."""
    half = read_text(SWIFT.format("--freeze_parameters_ratio 0.5"), "run.sh")
    assert not any("share ends" in note for note in half.document.notes)
    plan = read_text(SWIFT.format("--freeze_parameters_ratio 0.45"), "run.sh")
    assert "the layer within which the frozen share ends is counted as trained" in plan.document.notes
    whole = read_text(SWIFT.format("--freeze_parameters_ratio 0"), "run.sh")
    assert whole.model.trained_layers is None
    assert not unread(whole)
    device = catalog.hardware_named("H100-80GB-SXM")
    found, full = (estimate(replace(one, hardware=device)) for one in (plan, whole))
    assert found.step_time_s < full.step_time_s
    assert found.peak_memory_bytes < full.peak_memory_bytes
