"""A training script with habits that cost time. It is read by page 23 and never run."""

import os

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

os.environ["MS_ALLOC_CONF"] = "enable_vmm:True"
ms.set_context(deterministic="ON", pynative_synchronize=True)


class ReduceScatter(nn.Cell):
    """Cuts the sequence over the tensor parallel group."""

    def construct(self, x):
        return self.reduce_scatter(x)

    def bprop(self, *args):
        dout = args[-1]
        return (self.all_gather(dout),)


class FeedForward(nn.Cell):
    """A gated MLP."""

    def __init__(self, hidden_size, seq_length):
        super().__init__()
        self.act = ops.silu
        self.seq_length = seq_length
        self.recompute()

    def construct(self, x):
        mask = ops.ones((self.seq_length, self.seq_length))
        gate = self.w1(x.contiguous())
        up = self.w3(x)
        return self.w2(ops.silu(gate) * up), mask


def train(net, optimizer, dataset):
    """The loop."""
    total = 0
    for item in dataset.create_dict_iterator(output_numpy=True):
        item = transform_data(item)
        batch = Tensor(item["tokens"])
        losses, grads = train_step(net, batch)
        loss = sum(losses)
        total = total + loss
        if loss > 100:
            break
        optimizer(grads)
        print("loss", loss.asnumpy())


def transform_data(item):
    """Shifts labels; this belongs into the dataset."""
    return {"tokens": np.roll(item["tokens"], 1)}
