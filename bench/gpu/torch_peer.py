"""One way in which PyTorch runs one workload, timed in a process of its own: loss, backward and optimizer, the batch resident.

    python torch_peer.py WORKLOAD [--size full|smoke] [--mode eager|compile|...] [--precision f32|tf32|bf16]
                         [--layout nchw|channels_last] [--device cuda|cpu] [--steps 50] [--warmup 10] [--norms]

Prints one line of JSON: first losses, with --norms (not for graph) those of all gradients together, milliseconds of every timed step, seconds to the end of the first step, peak bytes.
"""
import argparse
import contextlib
import json
import time

import torch

from drawing import draw_batch
from networks import initial_network, loss_of
from workloads import COMPARED_LOSSES, PRECISIONS, WORKLOADS

MODES = ("eager", "compile", "reduce-overhead", "max-autotune", "graph")
OPTIMIZERS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}


def set_precision(precision):
    tf32 = precision != "f32"
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cudnn.benchmark = True


class Step:
    """A training step; __call__ gives its loss, on the device."""

    def __init__(self, options):
        workload, device = WORKLOADS[options.workload], torch.device(options.device)
        network = initial_network(workload, options.size).train().to(device)
        inputs, label = draw_batch(workload, options.size)
        self.inputs = [torch.from_numpy(array).to(device) for array in inputs.values()]
        self.label = torch.from_numpy(label).to(device)
        if options.layout == "channels_last":
            network = network.to(memory_format=torch.channels_last)
            self.inputs = [tensor.to(memory_format=torch.channels_last) for tensor in self.inputs]
        settings = {name: value for name, value in workload.optimizer.items() if name != "name"}
        # fused: all parameters in one launch. capturable: the step counter lives on the device, for whole-step graphs.
        if options.mode == "graph" and workload.optimizer["name"] != "sgd":
            settings["capturable"] = True
        self.optimizer = OPTIMIZERS[workload.optimizer["name"]](network.parameters(), fused=True, **settings)
        cast = torch.autocast(device.type, torch.bfloat16) if options.precision == "bf16" else contextlib.nullcontext()

        def forward(*inputs):
            with cast:
                output = network(*inputs)
            return loss_of(workload.loss, output.float(), self.label)

        compiled = {"eager": lambda f: f, "compile": torch.compile, "graph": torch.compile}
        self.forward = compiled.get(options.mode, lambda f: torch.compile(f, mode=options.mode))(forward)
        self.run, self.norms = self.plain, []
        self.wants_norms = options.norms
        if options.mode == "graph":
            self.capture()

    def plain(self):
        torch.compiler.cudagraph_mark_step_begin()
        loss = self.forward(*self.inputs)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if self.wants_norms:
            gradients = [p.grad for group in self.optimizer.param_groups for p in group["params"] if p.grad is not None]
            self.norms.append(torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in gradients])).item())
        self.optimizer.step()
        return loss

    def capture(self):
        """Loss, backward and optimizer as one CUDA graph. The steps on the side stream count as the first ones."""
        side, self.early = torch.cuda.Stream(), []
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(COMPARED_LOSSES):
                self.early.append(self.plain().item())
        torch.cuda.current_stream().wait_stream(side)
        self.optimizer.zero_grad(set_to_none=True)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.loss = self.forward(*self.inputs)
            self.loss.backward()
            self.optimizer.step()
        self.run = self.replay

    def replay(self):
        self.graph.replay()
        return self.loss

    def first_losses(self):
        if self.run == self.replay:
            return self.early
        return [self.run().item() for _ in range(COMPARED_LOSSES)]


def times_on_gpu(run, steps):
    """By events; the host runs ahead, as in training."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
    torch.cuda.synchronize()
    events[0].record()
    for event in events[1:]:
        run()
        event.record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) for a, b in zip(events, events[1:])]


def times_on_cpu(run, steps):
    times = []
    for _ in range(steps):
        start = time.perf_counter()
        run()
        times.append(1e3 * (time.perf_counter() - start))
    return times


def times_ms(run, steps, device):
    return times_on_gpu(run, steps) if torch.device(device).type == "cuda" else times_on_cpu(run, steps)


def measure(options):
    set_precision(options.precision)
    gpu = torch.device(options.device).type == "cuda"
    start = time.perf_counter()
    step = Step(options)
    losses = step.first_losses()
    first = time.perf_counter() - start
    step.wants_norms = False
    for _ in range(options.warmup):
        step.run()
    if gpu:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()  # what compiling and autotuning took
        torch.cuda.reset_peak_memory_stats()
    report = {"losses": losses, "first_steps_seconds": first, "times_ms": times_ms(step.run, options.steps, options.device),
              "version": f"PyTorch {torch.__version__}"}
    if step.norms:
        report["norms"] = step.norms
    if gpu:
        report |= {"allocated_bytes": torch.cuda.max_memory_allocated(), "reserved_bytes": torch.cuda.max_memory_reserved(),
                   "device": torch.cuda.get_device_name()}
    return report


def parse_options():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("workload", choices=WORKLOADS)
    options.add_argument("--size", choices=("full", "smoke"), default="full")
    options.add_argument("--mode", choices=MODES, default="eager")
    options.add_argument("--precision", choices=PRECISIONS, default="f32")
    options.add_argument("--layout", choices=("nchw", "channels_last"), default="nchw")
    options.add_argument("--device", default="cuda")
    options.add_argument("--steps", type=int, default=50)
    options.add_argument("--warmup", type=int, default=10)
    options.add_argument("--norms", action="store_true")
    return options.parse_args()


if __name__ == "__main__":
    print(json.dumps(measure(parse_options())))
