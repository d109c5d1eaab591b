"""Symbols: formulas as guides print them ("72bLsh^2[c + s/6h]", also in TeX), evaluated for a model and a plan.

Letters follow the guides: b micro batch, s sequence, h hidden, f (or h with a hat) feed-forward, v vocabulary, L layers, a heads,
q query heads a key-value head, N parameters, t the size that the table divides by. Neighbouring letters are multiplied. The
evaluation is a small grammar of its own: nothing is executed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from perfkit.core import catalog
from perfkit.core.errors import InputError
from perfkit.core.params import count_params
from perfkit.core.spec.model import ModelSpec
from perfkit.core.spec.plan import Plan
from perfkit.core.texts import say
from perfkit.predict.cost.guide import correction

_TOKEN = re.compile(r"\s*(?:(?P<number>\d+(?:\.\d+)?)|(?P<name>corr|GBS|DP|BS|[A-Za-z])|(?P<sign>\*\*|[-+*/^()\[\]]))")
_FRACTION = re.compile(r"\\frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}")
_REMARK = re.compile(r"\s{2,}(?=\w+\s*=)|，|;")
MAX_LENGTH, MAX_DEPTH = 400, 40


REFERENCE = "Llama2-7B"
SEQUENCE, SHARDS = 4096, 8


@dataclass(frozen=True, slots=True)
class Meaning:
    """What letters stand for: a `model`, and their `values`; `of` says whose they are."""

    of: str
    model: ModelSpec
    values: Mapping[str, float]


def meaning_of(plan: Plan | None, *, static: bool = False) -> Meaning:
    """The letters for a plan, without one for Llama2-7B split 8 ways; in `static` memory t is the size of the optimizer's group."""
    if plan is None:
        model = catalog.model(REFERENCE)
        sizes = {"b": 1, "s": SEQUENCE, "t": SHARDS, "p": SHARDS}
        of = say("{model}, {tokens} tokens, t = {size}", model=model.name, tokens=str(SEQUENCE), size=str(SHARDS))
    else:
        model, parallel = plan.model, plan.parallel
        shards = parallel.optimizer_shard_size if static else parallel.tensor_parallel_size
        sizes = {"b": plan.workload.micro_batch_size, "s": plan.workload.seq_length, "t": shards, "p": plan.num_devices}
        of = say("the project's plan, t = {size}", size=str(shards))
    q = model.num_attention_heads / model.num_key_value_heads
    shape: dict[str, float] = {
        "h": model.hidden_size,
        "f": model.ffn_hidden_size,
        "v": model.vocab_size,
        "L": model.num_layers,
        "a": model.num_attention_heads,
        "q": q,
        "N": float(count_params(model).total),
        "corr": correction(q),
        "c": correction(q),
    }
    return Meaning(of, model, {**sizes, **shape})


def plain(text: str) -> str:
    """A printed formula in one spelling: no dollar signs, escapes and spaces, `^` for powers, `f` for h with a hat."""
    text = text.replace("$", "").replace("\\*", "*").replace("\\_", "_").replace("\\cdot", "*").replace("\\times", "*")
    text = (
        re.sub(r"\\hat\s*\{\s*h\s*\}", "f", text).replace("²", "^2").replace("\\left", "").replace("\\right", "").replace("×", "*")
    )
    for _ in range(5):
        text = _FRACTION.sub(r"((\1)/(\2))", text)
    return re.sub(r"\s+", " ", text.replace("{", "(").replace("}", ")")).strip()


def formula_in(text: str) -> str:
    """The last side of an equation, without a remark behind it; "" where there is no formula of letters."""
    found = plain(_REMARK.split(text.strip())[0].split("=")[-1])
    return found if found and len(found) <= MAX_LENGTH and _reads(found) else ""


