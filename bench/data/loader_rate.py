#!/usr/bin/env python3
"""loader_rate.py FOLDER [--gcomp build/bin/gcomp]: images a second of gcomp's loader and of PyTorch's DataLoader, in turns within one run.

Both hand batches of 64 to one thread: JPEGs decoded, cropped at random and resized to 224 with the bilinear antialiased filter, half of
them flipped. PyTorch's workers also make float32 of them and normalise; gcomp's batches are bytes, of which the first kernels of the step
make normalised floats. Therefore two comparisons: bytes with bytes, and a whole training of gcomp (which normalises, in a step that does
hardly more) with PyTorch's loader alone. PyTorch's side has two forms, of which the best with its best number of workers counts: Pillow's
images through torchvision.transforms, as its documentation and examples have it, and torchvision.io's decoder with tensors through
transforms.v2.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time
import warnings

import numpy as np
import onnx
import torch
import torchvision
from onnx import TensorProto, helper, numpy_helper
from torchvision import transforms
from torchvision.transforms import v2

MEAN, DEVIATION, BATCH = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225), 64


def pillow_images(folder, normalised):
    floats = [transforms.ToTensor(), transforms.Normalize(MEAN, DEVIATION)] if normalised else [transforms.PILToTensor()]
    return torchvision.datasets.ImageFolder(
        folder, transforms.Compose([transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), *floats])
    )


def tensor_images(folder, normalised):
    def load(path):
        return torchvision.io.decode_jpeg(torchvision.io.read_file(path), mode=torchvision.io.ImageReadMode.RGB)

    floats = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, DEVIATION)] if normalised else []
    transform = v2.Compose([v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip(), *floats])
    return torchvision.datasets.ImageFolder(folder, transform, loader=load)


class Endless(torch.utils.data.Sampler):
    def __init__(self, count):
        self.count = count

    def __iter__(self):
        while True:
            yield from torch.randperm(self.count).tolist()


def peer_rate(images, workers, seconds):
    """Images a second once the workers are under way."""
    loader = torch.utils.data.DataLoader(images, BATCH, sampler=Endless(len(images)), num_workers=workers, prefetch_factor=4 if workers else None)
    batches = iter(loader)
    for _ in range(2 + 2 * workers):
        next(batches)
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        count += len(next(batches)[0])
    rate = count / (time.perf_counter() - start)
    del batches
    return rate


def result_of(command):
    return json.loads(subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True).stdout)


def loader_rate(gcomp, folder, workers, seconds):
    command = [gcomp, "data", "bench", folder, "--augment", "random_resized_crop(224), hflip", "--batch", BATCH, "--workers", workers]
    return result_of([*command, "--seconds", seconds, "--json"])["rows_per_second"]


def mean_colours_model(path, classes):
    """The scores of an image from its mean colours: a step that does little more than read its images."""
    head = np.random.RandomState(0).standard_normal((3, classes)).astype(np.float32)
    nodes = [
        helper.make_node("GlobalAveragePool", ["image"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["colours"]),
        helper.make_node("MatMul", ["colours", "head"], ["logits"]),
    ]
    graph = helper.make_graph(
        nodes,
        "mean_colours",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, 224, 224])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", classes])],
        [numpy_helper.from_array(head, "head")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def training_rate(gcomp, model, folder, workers, seconds):
    """Images a second of gcomp train, by its steps' own times, without the first ones."""
    with tempfile.TemporaryDirectory() as scratch:
        run = pathlib.Path(scratch) / "run"
        command = [gcomp, "train", model, "--data", folder, "--augment", "random_resized_crop(224), hflip, normalize(imagenet)"]
        command += ["--loss", "cross_entropy", "--batch", BATCH, "--epochs", 10000, "--max-time", f"{seconds + 1}s", "--workers", workers]
        result_of([*command, "--device", "cpu", "--run-dir", run, "--json"])
        steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    times = [BATCH / step["rows_per_second"] for step in steps if "data_wait" in step][6:]
    return BATCH * len(times) / sum(times)


def best_of(rates, kind, of_rounds):
    """The side with the highest rate, and that rate."""
    return max(((of_rounds(each), name) for name, each in rates.items() if name.startswith(kind)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--gcomp", default="build/bin/gcomp")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--workers", type=int, nargs="*", default=[0, 1, 2, 3, 4], help="of PyTorch")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", message="This DataLoader will create")  # more workers than processors are asked for on purpose
    sides, seconds = {}, arguments.seconds
    model = pathlib.Path(tempfile.mkdtemp()) / "mean_colours.onnx"
    mean_colours_model(model, len(next(os.walk(arguments.folder))[1]))
    for workers in (1, 2):
        sides[f"gcomp bytes, {workers} workers"] = lambda workers=workers: loader_rate(arguments.gcomp, arguments.folder, workers, seconds)
        sides[f"gcomp train, {workers} workers"] = lambda workers=workers: training_rate(arguments.gcomp, model, arguments.folder, workers, seconds)
    for form, normalised in (("bytes", False), ("floats", True)):
        for name, make in (("Pillow", pillow_images), ("torchvision.io, v2", tensor_images)):
            images = make(arguments.folder, normalised)
            for workers in arguments.workers:
                sides[f"PyTorch {form}, {name}, {workers} workers"] = lambda images=images, workers=workers: peer_rate(images, workers, seconds)
    rates = {name: [] for name in sides}
    loads = [os.getloadavg()[0]]
    for _ in range(arguments.rounds):
        for name, measure in sides.items():
            rates[name].append(measure())
        loads.append(os.getloadavg()[0])
    print(f"torch {torch.__version__}, torchvision {torchvision.__version__}, {os.cpu_count()} processors; load before the run {loads[0]:.1f}")
    print(f"images a second, median of {arguments.rounds} rounds\n\n| | median | each |\n|---|---|---|")
    for name, all_rates in rates.items():
        print(f"| {name} | {statistics.median(all_rates):.0f} | {', '.join(f'{rate:.0f}' for rate in all_rates)} |")
    for of_rounds, word in ((statistics.median, "medians"), (max, "best rounds")):
        print(f"\nby {word}:")
        for mine, peer in (("gcomp bytes", "PyTorch bytes"), ("gcomp bytes", "PyTorch floats"), ("gcomp train", "PyTorch floats")):
            (our_rate, ours), (their_rate, theirs) = best_of(rates, mine, of_rounds), best_of(rates, peer, of_rounds)
            print(f"{ours} / {theirs}: {our_rate:.0f} / {their_rate:.0f} = {our_rate / their_rate:.2f}")


main()
