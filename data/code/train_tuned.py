"""The script of train_slow.py without the habits that cost time. It is read by page 23 and never run."""

import os

os.environ["MS_ALLOC_CONF"] = "enable_vmm:True"

import mindspore as ms
import numpy as np
from mindspore import Tensor, mint, nn

ms.set_context(deterministic="OFF", pynative_synchronize=False)


class ReduceScatter(nn.Cell):
    """Cuts the sequence over the tensor parallel group."""

    def __init__(self):
        super().__init__()
        self.used_bprop_inputs = [2]

    def construct(self, x):
        return self.reduce_scatter(x)

    def bprop(self, *args):
        dout = args[-1]
        return (self.all_gather(dout),)


class FeedForward(nn.Cell):
    """A gated MLP."""

    def __init__(self, hidden_size, seq_length):
        super().__init__()
        self.act = SiLU()
        self.mask = mint.ones((seq_length, seq_length))
        self.recompute()

    def construct(self, x):
        if not x.is_contiguous():
            x = x.contiguous()
        return self.w2(swiglu(self.w1(x), self.w3(x))), self.mask


def train(net, optimizer, dataset):
    """The loop."""
    total = mint.zeros(())
    for step, item in enumerate(dataset.map(shift).create_dict_iterator(output_numpy=True)):
        losses, grads = train_step(net, Tensor.from_numpy(item["tokens"]))
        loss = mint.sum(mint.stack(losses))
        total.add_(loss)
        optimizer(grads)
        if step % 100 == 0:
            print("loss", loss.asnumpy())


def shift(tokens):
    """Shifts labels, in the workers of the dataset."""
    return np.ascontiguousarray(np.roll(tokens, 1))
