"""Writes NAME.onnx and NAME.npz of workloads into a folder: gcomp and onnxruntime get the very graphs that PyTorch is timed on.

    python make_models.py FOLDER [WORKLOAD...]        (needs torch, onnx, onnxscript, numpy)

What is there and younger than these scripts is left as it is.
"""
import logging
import pathlib
import sys

import numpy as np
import onnx
import torch
from torch import nn

from workloads import find_workloads, initial_network

SOURCES = ("networks.py", "workloads.py", "make_models.py")


def batch_norms(network):
    return [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]


def settle_running_statistics(network, data):
    """Those of this batch, so that the inference form computes with numbers of a usual size."""
    for norm in batch_norms(network):
        norm.momentum = 1.0
    with torch.no_grad():
        network.train()(data)


def export(workload, folder):
    data, label = workload.batch()
    path = str(folder / f"{workload.name}.onnx")
    network = initial_network(workload)
    if batch_norms(network):
        settle_running_statistics(network, data)
    torch.onnx.export(network.eval(), (data,), path, dynamo=True, external_data=False, verbose=False,
                      input_names=[workload.input_name], output_names=["logits"], dynamic_shapes=({0: torch.export.Dim("batch")},),
                      optimize=not batch_norms(network))  # which would fold them into the convolutions
    model = onnx.load(path)
    for node in model.graph.node:
        node.ClearField("metadata_props")  # stack traces, most of the file's nodes
    np.savez(folder / f"{workload.name}.npz", **{workload.input_name: data.numpy()}, label=label.numpy())
    onnx.save(model, path)


def write_models(folder, workloads):
    folder.mkdir(parents=True, exist_ok=True)
    changed = max((pathlib.Path(__file__).parent / name).stat().st_mtime for name in SOURCES)
    for workload in workloads:
        files = [folder / f"{workload.name}.{kind}" for kind in ("onnx", "npz")]
        if not all(file.exists() and file.stat().st_mtime > changed for file in files):
            print(f"exporting {workload.id} {workload.name}", file=sys.stderr)
            export(workload, folder)


if __name__ == "__main__":
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    write_models(pathlib.Path(sys.argv[1]), find_workloads(sys.argv[2:]))
