"""PyTorch's training step on the workloads, eager and compiled: loss, backward and optimizer, the batch resident in memory.

    python peers.py [--threads 2] [--steps 50] [WORKLOAD...]       (needs torch)

A Peer keeps its network between measurements, so that bench/cpu/compare.py can take turns between gcomp and every peer.
"""
import argparse
import statistics
import time

import torch

from workloads import WORKLOADS, initial_network, loss_of

OPTIMIZERS = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}
MODES = {
    "eager": lambda forward: forward,
    "compile": torch.compile,
    "compile max-autotune": lambda forward: torch.compile(forward, mode="max-autotune"),
}


class Peer:
    """One way in which PyTorch can run a workload: a mode of MODES, layout "nchw" or "channels_last"."""

    def __init__(self, workload, mode, layout):
        self.name = f"PyTorch {mode}" + (f", {layout}" if len(workload.layouts) > 1 else "")
        self.data, self.label = workload.batch()
        network = initial_network(workload).train()
        if layout == "channels_last":
            network = network.to(memory_format=torch.channels_last)
            self.data = self.data.to(memory_format=torch.channels_last)
        # fused: all parameters in one call, the fastest that PyTorch has on the CPU.
        self.optimizer = OPTIMIZERS[workload.optimizer](network.parameters(), lr=workload.learning_rate, fused=True)
        forward = lambda data, label: loss_of(network(data), label)
        self.forward = MODES[mode](forward)

    def step(self):
        loss = self.forward(self.data, self.label)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss

    def losses(self, count):
        return [self.step().item() for _ in range(count)]

    def times_ms(self, steps, warm_up=10):
        for _ in range(warm_up):
            self.step()
        times = []
        for _ in range(steps):
            start = time.perf_counter()
            self.step()
            times.append(1e3 * (time.perf_counter() - start))
        return times


def peers_of(workload):
    return [Peer(workload, mode, layout) for layout in workload.layouts for mode in MODES]


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("workloads", nargs="*", choices=[[], *WORKLOADS], default=[], metavar="WORKLOAD")
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--steps", type=int, default=50)
    options = options.parse_args()
    torch.set_num_threads(options.threads)
    print(f"PyTorch {torch.__version__}, {torch.get_num_threads()} threads")
    for name in options.workloads or WORKLOADS:
        for peer in peers_of(WORKLOADS[name]):
            times = peer.times_ms(options.steps)
            print(f"{name:10} {peer.name:42} median {statistics.median(times):8.3f} ms   min {min(times):8.3f} ms", flush=True)


if __name__ == "__main__":
    main()
