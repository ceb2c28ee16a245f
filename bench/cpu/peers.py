"""PyTorch's training step on the workloads, eager and compiled: loss, backward and optimizer, the batch resident in memory.

    python peers.py [--threads 2] [--steps 50] [WORKLOAD...]       (needs torch)

A Peer keeps its network between measurements, so that bench/cpu/compare.py can take turns between gcomp and every peer.
"""
import argparse
import statistics

import torch

from times import times_ms
from workloads import find_workloads, initial_network, loss_of

MODES = {
    "eager": lambda forward: forward,
    "compile": torch.compile,
    "compile max-autotune": lambda forward: torch.compile(forward, mode="max-autotune"),
}


def optimizer_of(workload, parameters):
    # fused: all parameters in one call, the fastest that PyTorch has on the CPU.
    if workload.optimizer == "adam":
        return torch.optim.Adam(parameters, lr=workload.learning_rate, fused=True)
    return torch.optim.SGD(parameters, lr=workload.learning_rate, momentum=workload.momentum, fused=True)


class Peer:
    """One way in which PyTorch can run a workload: a mode of MODES, layout "nchw" or "channels_last", precision "f32" or, under
    autocast, "bf16"."""

    def __init__(self, workload, mode, layout, precision="f32"):
        self.name = workload.peer_name(mode, layout)
        self.data, self.label = workload.batch()
        network = initial_network(workload).train()
        if layout == "channels_last":
            network = network.to(memory_format=torch.channels_last)
            self.data = self.data.to(memory_format=torch.channels_last)
        self.optimizer = optimizer_of(workload, network.parameters())
        if precision == "bf16":
            def forward(data, label):
                with torch.autocast("cpu", torch.bfloat16):
                    return loss_of(network(data), label)
        else:
            forward = lambda data, label: loss_of(network(data), label)
        # torch.compile keeps what it made with a function's code, and each call looks through all of that: so each its own.
        forward.__code__ = forward.__code__.replace()
        self.forward = MODES[mode](forward)

    def step(self):
        loss = self.forward(self.data, self.label)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss

    def losses(self, count):
        return [self.step().item() for _ in range(count)]


def ways(workload, modes=MODES):
    """What makes a Peer each: (mode, layout)."""
    return [(mode, layout) for layout in workload.layouts for mode in modes]


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("workloads", nargs="*", metavar="WORKLOAD", help="ids or names, such as C5 or gpt; default all")
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--steps", type=int, default=50)
    options = options.parse_args()
    torch.set_num_threads(options.threads)
    print(f"PyTorch {torch.__version__}, {torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}")
    for workload in find_workloads(options.workloads):
        for mode, layout in ways(workload):
            peer = Peer(workload, mode, layout)
            times = times_ms(peer.step, options.steps)
            print(f"{workload.id:3} {peer.name:42} median {statistics.median(times):8.3f} ms   min {min(times):8.3f} ms",
                  flush=True)


if __name__ == "__main__":
    main()
