#!/usr/bin/env python3
"""feeding_cost.py [--gcomp build/bin/gcomp]: what feeding costs a training step, by gcomp train's own data_wait.

Two trainings on the CPU: the MLP 784-512-512-10 in batches of 64 from a folder of .npy on disk (f32, 200,000 rows, 630 MB), and
examples/char_gpt in batches of 32 windows from a file of 16-bit tokens; each read by the training's own thread and by two workers. The
wait is everything between asking for a batch and having it in the program's inputs.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = 50  # steps at the beginning


def mlp(path, sizes=(784, 512, 512, 10)):
    random, nodes, weights, value = np.random.RandomState(0), [], [], "x"
    for i, (size, following) in enumerate(zip(sizes, sizes[1:])):
        bound = size**-0.5
        weights.append(numpy_helper.from_array(random.uniform(-bound, bound, (size, following)).astype(np.float32), f"w{i}"))
        weights.append(numpy_helper.from_array(random.uniform(-bound, bound, following).astype(np.float32), f"b{i}"))
        last = i + 2 == len(sizes)
        nodes.append(helper.make_node("Gemm", [value, f"w{i}", f"b{i}"], ["logits" if last else f"s{i}"]))
        if not last:
            nodes.append(helper.make_node("Relu", [f"s{i}"], [f"h{i}"]))
        value = f"h{i}"
    graph = helper.make_graph(
        nodes,
        "mlp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", sizes[0]])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", sizes[-1]])],
        weights,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def write_arrays(folder, rows=200_000):
    folder.mkdir()
    random = np.random.RandomState(1)
    x = np.lib.format.open_memmap(folder / "x.npy", "w+", np.float32, (rows, 784))
    for begin in range(0, rows, 10_000):
        x[begin : begin + 10_000] = random.standard_normal((min(10_000, rows - begin), 784))
    np.save(folder / "label.npy", random.randint(0, 10, rows))


def measure(gcomp, model, data, batch, steps, workers, scratch):
    """Medians of a step and of its wait in microseconds, and the share of all waiting in all time, from step SKIPPED on."""
    run = scratch / "run"
    command = [gcomp, "train", model, "--data", data, "--loss", "cross_entropy", "--optimizer", "adam", "--batch", batch, "--steps", steps]
    command += ["--workers", workers, "--device", "cpu", "--run-dir", run, "--overwrite", "--quiet"]
    subprocess.run([str(word) for word in command], check=True, capture_output=True)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    taken = [line for line in lines if "data_wait" in line][SKIPPED:]
    seconds, waits = [batch / line["rows_per_second"] for line in taken], [line["data_wait"] for line in taken]
    return statistics.median(seconds) * 1e6, statistics.median(waits) * 1e6, sum(waits) / sum(seconds)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gcomp", default="build/bin/gcomp")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2000, help="of the MLP; the GPT takes a tenth")
    arguments = parser.parse_args()
    print(f"{os.cpu_count()} processors, load before the run {os.getloadavg()[0]:.1f}\n")
    print("| training | workers | step | wait | share of all time, each round |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)
        mlp(scratch / "mlp.onnx")
        write_arrays(scratch / "arrays")
        np.random.RandomState(2).randint(0, 65, 5_000_000).astype(np.uint16).tofile(scratch / "tokens.bin")
        gpt = ROOT / "examples/char_gpt/char_gpt.onnx"
        trainings = {
            "MLP 784-512-512-10, batch 64, .npy": (scratch / "mlp.onnx", scratch / "arrays", 64, arguments.steps),
            "char_gpt, batch 32, windows of 64 tokens": (gpt, f"tokens:{scratch / 'tokens.bin'}", 32, SKIPPED + arguments.steps // 10),
        }
        results = {(name, workers): [] for name in trainings for workers in (0, 2)}
        for _ in range(arguments.rounds):
            for name, workers in results:
                results[name, workers].append(measure(arguments.gcomp, *trainings[name], workers, scratch))
    for (name, workers), rounds in results.items():
        step, wait = (statistics.median(one[i] for one in rounds) for i in (0, 1))
        print(f"| {name} | {workers} | {step:.0f} us | {wait:.1f} us | {', '.join(f'{100 * one[2]:.2f} %' for one in rounds)} |")


main()
