#!/usr/bin/env python3
"""decode_rate.py FOLDER --program build/bin/decode_rate: images a second of gcomp and of PyTorch's DataLoader, in turns within one run.

Both decode JPEGs, crop at random and resize to 224 with the bilinear antialiased filter, flip half of them and normalise to float32
[3, 224, 224]. PyTorch's side has two forms, of which the best with its best number of workers counts: Pillow's images through
torchvision.transforms, as its documentation and examples have it, and torchvision.io's decoder with tensors through transforms.v2.
"""

import argparse
import statistics
import subprocess
import time

import torch
import torchvision
from torchvision import transforms
from torchvision.transforms import v2

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def pillow_images(folder):
    return torchvision.datasets.ImageFolder(
        folder,
        transforms.Compose(
            [
                transforms.RandomResizedCrop(224),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize(MEAN, DEVIATION),
            ]
        ),
    )


def tensor_images(folder):
    def load(path):
        return torchvision.io.decode_jpeg(torchvision.io.read_file(path), mode=torchvision.io.ImageReadMode.RGB)

    transform = v2.Compose(
        [
            v2.RandomResizedCrop(224, antialias=True),
            v2.RandomHorizontalFlip(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(MEAN, DEVIATION),
        ]
    )
    return torchvision.datasets.ImageFolder(folder, transform, loader=load)


class Endless(torch.utils.data.Sampler):
    def __init__(self, count):
        self.count = count

    def __iter__(self):
        while True:
            yield from torch.randperm(self.count).tolist()


def peer_rate(images, workers, seconds):
    """Images a second once the workers are under way."""
    loader = torch.utils.data.DataLoader(images, 64, sampler=Endless(len(images)), num_workers=workers, prefetch_factor=4 if workers else None)
    batches = iter(loader)
    for _ in range(2 + 2 * workers):
        next(batches)
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        count += len(next(batches)[0])
    rate = count / (time.perf_counter() - start)
    del batches
    return rate


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--program", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--workers", type=int, nargs="*", default=[0, 1, 2, 3, 4])
    arguments = parser.parse_args()
    sides = {}
    for threads in (1, 2):
        command = [arguments.program, arguments.folder, str(threads), str(arguments.seconds)]
        sides[f"gcomp, {threads} threads"] = lambda command=command: float(subprocess.check_output(command))
    for name, make in (("Pillow", pillow_images), ("torchvision.io, v2", tensor_images)):
        images = make(arguments.folder)
        for workers in arguments.workers:
            sides[f"PyTorch, {name}, {workers} workers"] = lambda images=images, workers=workers: peer_rate(images, workers, arguments.seconds)
    rates = {name: [] for name in sides}
    for _ in range(arguments.rounds):
        for name, measure in sides.items():
            rates[name].append(measure())
    print(f"torch {torch.__version__}, torchvision {torchvision.__version__}; images a second, median of {arguments.rounds} rounds\n")
    print("| | median | each |\n|---|---|---|")
    for name, all_rates in rates.items():
        print(f"| {name} | {statistics.median(all_rates):.0f} | {', '.join(f'{rate:.0f}' for rate in all_rates)} |")
    best = max((name for name in rates if name.startswith("PyTorch")), key=lambda name: statistics.median(rates[name]))
    ratio = statistics.median(rates["gcomp, 2 threads"]) / statistics.median(rates[best])
    print(f"\ngcomp with 2 threads / {best}: {ratio:.2f}")


main()
