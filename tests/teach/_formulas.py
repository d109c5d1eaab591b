"""Independent formulas: each exercise from its draws alone, written from the text of the exercise without perfkit."""

from __future__ import annotations

import math
from fractions import Fraction
from statistics import median

H = {"llama2_7b": 4096, "llama2_13b": 5120, "llama2_70b": 8192}
L = {"llama2_7b": 32, "llama2_13b": 40, "llama2_70b": 80}
F = {"llama2_7b": 11008, "llama2_13b": 13824, "llama2_70b": 28672}
Q = {"llama2_7b": 1, "llama2_13b": 1, "llama2_70b": 8}
V = 32000
MIB, GIB = 2**20, 2**30
REFERENCE = [10.649, 10.633, 9.673, 9.101, 8.702, 8.377, 8.120, 7.931, 7.760, 7.612]


def layer(model, s):
    h = H[model]
    return Fraction(4 * h * h) + Fraction(4 * h * h, Q[model]) + 4 * s * h + 6 * h * F[model]


def train(model, s):
    return 3 * (L[model] * layer(model, s) + 2 * H[model] * V)


def count(model):
    h = H[model]
    return L[model] * (2 * h * h + 2 * h * h // Q[model] + 3 * h * F[model] + 2 * h) + 2 * V * h + h


def speed(d):
    return round({"llama2_7b": 4695, "llama2_13b": 2562}[d["model"]] * d["factor"])


def hfu(d):
    n = L[d["model"]] if d["recompute_layers"] == "all" else d["recompute_layers"]
    tokens = {"llama2_7b": 4695, "llama2_13b": 1860}[d["model"]]
    return 100 * (train(d["model"], 4096) + n * layer(d["model"], 4096)) * tokens / 376e12


def steps(d):
    return [d["first"], *(d["base"] + more for more in (0, 2, -3, 5, 1, -2, 418))]


def fewest(d):
    free = (d["limit_gib"] - d["static_gib"]) * 1024
    kept = math.floor((free - 2 * d["layers"] * d["full_mib"]) / (2 * (d["none_mib"] - d["full_mib"])))
    return d["layers"] - min(max(kept, 0), d["layers"])


def cut(d):
    head = 2 * H[d["model"]] * d["vocab"] / layer(d["model"], 4096)
    return min(range(L[d["model"]] + 1), key=lambda x: max(x, L[d["model"]] - x + head))


def exposed(d):
    o, w = d["o"], d["w"]
    talking = set()
    for start, end in ((80 + o, 80 + o + w), (90 + o, 140 + o), (255, 310)):
        talking |= set(range(start, end))
    computing = set(range(100)) | set(range(150, 260)) | set(range(300, 380))
    return len(talking - computing)


def speed_up(d):
    total = d["matmul"] + d["fa"] + d["vector"] + 15000
    return 100 * (1 / (1 - 0.6 * d["vector"] / total) - 1)


def largest_difference(d):
    new = [round(ref * (1.0062 if i == d["k"] else 1 + 0.0004 * (i % 3)), 3) for i, ref in enumerate(REFERENCE)]
    return 100 * max(abs(a - b) / b for a, b in zip(new, REFERENCE, strict=True))


FORMULAS = {
    "E01": lambda d: d["seq"] * d["sps"],
    "E02": lambda d: d["batch_size"] * d["micro_batch_num"] * 1000 / (d["step_ms"] * d["tp"] * d["pp"]),
    "E03": lambda d: median(steps(d)[1:]),
    "E04": lambda d: d["cluster_per_card"] / d["single"],
    "E05": lambda d: 100 * d["tflops"] / d["peak"],
    "E06": lambda d: d["tokens"] / (d["tok_s_p"] * d["devices"]) / 86400,
    "E07": lambda d: count(d["model"]),
    "E08": lambda d: layer(d["model"], d["s"]) / 10**6,
    "E09": lambda d: train(d["model"], d["s"]) * d["s"] * d["gbs"] / 10**15,
    "E10": lambda d: 100 * train(d["model"], 4096) * speed(d) / 376e12,
    "E11": hfu,
    "E12": lambda d: (2 + 4 * d["kv_heads"] / d["heads"]) / 6,
    "E13": lambda d: d["m"] * d["k"] * d["n"] / (d["m"] * d["k"] + d["k"] * d["n"] + d["m"] * d["n"]),
    "E14": lambda d: 10 * d["params_billion"] / d["opt_shard"] + 2 * d["params_billion"],
    "E15": lambda d: (4 + 12 / d["d"]) * count(d["model"]) / GIB,
    "E16": lambda d: d["s"] * d["b"] * (34 * d["h"] + 5 * d["heads"] * d["s"]) / MIB,
    "E17": lambda d: 34 * d["s"] * d["b"] * d["h"] / d["t"] / MIB,
    "E18": lambda d: d["layers"] / d["pp"] * min(d["pp"] - d["stage"], d["micro"]) * d["mib"] / 1024,
    "E19": lambda d: d["used"] - d["peak"],
    "E20": lambda d: (1 - d["no_frag"] / d["with_frag"]) * 100,
    "E21": lambda d: 4 * L[d["model"]] * d["b"] * 4096 * H[d["model"]] / MIB,
    "E22": lambda d: 100 * d["n"] * layer(d["model"], 4096) / train(d["model"], 4096),
    "E23": lambda d: 4 * d["b"] * 4096 * F[d["model"]] / MIB,
    "E24": lambda d: 100 * (1 - (2 + 4 / Q[d["model"]]) * H[d["model"]] ** 2 / layer(d["model"], d["s"])),
    "E25": fewest,
    "E26": lambda d: 100 * (d["pp"] - 1) / (d["micro"] + d["pp"] - 1),
    "E27": lambda d: 100 * (d["pp"] - 1) / (d["vpp"] * d["micro"] + d["pp"] - 1),
    "E28": lambda d: 3 * d["fast"] + d["slow"] + (d["micro"] - 1) * d["slow"],
    "E29": lambda d: d["gbs"] // (d["dp"] * d["batch_size"]),
    "E30": cut,
    "E31": lambda d: 2 * (d["n"] - 1) * d["size"] / d["n"],
    "E32": lambda d: d["size"] * MIB / d["us"] / 1000 * 2 * (d["n"] - 1) / d["n"],
    "E33": lambda d: 16 * (d["t"] - 1) / d["t"] * d["b"] * 4096 * H[d["model"]] / MIB,
    "E34": lambda d: 100 * d["sync_ms"] / (d["micro"] * d["micro_ms"] + d["sync_ms"]),
    "E35": lambda d: 100 * d["overlapped"] / (d["overlapped"] + d["exposed"]),
    "E36": exposed,
    "E37": lambda d: d["slow_rank"],
    "E38": lambda d: 100 * d["zeros"] / d["n"],
    "E39": speed_up,
    "E40": lambda d: d["wait_us"] / (d["wait_us"] + d["transit_us"]),
    "E41": largest_difference,
}