def unit_of(formula: str) -> str:
    """FLOP for products of matrices (the square of a width, or a vocabulary), bytes for what is kept."""
    return "FLOP" if re.search(r"h\^2|s\^2 ?h|hv|hf|hL", plain(formula)) else "bytes"


def evaluate(formula: str, values: Mapping[str, float]) -> float:
    """The value of a formula. Raises InputError for what is none, or a letter that has no value."""
    reader = _Reader(plain(formula), values)
    result = reader.sum(0)
    if reader.peek() is not None:
        raise InputError("formula", [f"{formula!r} is not understood from {reader.rest()!r} on"])
    return result


def _reads(formula: str) -> bool:
    try:
        evaluate(formula, dict.fromkeys(("b", "s", "h", "f", "v", "L", "a", "q", "N", "t", "p", "corr", "c"), 2.0))
    except InputError:
        return False
    return re.search(r"[A-Za-z]", formula) is not None


class _Reader:
    """Sums of products of powers; products need no sign."""

    def __init__(self, text: str, values: Mapping[str, float]) -> None:
        self.text, self.values, self.place = text, values, 0
        if len(text) > MAX_LENGTH:
            raise InputError("formula", [f"has {len(text)} characters; at most {MAX_LENGTH} are read"])

    def peek(self) -> re.Match[str] | None:
        if self.place >= len(self.text.rstrip()):
            return None
        found = _TOKEN.match(self.text, self.place)
        if found is None:
            raise InputError("formula", [f"{self.rest()!r} is no part of a formula"])
        return found

    def rest(self) -> str:
        return self.text[self.place : self.place + 40]

    def take(self, *signs: str) -> str:
        found = self.peek()
        if found is None or (signs and found["sign"] not in signs):
            return ""
        self.place = found.end()
        return found[0].strip()

    def sum(self, depth: int) -> float:
        if depth > MAX_DEPTH:
            raise InputError("formula", ["is nested too deeply"])
        total = self.product(depth)
        while sign := self.take("+", "-"):
            total += self.product(depth) if sign == "+" else -self.product(depth)
        return total

    def product(self, depth: int) -> float:
        """Factors up to a sum. What stands behind a slash is divided by as a whole (s/6h), but for a fraction of numbers (4/3s)."""
        start = self.peek()
        total, number = self.power(depth), start is not None and bool(start["number"])
        while (found := self.peek()) is not None and found["sign"] not in ("+", "-", ")", "]"):
            if self.take("*"):
                start = self.peek()
                total, number = total * self.power(depth), start is not None and bool(start["number"])
            elif self.take("/"):
                start = self.peek()
                divisor = self.power(depth)
                while not number and (more := self.peek()) is not None and not more["sign"]:
                    divisor *= self.power(depth)
                total, number = self._divided(total, divisor), False
            else:
                total, number = total * self.power(depth), False
        return total

    def _divided(self, total: float, divisor: float) -> float:
        if divisor == 0:
            raise InputError("formula", ["divides by zero"])
        return total / divisor

    def power(self, depth: int) -> float:
        base = self.factor(depth)
        if self.take("^", "**"):
            exponent = self.factor(depth)
            if abs(exponent) > 8 or abs(base) > 1e30:
                raise InputError("formula", ["has a power that is no formula of a guide"])
            base = base**exponent
        return base

    def factor(self, depth: int) -> float:
        if sign := self.take("-", "+"):
            return -self.factor(depth + 1) if sign == "-" else self.factor(depth + 1)
        if self.take("(", "["):
            inner = self.sum(depth + 1)
            if not self.take(")", "]"):
                raise InputError("formula", ["a bracket is not closed"])
            return inner
        found = self.peek()
        if found is None or found["sign"]:
            raise InputError("formula", [f"{self.rest()!r} is no value"])
        self.place = found.end()
        if found["number"]:
            return float(found["number"])
        if found["name"] not in self.values:
            raise InputError("formula", [f"the letter {found['name']} has no value"])
        return float(self.values[found["name"]])
