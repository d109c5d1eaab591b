"""What of a model selects and compresses tokens (DeepSeek-V3.2 and DeepSeek-V4), by the names of every program.

Names: Hugging Face and MindFormers `index_*`, `compress_ratios`, `o_groups`; Megatron-Core `dsa_indexer_*`, `csa_*`;
MindSpeed-LLM `g2_window_size`, `hc_mult`.
"""

from __future__ import annotations

import re
from typing import Any

from perfkit.config.dialects._section import Section, shown
from perfkit.core.spec.checks import MAX_LAYERS
from perfkit.core.spec.compressed import CompressedAttention

RATIOS, RANK, GROUPS = ("compress_ratios", "csa_compress_ratios"), ("o_lora_rank",), ("o_groups",)
TOP_K = ("index_topk", "dsa_indexer_topk")
WINDOW, STREAMS = ("csa_window_size", "g2_window_size", "sliding_window"), ("hc_mult", "num_residual_streams")
KINDS = {"compressed_sparse_attention": "compress_rate_csa", "heavily_compressed_attention": "compress_rate_hca"}
RATES = {"compress_rate_csa": 4, "compress_rate_hca": 128}
SELECTING = 4
"""Tokens that stand together where an indexer selects; layers of other ratios attend to all that they compress to."""


def compressed_fields(config: Section, layers: int, further: int = 0) -> dict[str, Any]:
    """The fields of `ModelSpec` that say so, {} for usual attention; `further` layers, which have a window, come after `layers`."""
    streams, mixed = config.integer(*STREAMS, default=0), config.flag("enable_hyper_connections", "enable_mhc", default=True)
    for implied in ("experimental_attention_variant", "use_g2_attention", "kv_compress", "enable_dsa_indexer", "qk_rope_head_dim"):
        config.raw(implied)
    found: dict[str, Any] = {"residual_streams": streams} if streams > 1 and mixed else {}
    config.asked(*RATIOS, *WINDOW[:-1], *GROUPS)  # without the others they decide nothing
    if not config.has(*TOP_K) and not config.has(*RANK):
        return found
    index = {
        "index_heads": config.positive_int("index_n_heads", "dsa_indexer_n_heads", default=64),
        "index_head_size": config.positive_int("index_head_dim", "dsa_indexer_head_dim", default=128),
        "index_top_k": config.integer(*TOP_K, default=0),
    }
    rank = config.integer(*RANK, default=0)
    if not rank:
        selected = layers - len(_skipped(config)) + further
        own = config.reading.build(lambda: CompressedAttention(num_selected_layers=selected, **index))
        return found | {"compressed": own}
    ratios = _ratios(config, layers)
    pooled = {ratio for ratio in ratios if ratio > 1 and ratio != SELECTING}
    if len(pooled) > 1:
        config.reading.problem(config.path(RATIOS[0]), f"{sorted(pooled)}: one ratio beside {SELECTING} is covered")
    groups = config.positive_int(*GROUPS, default=1)
    packed = config.reading.build(
        lambda: CompressedAttention(
            num_selected_layers=ratios.count(SELECTING),
            selected_ratio=SELECTING,
            num_pooled_layers=sum(ratio in pooled for ratio in ratios),
            pooled_ratio=max(pooled, default=RATES["compress_rate_hca"]),
            output_groups=groups,
            output_lora_rank=rank,
            **index,
        )
    )
    return found | {
        "compressed": packed,
        "attention_window": config.positive_int(*WINDOW, default=128),
        "num_windowed_layers": len(ratios) + further,
        "num_key_value_heads": 1,
        "query_lora_rank": config.positive_int("q_lora_rank", default=1),
        "kv_lora_rank": 0,
        "nope_head_size": 0,
        "rope_head_size": 0,
        "value_head_size": 0,
        "query_key_norm": False,
    }


def _ratios(config: Section, layers: int) -> list[int]:
    """How many tokens stand together in each layer that does anything: 0 or 1 where it has its window alone."""
    stated, kinds, empty = config.raw(*RATIOS), config.raw("layer_types"), _skipped(config)
    if isinstance(kinds, list) and stated is None:
        rates = config.section("compress_rates")
        named = {kind: config.integer(name, default=RATES[name]) for kind, name in KINDS.items()}
        stated = [rates.integer(str(kind), default=named.get(str(kind), 0)) for kind in kinds]
    if stated is None:
        stated = [128, 128] + [SELECTING, 128] * layers  # DeepSeek-V4-Pro's, which the library takes
        config.reading.default("compress_ratios", "as DeepSeek-V4-Pro has them: 128, 128, then 4 and 128 in turn")
    found = _listed(stated)
    if len(found) < layers - len(empty):
        config.reading.problem(config.path(RATIOS[0]), f"{shown(stated)} must give a ratio for each of {layers} layers")
    return [ratio for number, ratio in enumerate(found[:layers]) if number not in empty]


def _skipped(config: Section) -> set[int]:
    """Layers that do nothing (MindSpeed)."""
    stated = config.raw("noop_layers")
    return {int(text) for text in re.findall(r"\d{1,6}", str(stated))} if stated is not None else set()


def _listed(stated: Any) -> list[int]:
    """Numbers of a list, or of a text such as "0 0 4 128" or "([0]*2+[4,128]*20)"."""
    if isinstance(stated, list) and all(isinstance(one, int) for one in stated):
        return stated[:MAX_LAYERS]
    text, found = " ".join(map(str, stated)) if isinstance(stated, list) else str(stated), []
    for piece, count in re.findall(r"\[([^\]]*)\](?:\s*\*\s*(\d{1,5}))?", text) or [(text, "")]:
        numbers = [int(one) for one in re.findall(r"\d{1,6}", piece)]
        found += (numbers * int(count or 1))[:MAX_LAYERS]
    return found[:MAX_LAYERS]
