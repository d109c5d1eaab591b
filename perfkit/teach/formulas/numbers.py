"""Numbers: throughput, linearity, parameters, FLOPs and utilization (E01 to E13)."""

from __future__ import annotations

from statistics import fmean, median

from perfkit.core.params import attention_weights, count_params
from perfkit.core.robust import warm_up_steps
from perfkit.predict.cost.flops import forward_flops, matmul_flops, training_flops
from perfkit.predict.cost.scaling import linearity
from perfkit.predict.cost.utilization import hfu, mfu, samples_per_s_per_device, tokens_per_s_per_device
from perfkit.teach.models import layer_flops, named
from perfkit.teach.worked import Draw, Group, Worked

PEAK_TFLOPS = 376
SEQ = 4096
BEST_TOKENS_PER_S = {"llama2_7b": 4695, "llama2_13b": 2562}
RECOMPUTED_TOKENS_PER_S = {"llama2_7b": 4695, "llama2_13b": 1860}
SECONDS_A_DAY = 86_400
AFTER_FIRST_MS = (0, 2, -3, 5, 1, -2, 418)


def tokens_from_log(draw: Draw) -> Worked:
    """E01: samples/s/p times the length of a sample."""
    seq, sps = draw["seq"], draw["sps"]
    return Worked({"seq": seq, "sps": sps}, tokens_per_s_per_device(1, seq, 1 / sps, 1), {"missing_seq": sps})


def what_is_p(draw: Draw) -> Worked:
    """E02: samples/s over all devices."""
    dp, devices, step_s = draw["dp"], draw["dp"] * draw["tp"] * draw["pp"], draw["step_ms"] / 1000
    batch = dp * draw["batch_size"] * draw["micro_batch_num"]
    right = samples_per_s_per_device(batch, step_s, devices)
    wrong = {
        "divided_by_dp": samples_per_s_per_device(batch, step_s, dp),
        "no_micro": right / draw["micro_batch_num"],
        "total": right * devices,
    }
    return Worked(dict(draw), right, wrong)


def typical_step(draw: Draw) -> Worked:
    """E03: the median after the warm-up."""
    steps = [draw["first"], *(draw["base"] + more for more in AFTER_FIRST_MS)]
    warm = steps[warm_up_steps(steps) :]
    wrong = {"median_all": median(steps), "mean_all": fmean(steps), "mean_warm": fmean(warm)}
    return Worked({"per_step_ms": steps}, median(warm), wrong)


def scaling(draw: Draw) -> Worked:
    """E04: measured over ideal throughput."""
    single, cards = draw["single"], draw["cards"]
    total = draw["cluster_per_card"] * cards
    right = linearity(total, cards, single, 1)
    return Worked({"single_tok_s_p": single, "cluster_total_tok_s": total, "cards": cards}, right, {"inverted": 1 / right})


def share_of_peak(draw: Draw) -> Worked:
    """E05: achieved over peak in percent."""
    ratio = mfu(draw["tflops"] * 1e12, 1.0, draw["peak"] * 1e12)
    return Worked({"tflops_per_npu": draw["tflops"], "peak_tflops": draw["peak"]}, 100 * ratio, {"fraction": ratio})


def days_to_train(draw: Draw) -> Worked:
    """E06: tokens over throughput, in days."""
    alone = draw["tokens"] / draw["tok_s_p"] / SECONDS_A_DAY
    right = alone / draw["devices"]
    return Worked(dict(draw), right, {"forgot_devices": alone, "hours": 24 * right})


def parameters(draw: Draw) -> Worked:
    """E07: all trainable numbers of the model."""
    model = named(draw["model"])
    counted = count_params(model)
    total = float(counted.total)
    kept = attention_weights(model)["qkv"]
    full = 3 * model.hidden_size * model.num_attention_heads * model.head_size
    wrong = {"tied_head": total - float(counted.amount("head/projection")), "no_gqa": total + model.num_layers * (full - kept)}
    return Worked({"model": draw["model"]}, total, wrong)


