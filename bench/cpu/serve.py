"""A process that keeps what gcomp is compared with between turns. bench/cpu/contenders.py starts and drives one for each workload
and instruction set, since the variables that hold libraries to a set must be there before those load.

    python serve.py torch WORKLOAD THREADS
    python serve.py onnxruntime MODEL.onnx DATA.npz THREADS OUTPUT.npz

A request is a line of JSON on stdin, {"do": NAME, ...}, and so is its answer on stdout, {"error": TEXT} where it failed. Whatever
libraries print goes to stderr.
"""
import json
import os
import sys
import traceback

from machine import instruction_sets
from times import times_ms


class Torch:
    def __init__(self, name, threads, precision):
        import torch

        import peers
        from workloads import WORKLOADS

        torch.set_num_threads(int(threads))
        restrain_compiler()
        self.torch, self.peers, self.workload, self.precision = torch, peers, WORKLOADS[name], precision
        self.made = {}

    def describe(self):
        return {"version": self.torch.__version__, "threads": self.torch.get_num_threads(),
                "capability": self.torch.backends.cpu.get_cpu_capability()}

    def losses(self, count):
        return {"losses": self.peers.Peer(self.workload, "eager", "nchw", self.precision).losses(count)}

    def turn(self, mode, layout, steps, warm_up, seconds):
        if (mode, layout) not in self.made:
            self.made[mode, layout] = self.peers.Peer(self.workload, mode, layout, self.precision)
        peer = self.made[mode, layout]
        try:
            return {"name": peer.name, "ms": times_ms(peer.step, steps, warm_up, seconds)}
        except Exception:
            del self.made[mode, layout]  # and the memory that it holds
            raise


class OnnxRuntime:
    """A forward pass with all optimizations; inputs and outputs stay where they are in memory."""

    def __init__(self, model, data, threads, output):
        import numpy as np
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = int(threads), 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        names = [value.name for value in session.get_inputs()]
        outputs = [value.name for value in session.get_outputs()]
        with np.load(data) as file:
            arrays = {name: file[name] for name in names}
        first = session.run(outputs, arrays)
        np.savez(output, **dict(zip(outputs, first)))
        self.version = onnxruntime.__version__
        in_place = onnxruntime.OrtValue.ortvalue_from_numpy
        self.memory = [in_place(arrays[name]) for name in names] + [in_place(value) for value in first]
        binding = session.io_binding()
        for name, value in zip(names, self.memory):
            binding.bind_ortvalue_input(name, value)
        for name, value in zip(outputs, self.memory[len(names):]):
            binding.bind_ortvalue_output(name, value)
        self.run = lambda: session.run_with_iobinding(binding)

    def describe(self):
        return {"version": self.version}

    def turn(self, steps, warm_up, seconds):
        return {"name": "onnxruntime", "ms": times_ms(self.run, steps, warm_up, seconds)}


def restrain_compiler():
    """torch.compile's vectors follow ATEN_CPU_CAPABILITY, yet its C++ compiler is told -march=native, on a wider machine too."""
    narrow = os.environ.get("ATEN_CPU_CAPABILITY") == "avx2" and "avx512" in instruction_sets()
    import torch._inductor.config as config

    if narrow and hasattr(config.cpp, "march"):
        config.cpp.march = "x86-64-v3"


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    server = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if server is None:
                server = {"torch": Torch, "onnxruntime": OnnxRuntime}[sys.argv[1]](*sys.argv[2:])
            answer = getattr(server, request.pop("do"))(**request)
        except Exception as error:  # whatever a library throws is the answer
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
