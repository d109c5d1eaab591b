class GatherBackwards(nn.Cell):
    "Scatter sums in the forward pass, gather them in the backward pass."

    def __init__(self, swap):
        super(GatherBackwards, self).__init__()
        self.size = get_tensor_model_parallel_world_size()
        self.swap = swap
        if self.size > 1:
            self.group = get_tensor_model_parallel_group()
        self.used_bprop_inputs = [2]   # bprop reads the gradient alone

    def construct(self, x):
        if self.size == 1:
            return ops.stop_gradient(x)
        if self.swap:
            x = x.swapaxes(0, 1)
        out = comm_func.reduce_scatter_tensor(x, group=self.group)[0]
        if self.swap:
            out = out.swapaxes(0, 1)
        return out

    # pylint: disable=W0613
    def bprop(self, *args):
        grad = args[-1]
        if self.size == 1:
            return grad
        if self.swap:
            grad = grad.swapaxes(0, 1)
        out = comm_func.all_gather_into_tensor(grad, group=self.group)[0]
        if self.swap:
            out = out.swapaxes(0, 1)

        return (out,)
