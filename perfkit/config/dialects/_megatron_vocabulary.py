"""The vocabulary of Megatron's options: stated, a tokenizer's, or that of a model of the catalogue; padded as the program does."""

from __future__ import annotations

import re
from pathlib import Path

from perfkit.config.dialects._section import Section
from perfkit.core import catalog
from perfkit.core.spec.model import ModelSpec

TOKENIZERS = {"GPT2BPETokenizer": 50257, "Llama2Tokenizer": 32000, "nemotron_2_256k.model": 256000}
"""Vocabularies by the type of a tokenizer, or by the name of its file."""
FAMILIES = {
    r"llama-?3": 128256,
    r"llama-?2|^llama_tokenizer": 32000,
    r"mi[sx]tral-\d.*v0\.3": 32768,
    r"mi[sx]tral-\d": 32000,
}
"""Vocabularies by what the name of a model or of its tokenizer says of its family, the first that fits."""


def vocabulary(options: Section, tensor_parallel_size: int, alike: ModelSpec | None, *, gated: bool) -> int:
    """The padded vocabulary: a multiple of make-vocab-size-divisible-by x tensor-parallel size.

    Where neither the file nor its tokenizer says it, that of the catalogue's model of these sizes, `alike`.
    """
    padded = options.integer("padded_vocab_size", default=0)
    unit = options.positive_int("make_vocab_size_divisible_by", default=128) * tensor_parallel_size
    tokenizer = options.word("tokenizer_type", default="")
    size = options.integer("vocab_size", default=TOKENIZERS.get(tokenizer, 0))
    if padded:
        return padded
    model = options.word("tokenizer_model", "tokenizer_name_or_path", default="")
    size = size or TOKENIZERS.get(Path(model).name, 0)
    if not size and options.has("merge_file"):
        tokenizer, size = "GPT2BPETokenizer, the one with --merge-file", TOKENIZERS["GPT2BPETokenizer"]
    if not size and (named := catalog.find_model(Path(model).name)):
        tokenizer, size = f"the catalogue's {named.name}", named.vocab_size
    family = next((family for family in FAMILIES if re.search(family, Path(model).name, re.IGNORECASE)), "")
    if not size and family:
        tokenizer, size = f"the family of {Path(model).name}", FAMILIES[family]
    if not size and alike is not None and alike.gated_ffn == gated:
        tokenizer, size = f"the catalogue's {alike.name}, which has these sizes", alike.vocab_size
    if not size:
        if not options.has("vocab_size"):  # else its own reader tells what is wrong with it
            options.missing("vocab_size", "a whole number, or a tokenizer of known size,")
        return 1
    if not options.has("vocab_size"):
        options.reading.default("vocab_size", f"{size}, of {tokenizer}")
    padded = -(-size // unit) * unit
    if padded != size:
        options.reading.note(f"vocab_size {size} is padded to {padded}, a multiple of {unit}")
    return padded
