"""Exports the workloads to ONNX without their weights, on a machine with PyTorch and onnx; what comes out is small enough to carry.

    python make_models.py FOLDER [--size full|smoke] [WORKLOAD...]       (needs torch, onnx, onnxscript, numpy)

FOLDER gets NAME.onnx, whose weights lie in a file NAME.weights that is not written, and NAME.json: where in that file each weight
lies and how it is drawn. fill_weights.py writes NAME.weights and the batch on the machine with the GPU.
"""
import argparse
import json
import pathlib

import onnx
import torch

from networks import initial_network, roles_of
from drawing import draw_batch
from workloads import WORKLOADS

ALIGNMENT = 4096
EXPORTED_ROWS = 2  # of the example batch; the model's batch is symbolic


def export(workload, size, path):
    """The ONNX model with every node and initializer, weights inside."""
    network = initial_network(workload, size).eval()
    inputs, _ = draw_batch(workload, size, EXPORTED_ROWS)
    # Unoptimized: the exporter would fold batch norms into convolutions, and copy the tied head of GPT-2.
    torch.onnx.export(network, tuple(map(torch.from_numpy, inputs.values())), str(path), dynamo=True, optimize=False,
                      external_data=False, verbose=False, input_names=list(inputs), output_names=["output"],
                      dynamic_shapes=({0: torch.export.Dim("batch")},) * len(inputs))
    model = onnx.load(str(path))
    for node in list(model.graph.node) + [n for f in model.functions for n in f.node]:
        node.ClearField("metadata_props")  # stack traces, most of the file's nodes
    return network, model


def take_out_weights(network, model, location):
    """Replaces each weight by a place in the file `location`; gives the list of them."""
    roles, weights, offset = roles_of(network), [], 0
    state = network.state_dict()
    for tensor in model.graph.initializer:
        if tensor.name not in roles:
            continue
        shape = list(tensor.dims)
        if shape != list(state[tensor.name].shape) or tensor.data_type != onnx.TensorProto.FLOAT:
            raise SystemExit(f"make_models.py: {tensor.name} was exported as another tensor: {shape}")
        size = 4 * state[tensor.name].numel()
        weights.append({"name": tensor.name, "role": roles[tensor.name], "shape": shape, "offset": offset, "bytes": size})
        for field in ("raw_data", "float_data", "external_data"):
            tensor.ClearField(field)
        for key, value in (("location", location), ("offset", offset), ("length", size)):
            tensor.external_data.add(key=key, value=str(value))
        tensor.data_location = onnx.TensorProto.EXTERNAL
        offset = -(-(offset + size) // ALIGNMENT) * ALIGNMENT
    missing = sorted(set(roles) - {w["name"] for w in weights})
    if missing:
        raise SystemExit(f"make_models.py: the exporter left no initializer called {', '.join(missing)}")
    return weights


def write_model(workload, size, folder):
    path = folder / f"{workload.name}.onnx"
    network, model = export(workload, size, path)
    weights = take_out_weights(network, model, f"{workload.name}.weights")
    path.write_bytes(model.SerializeToString())
    record = {"workload": workload.name, "size": size, "weights": weights}
    path.with_suffix(".json").write_text(json.dumps(record) + "\n")
    print(f"{path}: {path.stat().st_size / 1024:.0f} KiB, {sum(w['bytes'] for w in weights) / 2**20:.1f} MiB of weights left out", flush=True)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", type=pathlib.Path)
    options.add_argument("workloads", nargs="*", metavar="WORKLOAD")
    options.add_argument("--size", choices=("full", "smoke"), default="full")
    options = options.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in options.workloads or WORKLOADS:
        write_model(WORKLOADS[name], options.size, options.folder)


if __name__ == "__main__":
    main()
