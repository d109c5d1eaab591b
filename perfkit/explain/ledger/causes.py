"""Causes: the words of the ledger, as slash-paths whose first part says what kind of time it is.

- `work/...`: the device computes, by kind of operator.
- `transfer/...`: nothing computes and data move: at the usual speed of like messages of the same ranks, or slower; or an operation
  of which the profiler says that it neither moved data nor waited, although all of its members were there.
- `waiting/...`: nothing computes or moves, because another rank is late; the rest of the path says why that one is late.
- `copy`: the device only copies memory.
- `feed`: the device waits for input.
- `host/...`: the device has nothing to do because the host is late: it launches slowly, it had waited for the device (blocking
  call), it stood still (pause), it gave memory back or took it (allocator), or a launch needed that long.
- `device`: the next kernel was launched in time; the device took the time between two kernels.
- `unexplained`: what nothing on record accounts for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

COPY, FEED, DEVICE, UNEXPLAINED = "copy", "feed", "device", "unexplained"
TRANSFER, SLOW_TRANSFER = "transfer/usual speed", "transfer/slower than usual"
NEITHER = "transfer/neither moving nor waiting"
LAUNCHING, BLOCKING, PAUSE, ALLOCATOR = "host/launching", "host/blocking call", "host/pause", "host/allocator"
LATENCY = "host/launch latency"
FILLING, LATE_SENDS, STAGE_LOAD = "waiting/filling", "waiting/late sends", "waiting/stage load"
OTHER_STAGE, HEAD = "waiting/another stage", "waiting/head"
ALL_WORK, AGAIN = "work/not told apart", "work/recomputation"
OPTIMIZER = "work/optimizer"
OF_LAYERS = ("work/attention", "work/experts", "work/convolution", "work/product", "work/head", AGAIN)
"""Computing that layers have and the optimizer and what follows it do not."""
KERNELS, WAITING_UNTOLD = "waiting/kernels", "waiting/why not recorded"

WORDS: Mapping[str, str] = {
    "work": "computing",
    "work/head": "computing the head and its loss",
    AGAIN: "computing layers again for the backward pass",
    TRANSFER: "moving data at its usual speed",
    SLOW_TRANSFER: "moving data slower than usual",
    NEITHER: "inside operations that neither move data nor wait",
    "waiting": "waiting for other ranks",
    COPY: "copying memory",
    FEED: "waiting for input",
    LAUNCHING: "the host launches too late",
    BLOCKING: "the host had waited for the device",
    PAUSE: "the host stood still",
    ALLOCATOR: "memory given back and taken again",
    LATENCY: "from launch to start",
    DEVICE: "between two kernels that were launched in time",
    UNEXPLAINED: "unexplained",
    "unexplained/communication": "unexplained, in operations among ranks",
    "unexplained/waiting": "unexplained, waiting for other ranks",
    "unexplained/idle": "unexplained, the device does nothing",
    "unexplained/kernels": "unexplained, kernels are missing",
    "unexplained/step": "unexplained, of the step only its length is known",
}

LOADERS = re.compile(
    r"data_?loader|dataloader|getnext|get_next|dequeue_?data|initdataset|_next_data|data_?iterator|fetch_?(?:data|batch)|deviceque|minddata"
    r"|collate|dataset",
    re.IGNORECASE,
)
FEED_KERNELS = re.compile(r"getnext|get_next|dequeue|initdataset|deviceque", re.IGNORECASE)
COLLECTORS = re.compile(r"^gc\b|\bgc:|garbage", re.IGNORECASE)
BLOCKERS = re.compile(
    r"synchroni[sz]e|StreamWait|_local_scalar_dense|aten::item|Tensor::item|\.item\b|asnumpy|memcpy(?!async)|memcpy.*dtoh|aten::nonzero",
    re.IGNORECASE,
)
COPIES = re.compile(r"memcpy(?:\w*async)?", re.IGNORECASE)
UPDATES = re.compile(r"adam|optim|momentum|\bsgd|lamb(?!da)|multi_tensor_apply|foreach", re.IGNORECASE)
"""Kernels of optimizers, those over lists of tensors among them; most kernels of C++ have a lambda in their names: not LAMB."""
ALLOCATORS = re.compile(r"(?:cuda|hip|aclrt|acl)\w*(?:malloc|free)", re.IGNORECASE)

_KINDS = (
    ("work/attention", re.compile(r"flash|fmha|attention|attn|sdpa", re.IGNORECASE)),
    ("work/experts", re.compile(r"grouped_?_?(?:mat_?mul|gemm)|\bgmm|moe_", re.IGNORECASE)),
    (OPTIMIZER, UPDATES),
    (
        "work/convolution",
        re.compile(r"conv(?!ert)(?:olution|\d|_|$|2d|3d)|cudnn.*(?:grad|conv)|implicit_?(?:con|gemm)", re.IGNORECASE),
    ),
    (
        "work/product",
        re.compile(r"mat_?mul|gemm|(?:^|::)(?:mm|bmm|addmm|baddbmm|linear)$|cutlass|nvjet|cijk_|xmma|gemv", re.IGNORECASE),
    ),
    ("work/loss and embedding", re.compile(r"cross_?entropy|nll_?loss|log_?softmax|embedding|index_?select|gather", re.IGNORECASE)),
    ("work/normalization", re.compile(r"norm", re.IGNORECASE)),
    (
        "work/conversion",
        re.compile(
            r"\bcast|^cast|(?<!_)_to_copy|direct_copy_kernel|copy_kernel|tensormove|transdata|formattransfer|convert|transpose|contiguous",
            re.IGNORECASE,
        ),
    ),
    ("work/memory", re.compile(r"memset|memcpy|fill|zeros|concat|split|slice|cat", re.IGNORECASE)),
)
ELEMENT_WISE, AI_CPU = "work/element-wise and other", "work/AI CPU"


def kind_of(operator: str) -> str:
    """The cause of computing an operator or kernel of this name."""
    return next((cause for cause, pattern in _KINDS if pattern.search(operator)), ELEMENT_WISE)


def words_of(cause: str) -> str:
    """What a cause means, for people: of the longest path that has words."""
    pieces = cause.split("/")
    for depth in range(len(pieces), 0, -1):
        if (path := "/".join(pieces[:depth])) in WORDS:
            rest = " ".join(pieces[depth:])
            return f"{WORDS[path]}: {rest}" if rest else WORDS[path]
    return cause


def why(cause: str) -> str:
    """What a rank that others wait for was late by: its own cause as the path of theirs."""
    if cause.startswith("waiting/"):
        return cause
    if cause.startswith("work/"):
        return f"waiting/{cause.removeprefix('work/')}" if cause in APART else KERNELS
    if cause.startswith(UNEXPLAINED):
        return WAITING_UNTOLD
    return {
        NEITHER: "waiting/transfer",
        TRANSFER: "waiting/transfer",
        SLOW_TRANSFER: "waiting/slow link",
    }.get(cause, "waiting/" + cause.removeprefix("host/"))


APART = frozenset({"work/experts", AGAIN, "work/head"})
"""Kinds of work that tell by themselves why a rank is late."""
