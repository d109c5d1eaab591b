"""The shape of a decoder-only transformer: dense or mixture of experts, any attention of the covered families."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from perfkit.core.errors import InputError
from perfkit.core.spec.adapters import OF_FEED_FORWARD, OF_GATE, Adapters
from perfkit.core.spec.checks import MAX_LAYERS, counts, one_of, positive
from perfkit.core.spec.compressed import CompressedAttention
from perfkit.core.spec.trained import TrainedLayers

Norm = Literal["rmsnorm", "layernorm", "layernorm_no_bias"]
Bias = Literal["none", "qkv", "attention", "all"]

SIZES = (
    "num_layers",
    "hidden_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_size",
    "ffn_hidden_size",
    "vocab_size",
)
OPTIONAL_SIZES = (
    "max_position_embeddings",
    "num_experts",
    "num_experts_per_token",
    "expert_ffn_hidden_size",
    "num_shared_experts",
    "shared_expert_ffn_hidden_size",
    "num_dense_layers",
    "num_mtp_layers",
    "attention_window",
    "num_windowed_layers",
    "query_lora_rank",
    "kv_lora_rank",
    "nope_head_size",
    "rope_head_size",
    "value_head_size",
    "residual_streams",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSpec:
    """A decoder-only transformer; all sizes are counts of elements.

    `head_size` is separate because some models have `num_attention_heads * head_size != hidden_size`; the config readers fill it
    in where a config leaves it out. Mixture models have `num_experts` > 0: every layer after the first `num_dense_layers` has that
    many routed experts of width `expert_ffn_hidden_size`, `num_experts_per_token` of them active, and `num_shared_experts` of the
    same width always active (`shared_expert_ffn_hidden_size` if it differs). `kv_lora_rank` > 0 means multi-head latent attention,
    with the queries compressed too if `query_lora_rank` > 0.

    The last `num_mtp_layers` of `num_layers` predict further tokens (multi-token prediction, arXiv 2412.19437, section 2.2): each
    joins the hidden state and the embedding of a token with a projection of 2 hidden_size to hidden_size, and goes through the
    shared output head once more. They stand at the end of the pipeline.

    `num_windowed_layers` layers, spread evenly over the model, attend to the last `attention_window` tokens alone (sliding window).

    With `compressed` attention, layers that select or pool tokens attend to these and to their window, not to all tokens.
    With `adapters` these are trained beside the model's own weights, which are frozen; with `trained_layers` some layers alone are.
    `residual_streams` > 1 are streams of hidden states that every block mixes, in place of one residual (hyper-connections, arXiv
    2409.19606): each block has a matrix from all of them to their weights.

    `expert_capacity_factor` is the room of an expert over the mean load; 0 means that no token is dropped.

    `bias` names the matrices that have one: none, the query, key and value projections, all four of attention, or all.
    `clamped_gate` says that what enters a gated activation is held within limits (gpt-oss, `swiglu_limit`).
    `scaled_positions`: rotary positions are stretched, with a factor on attention that is not 1 (YaRN, arXiv 2309.00071).
    `max_position_embeddings` counts learned positions (0: rotary, ALiBi or none); `router_bias` is a weight an expert.
    """

    num_layers: int
    hidden_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_size: int
    ffn_hidden_size: int
    vocab_size: int
    name: str = ""
    gated_ffn: bool = True
    clamped_gate: bool = False
    scaled_positions: bool = False
    tied_embeddings: bool = False
    norm: Norm = "rmsnorm"
    bias: Bias = "none"
    max_position_embeddings: int = 0
    embedding_norm: bool = False
    query_key_norm: bool = False
    num_experts: int = 0
    num_experts_per_token: int = 0
    expert_ffn_hidden_size: int = 0
    num_shared_experts: int = 0
    shared_expert_ffn_hidden_size: int = 0
    shared_expert_gate: bool = False
    router_bias: bool = False
    num_dense_layers: int = 0
    num_mtp_layers: int = 0
    attention_window: int = 0
    num_windowed_layers: int = 0
    expert_capacity_factor: float = 0.0
    query_lora_rank: int = 0
    kv_lora_rank: int = 0
    nope_head_size: int = 0
    rope_head_size: int = 0
    value_head_size: int = 0
    residual_streams: int = 0
    compressed: CompressedAttention | None = None
    adapters: Adapters | None = None
    trained_layers: TrainedLayers | None = None

    def __post_init__(self) -> None:
        problems = counts(self, SIZES) + counts(self, OPTIONAL_SIZES, low=0)
        problems += one_of(self, "norm", get_args(Norm)) + one_of(self, "bias", get_args(Bias))
        if not problems:
            problems = [*self._layer_problems(), *self._attention_problems(), *self._expert_problems()]
            problems += [*self._adapter_problems(), *self._trained_problems()]
        if problems:
            raise InputError(f"ModelSpec {self.name}".rstrip(), problems)

    def _layer_problems(self) -> list[str]:
        problems, windowed = [], self.num_windowed_layers
        if self.num_layers > MAX_LAYERS:
            problems.append(f"num_layers = {self.num_layers} must be at most {MAX_LAYERS}")
        if self.num_mtp_layers >= self.num_layers:
            problems.append(
                f"num_mtp_layers = {self.num_mtp_layers} must be less than num_layers = {self.num_layers}, which counts them"
            )
        if windowed > self.num_layers:
            problems.append(f"num_windowed_layers = {windowed} is more than num_layers = {self.num_layers}")
        if (windowed > 0) != (self.attention_window > 0):
            problems.append(
                f"num_windowed_layers = {windowed} and attention_window = {self.attention_window}: give both or neither"
            )
        return problems

    def _attention_problems(self) -> list[str]:
        problems = positive(self, ("nope_head_size", "rope_head_size", "value_head_size")) if self.kv_lora_rank else []
        if self.compressed and self.compressed.num_selected_layers + self.compressed.num_pooled_layers > self.num_layers:
            problems.append(f"compressed has more layers than num_layers = {self.num_layers}")
        if self.num_attention_heads % self.num_key_value_heads:
            problems.append(
                f"num_attention_heads = {self.num_attention_heads} is not a multiple of "
                f"num_key_value_heads = {self.num_key_value_heads}"
            )
        return problems

    def _expert_problems(self) -> list[str]:
        if not self.num_experts:
            return []
        problems = positive(self, ("expert_capacity_factor",)) if self.expert_capacity_factor else []
        problems += positive(self, ("num_experts_per_token", "expert_ffn_hidden_size"))
        if self.num_experts_per_token > self.num_experts:
            problems.append(f"num_experts_per_token = {self.num_experts_per_token} is more than num_experts = {self.num_experts}")
        if self.num_dense_layers > self.num_layers:
            problems.append(f"num_dense_layers = {self.num_dense_layers} is more than num_layers = {self.num_layers}")
        return problems

    def _adapter_problems(self) -> list[str]:
        """Targets that the model does not have, or has otherwise: of compressed attention and of experts nothing is counted."""
        targets = self.adapters.targets if self.adapters else ()
        latent = f"kv_lora_rank = {self.kv_lora_rank}" if self.kv_lora_rank else "compressed" if self.compressed else ""
        problems = []
        for target in targets:
            if target in OF_FEED_FORWARD and self.num_experts:
                problems.append(
                    f"adapters.targets = {target!r}: adapters of experts (num_experts = {self.num_experts}) are not counted"
                )
            elif target in OF_GATE and not self.gated_ffn:
                problems.append(f"adapters.targets = {target!r}: there is no gate (gated_ffn = False); nearest is 'up'")
            elif target not in OF_FEED_FORWARD and latent:
                problems.append(
                    f"adapters.targets = {target!r}: attention with {latent} has other matrices; theirs are not counted"
                )
        return problems

    def _trained_problems(self) -> list[str]:
        """What cannot be trained alone: more layers than there are, one side of a tied table, and what is not counted."""
        trained, problems = self.trained_layers, []
        if trained is None:
            return []
        if self.adapters:
            problems.append("trained_layers and adapters exclude each other: beside adapters all weights are frozen; give one")
        if trained.count > self.num_layers:
            problems.append(f"trained_layers = {str(trained)!r} is more than num_layers = {self.num_layers}")
        if self.tied_embeddings and trained.trains("embedding") != trained.trains("head"):
            problems.append(f"trained_layers = {str(trained)!r}: embedding and head are one table (tied_embeddings); name both")
        unequal = {"num_mtp_layers": self.num_mtp_layers, "residual_streams": self.residual_streams, "compressed": self.compressed}
        problems += [
            f"trained_layers: frozen layers of a model with {name} are not counted" for name, has in unequal.items() if has
        ]
        return problems
