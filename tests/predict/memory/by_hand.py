"""Memory by hand: a second derivation of every leaf, tensor by tensor, layer by layer and operation by operation.

It walks through a training step as a device does and adds up what it meets; nothing is factored or vectorised. Only the matching of
operator names (`perfkit.core.recomputed.matches`) and the order of operations of the schedules are the package's own.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from perfkit.core.recomputed import matches
from perfkit.predict.plans.schedule.order import lanes

FLASH = "attention.flash_attention.flash_attention"
PROJECTED = (FLASH, "attention.merger_head_transpose", "attention.batch_matmul")
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float8": 1}


@dataclass
class Tensor:
    """A tensor that waits for the backward pass: `names` of what makes it; `own` bytes are not from other devices."""

    part: str
    bytes: float
    names: tuple[str, ...]
    own: float = 0.0
    cast_up: bool = False
    cast_back: bool = False
    core: bool = False


def layer_numbers(plan):
    """The numbers of the layers of every chunk of every stage: chunk 0 of all stages comes first."""
    numbers, start = {}, 0
    for chunk, row in enumerate(plan.stage_layers):
        for stage, count in enumerate(row):
            numbers[chunk, stage] = range(start, start + count)
            start += count
    return numbers


def has_experts(plan, number):
    return plan.model.num_experts > 0 and number >= plan.model.num_dense_layers


def weights(plan, settings, stage):
    """Every weight on a device of a stage: (what an optimizer takes it for, elements, the layer or None, what it is of)."""
    model, parallel = plan.model, plan.parallel
    h, t, last = model.hidden_size, parallel.tensor_parallel_size, parallel.pipeline_parallel_size - 1
    rows = model.vocab_size
    while rows % (settings.vocab_multiple * t):
        rows += 1
    rows = rows if settings.vocab_multiple * t > 1 else model.vocab_size
    norm = [h, h] if model.norm == "layernorm" else [h]
    found = []
    if stage == 0:
        found.append(("table", rows * h / t, None, "embedding"))
        found.append(("small", model.max_position_embeddings * h, None, "embedding"))
        found += [("small", size, None, "embedding") for size in norm if model.embedding_norm]
    if stage == last:
        found += [("small", size, None, "final_norm") for size in norm]
        if not (model.tied_embeddings and stage == 0):
            found.append(("table", rows * h / t, None, "head"))
        if model.num_mtp_layers and stage > 0 and not model.tied_embeddings:
            found.append(("table", rows * h / t, None, "head"))
        for _ in range(model.num_mtp_layers):
            found.append(("matrix", 2 * h * h / t, None, "further"))
            found += [("small", size, None, "further") for _ in ("hidden state", "embedding", "output") for size in norm]
    for (_, where), numbers in layer_numbers(plan).items():
        for number in numbers if where == stage else ():
            found += [(kind, size, number, own) for own, kind, size in _layer_weights(plan, has_experts(plan, number))]
    return found


def trained_numbers(plan):
    """The layers of which something is trained."""
    layers, own = plan.model.num_layers, plan.model.trained_layers
    if own is None:
        return range(layers)
    return range(own.first) if own.first else range(layers - own.last, layers)


def is_trained(plan, weight):
    kind, _, number, own = weight
    trained = plan.model.trained_layers
    if trained is None:
        return kind == "adapter" or not plan.model.adapters
    if number is None:
        return own in trained.outside
    return own in trained.parts and number in trained_numbers(plan)


def has_backward(plan, where, number):
    """Whether something trained lies in a layer or below it, or its stage receives what asks for a gradient."""
    trained = plan.model.trained_layers
    if trained is None or where != (0, 0) or trained.input_gradients or "embedding" in trained.outside:
        return True
    return any(number >= lower for lower in trained_numbers(plan))


def _layer_weights(plan, mixed):
    """Every weight of a layer: what it is of, what an optimizer takes it for, elements."""
    model, parallel = plan.model, plan.parallel
    h, t, d, a = model.hidden_size, parallel.tensor_parallel_size, model.head_size, model.num_attention_heads
    norm = [h, h] if model.norm == "layernorm" else [h]
    for _ in ("attention_norm", "ffn_norm"):
        for size in norm:
            yield "norms", "small", size
    if model.query_key_norm:
        yield "attention", "small", d
        yield "attention", "small", d
    if model.kv_lora_rank:
        q, r, n = model.query_lora_rank, model.kv_lora_rank, model.nope_head_size
        o, w = model.rope_head_size, model.value_head_size
        if q:
            yield "attention", "matrix", h * q
            yield "attention", "small", q
        yield "attention", "matrix", (q or h) * (a / t) * (n + o)
        yield "attention", "matrix", h * (r + o)
        yield "attention", "small", r
        yield "attention", "matrix", r * (a / t) * (n + w)
        yield "attention", "matrix", (a / t) * w * h
    else:
        yield "attention", "matrix", h * d * a / t
        for _ in ("key", "value"):
            yield "attention", "matrix", h * d * max(model.num_key_value_heads / t, 1)
        yield "attention", "matrix", d * a / t * h
    if model.adapters:
        yield from (("attention", *one) for one in _adapter_weights(model, t))
    if model.bias != "none":
        yield "attention", "small", d * (a + 2 * model.num_key_value_heads) / t
    if model.bias in ("attention", "all"):
        yield "attention", "small", h
    if not mixed:
        yield from (("feed_forward", *one) for one in _ffn_weights(model, model.ffn_hidden_size / t, "matrix"))
        return
    yield "feed_forward", "small", h * model.num_experts
    if model.shared_expert_gate:
        yield "feed_forward", "small", h
    if model.router_bias:
        yield "feed_forward", "small", model.num_experts
    for _ in range(model.num_experts // parallel.expert_parallel_size):
        for _, size in _ffn_weights(model, model.expert_ffn_hidden_size / (parallel.expert_tensor_parallel_size or t), "expert"):
            yield "feed_forward", "expert", size
    if model.num_shared_experts:
        width = model.num_shared_experts * (model.shared_expert_ffn_hidden_size or model.expert_ffn_hidden_size)
        yield from (("feed_forward", *one) for one in _ffn_weights(model, width / t, "matrix"))


def _adapter_weights(model, t):
    """Both factors of every adapter on a device: the side of the matrix that the tensor group divides is divided."""
    h, f, rank = model.hidden_size, model.ffn_hidden_size, model.adapters.rank
    queries = model.num_attention_heads * model.head_size / t
    keys = max(model.num_key_value_heads / t, 1) * model.head_size
    sides = {
        **{"query": (h, queries), "key": (h, keys), "value": (h, keys), "qkv": (h, queries + keys + keys), "output": (queries, h)},
        **{"gate": (h, f / t), "up": (h, f / t), "gate_up": (h, f / t + f / t), "down": (f / t, h)},
    }
    for target in model.adapters.targets:
        for side in sides[target]:
            yield "adapter", side * rank


def _ffn_weights(model, width, kind):
    names = ("gate", "up") if model.gated_ffn else ("up",)
    for _ in names:
        yield kind, model.hidden_size * width
        if model.bias == "all":
            yield "small", width
    yield kind, width * model.hidden_size
    if model.bias == "all":
        yield "small", model.hidden_size


def static(plan, settings, stage):
    """Parameters, gradients, optimizer state and gathered weights, weight by weight."""
    parallel, optimizer, work = plan.parallel, plan.optimizer, plan.workload
    shards = parallel.optimizer_shard_size
    level = parallel.optimizer_shard_level if shards > 1 else 0
    if settings.framework == "fsdp" and parallel.pipeline_parallel_size > 1:  # nothing is shared again between two micro batches
        level = min(level, 1)
    compute = 4 if work.dtype == "float32" else 2
    width = BYTES[optimizer.parameter_dtype] if optimizer.parameter_dtype else compute
    in_parts = level == 3 or (level > 0 and settings.shares_weights)
    one_batch = plan.num_micro_batches == 1 and parallel.pipeline_parallel_size == 1
    shares_gradients = level >= 2 or (one_batch and not settings.keeps_transient_gradients)
    inner = parallel.expert_tensor_parallel_size or parallel.tensor_parallel_size
    same_experts = max(1.0, shards * parallel.tensor_parallel_size / (parallel.expert_parallel_size * inner)) if shards > 1 else 1.0
    found, layers = Counter(), Counter()
    every = list(weights(plan, settings, stage))
    trained = [one for one in every if is_trained(plan, one)]
    divided = trained if settings.shares_weights else every
    total = sum(size for _, size, *_ in divided)
    parts = sum(size / (same_experts if kind == "expert" else shards) for kind, size, *_ in divided)
    for weight in every:
        kind, size, number, _ = weight
        owners = same_experts if kind == "expert" else shards
        is_divided = in_parts and weight in divided
        found["static/parameters"] += size * width / (owners if is_divided else 1)
        # What every device holds whole is not gathered.
        if number is not None and kind in ("matrix", "expert", "adapter") and weight in divided:
            layers[number] += size
        if kind in ("matrix", "expert") and work.dtype == "float8":
            # The share of what is stored in parts is that of the mean weight.
            found["static/parameters"] += size * settings.float8_copy_bytes * (parts / total if is_divided else 1)
        if weight not in trained:
            continue
        found["static/gradients"] += size * BYTES[optimizer.gradient_dtype] / (owners if shares_gradients else 1)
        found["static/gradients"] += size * optimizer.gradient_accumulation_bytes_per_parameter
        if optimizer.master_weights and width < 4:
            found["static/optimizer"] += size / owners * BYTES[optimizer.master_dtype]
        apart = kind in ("matrix", "expert", "adapter") and optimizer.matrix_state_bytes_per_parameter >= 0
        state = optimizer.matrix_state_bytes_per_parameter if apart else optimizer.state_bytes_per_parameter
        found["static/optimizer"] += size / owners * state
    if in_parts and level < 3:
        found["dynamic/gathered_parameters"] = (total - parts) * compute
    elif in_parts:
        tables = sum(size for kind, size, *_ in every if kind == "table") if settings.framework == "fsdp" else 0
        found["dynamic/gathered_parameters"] = min(total, tables + 2 * max(layers.values(), default=0)) * compute
    return found, sum(size for _, size, *_ in trained)


def inputs(plan, settings, number, *targets):
    """Bytes an element that products of these targets keep of their input: the value itself, and a copy for each adapter."""
    (e, i), adapters = widths(plan, settings), plan.model.adapters
    if adapters is None:
        of = "feed_forward" if {"gate", "down"} & {*targets} else "attention"
        is_frozen = plan.model.trained_layers and not is_trained(plan, ("matrix", 0, number, of))
        return 0 if is_frozen and settings.framework != "deepspeed" else i, 0
    taking = [target for target in adapters.targets if target in targets]
    itself = i if settings.framework == "deepspeed" else 0
    if settings.framework in ("deepspeed", "fsdp"):
        return itself, sum(e for _ in taking)
    return (e if taking else itself), 0


def inner_values(plan, part, *targets):
    """What the first factors make."""
    e = 4 if plan.workload.dtype == "float32" else 2
    for target in plan.model.adapters.targets if plan.model.adapters else ():
        if target in targets:
            yield Tensor(part, tokens(plan) * plan.model.adapters.rank * e, ())


def saved(plan, settings, number, *, mixed):
    """The tensors that the forward pass of a layer leaves for its backward pass, in order."""
    model, work, parallel = plan.model, plan.workload, plan.parallel
    (e, i), t, a = widths(plan, settings), parallel.tensor_parallel_size, model.num_attention_heads
    n = tokens(plan)
    mine = n / t if parallel.sequence_parallel else n
    stream = mine * model.hidden_size * e
    wide = settings.keeps_norm_in_fp32 and e == 2

    def norm(name, part, makers, *targets):
        yield Tensor("norm", 2 * stream, (f"{name}.cast",), cast_up=True) if wide else Tensor("norm", stream, makers)
        whole = n * model.hidden_size * e if settings.keeps_gathered_inputs else stream
        names = (f"{name}.rcast", f"{name}.norm") if settings.keeps_norm_in_fp32 else (f"{name}.norm",)
        itself, copies = inputs(plan, settings, number, *targets) if targets else (i, 0)
        kept, own = whole * (itself + copies) / e, (stream * itself + whole * copies) / e
        yield Tensor(part, kept, names, own=own, cast_back=settings.keeps_norm_in_fp32)

    yield from norm("attention_norm", "attention", (), "query", "key", "value", "qkv")
    if model.kv_lora_rank:
        yield Tensor("attention", n * (2 * model.kv_lora_rank + model.rope_head_size) * e, ())
        if model.query_lora_rank:
            yield Tensor("attention", 2 * n * model.query_lora_rank * e, ())
        key, value = model.nope_head_size + model.rope_head_size, model.value_head_size
        yield Tensor("attention", n * a / t * key * e, ("attention.q_proj.matmul",))
        yield Tensor("attention", n * a / t * key * e, ("attention.kv2l.matmul",))
        yield Tensor("attention", n * a / t * value * e, ("attention.kv2l.matmul",))
    else:
        value, groups = model.head_size, max(model.num_key_value_heads / t, 1)
        yield Tensor("attention", n * a / t * value * e, ("attention.wq.matmul", "attention.apply_rotary_emb"))
        yield Tensor("attention", n * groups * value * e, ("attention.wk.matmul", "attention.apply_rotary_emb"))
        yield Tensor("attention", n * groups * value * e, ("attention.wv.matmul",))
    if work.attention_kernel == "flash":
        yield Tensor("attention", n * a / t * 4, (FLASH,), core=True)
    else:
        pairs = n * work.seq_length * a / t
        yield Tensor("attention", pairs * e, ("attention.softmax",), core=True)
        if work.dropout:
            yield Tensor("attention", pairs, ("attention.attention_dropout",), core=True)
            yield Tensor("attention", pairs * e, ("attention.attention_dropout",), core=True)
    itself, copies = inputs(plan, settings, number, "output")
    own = e if work.attention_kernel == "flash" and itself != e else 0  # what attention itself needs beside the projection's input
    yield Tensor("attention", n * a / t * value * (itself + copies + own), PROJECTED)
    yield from inner_values(plan, "attention", "query", "key", "value", "qkv", "output")
    if work.dropout:
        yield Tensor("attention", mine * model.hidden_size, ("attention.dropout",))
    yield from norm("ffn_norm", *(("experts", ("add",)) if mixed else ("ffn", ("add",), "gate", "up", "gate_up")))
    if mixed:
        yield from _expert_tensors(plan, settings, n, mine, number)
    else:
        yield from _ffn_tensors(plan, settings, "ffn", n * model.ffn_hidden_size / t, number)
        yield from inner_values(plan, "ffn", "gate", "up", "gate_up", "down")
    if work.dropout:
        yield Tensor("ffn", mine * model.hidden_size, ("feed_forward.dropout",))


def widths(plan, settings):
    """Bytes of an activation, and of what is kept of the input of a product."""
    e = 4 if plan.workload.dtype == "float32" else 2
    return e, 1 if plan.workload.dtype == "float8" and settings.keeps_float8_inputs else e


def _ffn_tensors(plan, settings, part, values, number):
    model, (e, i) = plan.model, widths(plan, settings)
    size = values * e
    i = sum(inputs(plan, settings, number, "down")) if part == "ffn" else i
    if not model.gated_ffn:
        yield Tensor(part, size, ("feed_forward.w1.matmul", "mlp.dense_h_to_4h.matmul"))
        yield Tensor(part, values * i, ("feed_forward.w1.activation", "mlp.activation"))
        return
    yield Tensor(part, size, ("feed_forward.w1.matmul", "feed_forward.w_gate_hidden.matmul"))
    yield Tensor(part, size, ("feed_forward.w3.matmul", "feed_forward.w_gate_hidden.matmul"))
    if settings.keeps_activation_output:
        yield Tensor(part, size, ("feed_forward.w1.activation.silu",))
    yield Tensor(part, values * i, ("feed_forward.mul",))


def _expert_tensors(plan, settings, n, mine, number):
    model, parallel = plan.model, plan.parallel
    e, i = widths(plan, settings)
    t, h = parallel.tensor_parallel_size, model.hidden_size
    inner = parallel.expert_tensor_parallel_size or t
    load = settings.expert_imbalance
    if model.expert_capacity_factor:  # Tokens beyond an expert's room are dropped; balanced experts fill their room.
        load = min(load, model.expert_capacity_factor) if load > 1 else model.expert_capacity_factor
    sent = (mine * inner if parallel.sequence_parallel else n) * model.num_experts_per_token * load
    yield Tensor("experts", mine * model.num_experts * 8, ("feed_forward.router",))
    yield Tensor("experts", sent * h * i, ("feed_forward.dispatch",))
    yield from _ffn_tensors(plan, settings, "experts", sent * model.expert_ffn_hidden_size / inner, number)
    yield Tensor("experts", sent * h * e, ("feed_forward.experts",))
    for _ in range(model.num_shared_experts):
        width = model.shared_expert_ffn_hidden_size or model.expert_ffn_hidden_size
        yield from _ffn_tensors(plan, settings, "experts", n * width / t, number)


def tokens(plan):
    """Tokens of a micro batch, or of a piece of it, that a device sees."""
    parallel, work = plan.parallel, plan.workload
    sequences = work.micro_batch_size * parallel.micro_batch_interleave_size
    return work.seq_length / parallel.context_parallel_size / parallel.sequence_chunks * sequences


def left(tensor, patterns, *, core, gather):
    """Bytes of a tensor that stay when some operators are repeated."""
    hit = [any(matches(pattern, name) for pattern in patterns) for name in tensor.names]
    if tensor.cast_up:
        return tensor.bytes / 2 if any(hit) else tensor.bytes
    if tensor.core and core:
        return 0.0
    if any(hit):
        return 2 * tensor.bytes if tensor.cast_back and not any(hit[1:]) else 0.0
    return tensor.own if gather and tensor.own else tensor.bytes


def layer_keeps(plan, settings, where, place, number):
    """Bytes by part that the layer at a place (0: first) of a chunk keeps of one micro batch."""
    if not has_backward(plan, where, number):
        return {}
    recompute, (chunk, stage) = plan.recompute, where
    count = plan.stage_layers[chunk][stage]
    full = count if recompute.all_layers else min(count, _at(recompute.full_layers, chunk, stage))
    if place < full:
        e, t = 4 if plan.workload.dtype == "float32" else 2, plan.parallel.tensor_parallel_size
        return {"recomputed_layers": tokens(plan) * plan.model.hidden_size * e / (t if plan.parallel.sequence_parallel else 1)}
    away = min(count - full, _at(recompute.swapped_layers, chunk, stage))
    if place < full + away - 2:
        return {}
    patterns = [pattern for pattern, counts in recompute.operators.items() if place < _at(counts, chunk, stage)]
    gather = place < _at(recompute.communication, chunk, stage)
    found = Counter()
    for tensor in saved(plan, settings, number, mixed=has_experts(plan, number)):
        found[tensor.part] += left(tensor, patterns, core=recompute.attention_core, gather=gather)
    return found


def _at(counts, chunk, stage):
    return counts[chunk][stage] if chunk < len(counts) and stage < len(counts[chunk]) else 0


def live_batches(plan, schedule, stage):
    """The live micro batches of every chunk after every operation of a stage."""
    parallel = plan.parallel
    p, v, pieces = parallel.pipeline_parallel_size, parallel.virtual_pipeline_parallel_size, parallel.sequence_chunks
    m = plan.num_micro_batches
    if pieces > 1 and v == 1:  # All pieces of a micro batch go forward before the first comes back.
        live, found = 0, []
        for unit in range(m * pieces):
            live += 1
            found.append((live,))
            if unit >= p - stage - 2 + pieces:
                live -= 1
        return found
    live, found = [0] * (2 if schedule == "dualpipe" else v), []
    weight_gradients = schedule == "zbh1"
    for op in (op for item in lanes("vpp" if v > 1 and schedule == "1f1b" else schedule, p, v, m)[stage] for op in item):
        if op.kind == "F":
            live[op.chunk] += 1
            found.append(tuple(live))
        elif op.kind == ("W" if weight_gradients else "B"):
            live[op.chunk] -= 1
    return found


def stage_memory(plan, settings, stage, schedule="1f1b"):
    """Bytes by path at the largest moment of a stage, and that moment."""
    model, parallel, work = plan.model, plan.parallel, plan.workload
    e, t, n = 4 if work.dtype == "float32" else 2, parallel.tensor_parallel_size, tokens(plan)
    whole = n * model.hidden_size * e
    stream = whole / t if parallel.sequence_parallel else whole
    last = stage == parallel.pipeline_parallel_size - 1
    numbers = layer_numbers(plan)
    mirrored = parallel.pipeline_parallel_size - 1 - stage
    chunks = []
    for where in numbers:
        if where[1] == stage or (schedule == "dualpipe" and where[1] == mirrored):
            kept = Counter()
            for place, number in enumerate(numbers[where]):
                kept.update(layer_keeps(plan, settings, where, place, number))
            chunks.append(kept)
    if schedule == "dualpipe" and mirrored < stage:
        chunks.reverse()
    states = live_batches(plan, schedule, stage)
    waiting = [sum(count * sum(kept.values()) for count, kept in zip(state, chunks, strict=True)) for state in states]
    tied = {state for state, amount in zip(states, waiting, strict=True) if amount >= max(waiting) * (1 - 1e-12)}
    most = min(one for one in tied if not any(one != other and all(map(int.__le__, one, other)) for other in tied))
    held = Counter()
    for count, kept in zip(most, chunks, strict=True):
        for part, amount in kept.items():
            held[f"dynamic/activations/{part}"] += count * amount
    if stage == 0 and work.dropout:
        held["dynamic/activations/embedding"] = most[0] * stream / e
    if last:
        final_input = 2 * stream if settings.keeps_norm_in_fp32 and e == 2 else stream
        normed = whole if settings.keeps_gathered_inputs else stream
        held["dynamic/activations/head"] = final_input + normed
        for _ in range(model.num_mtp_layers):
            for _ in ("hidden state", "embedding", "output"):
                held["dynamic/activations/head"] += final_input + normed
    if stage == 0 or last:
        held["dynamic/activations/batch"] = n * (3 * 8 + 4) + (n * work.seq_length if settings.masks_in_batch else 0)
    fixed, total = static(plan, settings, stage)
    if schedule == "dualpipe":  # The layers of the other direction are those of the mirrored stage.
        fixed.update(static(plan, settings, mirrored)[0])
    fixed.update(_buffers(plan, settings, total, whole, stream))
    fixed["reserved/workspace"] = settings.workspace_bytes + (settings.expert_workspace_bytes if model.num_experts else 0)
    if settings.keeps_score_buffer and work.attention_kernel == "unfused":
        fixed["reserved/workspace"] += n * work.seq_length * model.num_attention_heads / t * e
    own = _backward(plan, settings, stage, numbers)
    moments = {"in the backward pass of a layer" if own else "while micro batches wait": held | own}
    if last:
        moments["at the loss of a micro batch"] = held | _at_the_loss(plan, settings, stage, fixed)
    moments["in the optimizer step"] = {}
    if settings.bucket_elements:
        part = total / parallel.optimizer_shard_size
        moments["in the optimizer step"] = {"dynamic/gradient_copies": part * BYTES[plan.optimizer.gradient_dtype] + part * 4}
    moment = max(moments, key=lambda name: sum(moments[name].values()))
    found = fixed | moments[moment]
    found["static/gradients"] = found.get("static/gradients", 0) + found.pop("nothing yet", 0)
    found["reserved/fragmentation"] = settings.fragmentation * sum(found.values())
    found["reserved/context"] = settings.context_bytes
    return {path: round(amount) for path, amount in found.items() if round(amount)}, moment


def _at_the_loss(plan, settings, stage, fixed):
    """Logits of every loss, less the gradients that FSDP has not made yet: all, before the only backward pass of a step."""
    model, parallel = plan.model, plan.parallel
    rows = next(size for kind, size, *_ in weights(plan, settings, stage) if kind == "table") / model.hidden_size
    logits = sum(tokens(plan) * rows * settings.logits_bytes_per_element for _ in range(1 + model.num_mtp_layers))
    shared = settings.framework == "fsdp" and parallel.optimizer_shard_size > 1 and parallel.optimizer_shard_level == 3
    only = plan.num_micro_batches == 1 and parallel.pipeline_parallel_size == 1
    return {"dynamic/logits": logits, "nothing yet": -fixed["static/gradients"] if shared and only else 0}


def _buffers(plan, settings, total, whole, stream):
    model, parallel = plan.model, plan.parallel
    t, found = parallel.tensor_parallel_size, Counter()
    if parallel.sequence_parallel and t > 1:
        found["sequence"] = whole
    if parallel.pipeline_parallel_size > 1:
        for _ in ("sent forward", "gradient sent", "gradient received"):
            found["pipeline"] += stream * (2 if parallel.virtual_pipeline_parallel_size > 1 else 1)
    if parallel.context_parallel_size > 1:
        keys = whole * model.num_key_value_heads * model.head_size / model.hidden_size / t
        if parallel.context_parallel_algorithm in ("ring", "hybrid"):
            for _ in ("key in use", "value in use", "key on its way", "value on its way"):
                found["context"] += keys
        if parallel.context_parallel_algorithm in ("ulysses", "hybrid"):
            found["context"] += whole / t + whole / t
    if settings.bucket_elements and parallel.data_parallel_size > 1:
        for _ in ("gradients", "parameters"):
            found["buckets"] += 2 * min(settings.bucket_elements, total)
    return {f"dynamic/communication_buffers/{name}": amount for name, amount in found.items()}


def _backward(plan, settings, stage, numbers):
    """What the layer whose backward pass comes first makes besides what waits: the first layer of the last chunk that has one."""
    chunk = plan.parallel.virtual_pipeline_parallel_size - 1
    behind = [number for number in numbers[chunk, stage] if has_backward(plan, (chunk, stage), number)]
    if not behind:
        return {}
    before = len(numbers[chunk, stage]) - len(behind)
    model, work, recompute = plan.model, plan.workload, plan.recompute
    e, t, n = 4 if work.dtype == "float32" else 2, plan.parallel.tensor_parallel_size, tokens(plan)
    # A chunk has experts in its backward pass if any of its layers has: the last one is the first that comes back.
    mixed = has_experts(plan, behind[-1])
    # One of those that are trained, which makes most again; of a kind with experts if any has them.
    own = [number for number in behind if number in trained_numbers(plan)] or behind
    stream = n * model.hidden_size * e / (t if plan.parallel.sequence_parallel else 1)
    full = recompute.all_layers or _at(recompute.full_layers, chunk, stage) > before
    patterns = [pattern for pattern, counts in recompute.operators.items() if _at(counts, chunk, stage) > before]
    again = 0.0
    for tensor in saved(plan, settings, own[-1], mixed=mixed):
        again += tensor.bytes - (0.0 if full else left(tensor, patterns, core=recompute.attention_core, gather=False))
    again -= stream if full else 0.0
    width = model.num_experts_per_token * model.expert_ffn_hidden_size if mixed else model.ffn_hidden_size
    inside = (3 if model.gated_ffn else 2) * n * width / t * e
    if work.attention_kernel == "unfused":  # Gradients of the scores before and after the softmax.
        inside = max(inside, 2 * n * work.seq_length * model.num_attention_heads / t * e)
    return {"dynamic/recomputed_tensors": max(0.0, again), "dynamic/activation_gradients": 2 * stream + inside}
