"""How much a training step has to do: FLOP of its products and convolutions, bytes of its optimizer."""
import dataclasses

import torch
from torch import nn

from networks import CausalAttention

# How often an optimizer reads or writes an array of the parameters' size: the gradient once, the weight and each moment twice.
PASSES = {"sgd": 3, "momentum": 5, "adam": 7}


@dataclasses.dataclass(frozen=True)
class Work:
    forward_flop: int
    step_flop: int
    optimizer_bytes: int


def work_of(workload):
    """Counted by hooks in one forward pass over shapes alone; a multiply-add is two operations, all else is not counted.

    Backward does each product twice more, by the gradient of its result: with the input for the weight's gradient, and with the
    weight for the input's, which what reads the data itself does not need. Attention counts as two products of the whole square,
    though half of it is masked.
    """
    data = workload.batch()[0].to("meta")
    forward = step = 0

    def count(flop, reads_data):
        nonlocal forward, step
        forward += flop
        step += (2 if reads_data else 3) * flop

    def product(module, inputs, output):
        count(2 * output.numel() * module.weight[0].numel(), inputs[0] is data)

    def attention(module, inputs, output):
        count(2 * 2 * inputs[0].numel() * inputs[0].shape[-2], False)

    with torch.device("meta"), torch.no_grad():
        network = workload.network()
        for module in network.modules():
            if isinstance(module, (nn.Linear, nn.Conv2d)):
                module.register_forward_hook(product)
            elif isinstance(module, CausalAttention):
                module.register_forward_hook(attention)
        network(data)
    passes = PASSES["momentum" if workload.momentum else workload.optimizer]
    return Work(forward, step, 4 * passes * sum(parameter.numel() for parameter in network.parameters()))