def layer_work(draw: Draw) -> Worked:
    """E08: forward MFLOP per token of one layer."""
    model, s = named(draw["model"]), draw["s"]
    forward = forward_flops(model, s, head=False)
    right = layer_flops(model, s) / 1e6
    scores = float(forward.amount("layers/scores") + forward.amount("layers/values")) / model.num_layers / 1e6
    ffn = float(forward.amount("layers/ffn")) / model.num_layers / 1e6
    gpt = 16 * model.hidden_size**2 / 1e6
    return Worked(
        {"model": draw["model"], "s": s}, right, {"macs": right / 2, "gpt_ffn": right - ffn + gpt, "no_attention": right - scores}
    )


def step_work(draw: Draw) -> Worked:
    """E09: PFLOP of a training step."""
    model, s, scale = named(draw["model"]), draw["s"], draw["s"] * draw["gbs"] / 1e15
    right = float(training_flops(model, s).total) * scale
    heads = float(forward_flops(model, s).amount("head")) * (model.num_layers - 1)
    wrong = {"forward_only": right / 3, "head_inside_layers": right + 3 * heads * scale}
    return Worked({"model": draw["model"], "s": s, "gbs": draw["gbs"]}, right, wrong)


def measured_mfu(draw: Draw) -> Worked:
    """E10: MFU of a throughput, full attention, head counted."""
    model = named(draw["model"])
    speed = round(BEST_TOKENS_PER_S[draw["model"]] * draw["factor"])
    work, peak = training_flops(model, SEQ), PEAK_TFLOPS * 1e12
    right = 100 * mfu(work, speed, peak)
    wrong = {
        "with_full_recompute": 100 * hfu(work, forward_flops(model, SEQ, head=False), speed, peak),
        "six_n": 100 * mfu(6 * float(count_params(model).total), speed, peak),
        "forward_only": right / 3,
    }
    return Worked({"model": draw["model"], "s": SEQ, "tok_s_p": speed, "peak_tflops": PEAK_TFLOPS}, right, wrong)


def measured_hfu(draw: Draw) -> Worked:
    """E11: HFU with some layers recomputed in full."""
    model = named(draw["model"])
    layers = model.num_layers if draw["recompute_layers"] == "all" else int(draw["recompute_layers"])
    speed, peak, work = RECOMPUTED_TOKENS_PER_S[draw["model"]], PEAK_TFLOPS * 1e12, training_flops(model, SEQ)
    right = 100 * hfu(work, layers * layer_flops(model, SEQ), speed, peak)
    plain = 100 * mfu(work, speed, peak)
    shown = {"model": draw["model"], "s": SEQ, "tok_s_p": speed, "recompute_layers": layers, "peak_tflops": PEAK_TFLOPS}
    return Worked(shown, right, {"mfu": plain, "times_4_3": plain * 4 / 3})


def grouped_queries(draw: Draw) -> Worked:
    """E12: QKV work with fewer key-value heads, over that of as many as queries."""
    heads, kept = draw["heads"], draw["kv_heads"]
    return Worked({"heads": heads, "kv_heads": kept}, (heads + 2 * kept) / (3 * heads), {"one_over_q": kept / heads})


def intensity(draw: Draw) -> Worked:
    """E13: FLOP per byte of a product, each matrix read or written once."""
    m, k, n = draw["m"], draw["k"], draw["n"]
    work = matmul_flops(m, k, n)
    right = work / (2 * (m * k + k * n + m * n))
    shown = {"m": m, "k": k, "n": n, "dtype": "bf16", "peak_tflops": PEAK_TFLOPS, "hbm_gb_s": 1600}
    return Worked(shown, right, {"fp32": right / 2, "forgot_output": work / (2 * (m * k + k * n))})


GROUP = Group(
    title="Numbers",
    order=1,
    formulas={
        "E01": tokens_from_log,
        "E02": what_is_p,
        "E03": typical_step,
        "E04": scaling,
        "E05": share_of_peak,
        "E06": days_to_train,
        "E07": parameters,
        "E08": layer_work,
        "E09": step_work,
        "E10": measured_mfu,
        "E11": measured_hfu,
        "E12": grouped_queries,
        "E13": intensity,
    },
)
