"""Weights and batches out of seeds, the same everywhere. Needs numpy alone."""
import zlib

import numpy as np


def generator(name):
    return np.random.Generator(np.random.Philox(key=zlib.crc32(name.encode())))


def draw_weight(name, shape, role):
    """Initial values by the parameter's name: norm scales and running variances 1, running means 0, all else N(0, 0.02)."""
    if role != "normal":
        return np.full(shape, {"ones": 1, "zeros": 0}[role], np.float32)
    return generator(name).standard_normal(shape, np.float32) * np.float32(0.02)


def draw(name, shape, how):
    if how == "normal":
        return generator(name).standard_normal(shape, np.float32)
    return generator(name).integers(0, how, shape, np.int64)


def draw_batch(workload, size, batch=None):
    """(inputs by name, label) of one batch."""
    settings, batch = workload.size(size).settings, batch or workload.size(size).batch
    inputs = {name: draw(f"{workload.name}/{name}", (batch, *row), how) for name, (row, how) in workload.inputs(settings).items()}
    row, how = workload.label(settings)
    return inputs, draw(f"{workload.name}/label", (batch, *row), how)
