"""Writes NAME.onnx and NAME.npz of every workload into a folder, so that gcomp trains the very graphs that PyTorch is timed on.

    python make_models.py FOLDER        (needs torch, onnx, onnxscript, numpy)
"""
import pathlib
import sys

import numpy as np
import onnx
import torch

from workloads import WORKLOADS, initial_network


def export(workload, folder):
    data, label = workload.batch()
    path = str(folder / f"{workload.name}.onnx")
    torch.onnx.export(initial_network(workload).eval(), (data,), path, dynamo=True, external_data=False, verbose=False,
                      input_names=[workload.input_name], output_names=["logits"], dynamic_shapes=({0: torch.export.Dim("batch")},))
    model = onnx.load(path)
    for node in model.graph.node:
        node.ClearField("metadata_props")  # stack traces, most of the file's nodes
    onnx.save(model, path)
    np.savez(folder / f"{workload.name}.npz", **{workload.input_name: data.numpy()}, label=label.numpy())


def write_models(folder):
    """Writes what is missing."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for workload in WORKLOADS.values():
        if not all((folder / f"{workload.name}.{kind}").exists() for kind in ("onnx", "npz")):
            export(workload, folder)


if __name__ == "__main__":
    write_models(sys.argv[1])
