"""Writes what make_models.py left out: NAME.weights and the batch NAME.npz of every model in FOLDER. Needs numpy alone.

    python fill_weights.py FOLDER [WORKLOAD...]
"""
import pathlib
import sys

import numpy as np

from drawing import draw_batch, draw_weight
from workloads import WORKLOADS, read_record


def replace(path, write):
    """The file appears whole or not at all."""
    part = path.with_name(path.name + ".part")
    with part.open("wb") as file:
        write(file)
    part.rename(path)


def write_weights(file, weights):
    for weight in weights:
        file.seek(weight["offset"])
        file.write(draw_weight(weight["name"], weight["shape"], weight["role"]).tobytes())


def fill(folder, name):
    """Leaves alone what is there already."""
    folder = pathlib.Path(folder)
    record = read_record(folder, name)
    weights, batch = folder / f"{name}.weights", folder / f"{name}.npz"
    if not weights.exists():
        replace(weights, lambda file: write_weights(file, record["weights"]))
    if not batch.exists():
        inputs, label = draw_batch(WORKLOADS[name], record["size"])
        replace(batch, lambda file: np.savez(file, **inputs, label=label))


def main():
    folder = pathlib.Path(sys.argv[1])
    for name in sys.argv[2:] or sorted(path.stem for path in folder.glob("*.onnx")):
        fill(folder, name)
        print(f"{name}: {(folder / f'{name}.weights').stat().st_size / 2**20:.1f} MiB of weights, "
              f"{(folder / f'{name}.npz').stat().st_size / 2**20:.1f} MiB of batch", flush=True)


if __name__ == "__main__":
    main()
