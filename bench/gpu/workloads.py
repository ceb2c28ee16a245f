"""What bench/gpu times: networks, batches, losses and optimizers, as plain data that every side reads.

A training workload is timed as a whole step. A kernel workload is a step made so that one memory-bound kernel, or one product,
takes nearly all of it; of gcomp the kernels' own times count there. Weights and batches come from seeds, the same everywhere.
"""
import dataclasses
import json
import pathlib
import sys

PRECISIONS = ("f32", "tf32", "bf16")
COMPARED_LOSSES = 10
GCOMP_PRECISIONS = {"f32": [], "tf32": ["--tf32"], "bf16": ["--precision", "bf16"]}  # options of gcomp


@dataclasses.dataclass(frozen=True)
class Size:
    batch: int
    settings: dict  # arguments of the network


@dataclasses.dataclass(frozen=True)
class Workload:
    name: str
    title: str
    network: str  # in networks.py and jax_networks.py
    inputs: object  # settings -> {name: (shape of a row, draw)}; draw: "normal", or the exclusive upper bound of integers
    label: object  # settings -> (shape of a row, draw)
    loss: str
    optimizer: dict  # "name", "lr" and what differs from PyTorch's defaults
    full: Size
    smoke: Size
    layouts: tuple = ("nchw",)  # memory formats worth timing in PyTorch
    kernel: bool = False
    precisions: tuple = PRECISIONS

    def size(self, name):
        return {"full": self.full, "smoke": self.smoke}[name]


def adamw(rate):
    return {"name": "adamw", "lr": rate}


def rows_and_columns(settings):
    return {"x": ((settings["columns"],), "normal")}, ((settings["columns"],), "normal")


def kernel(name, title, full, smoke, optimizer=None, network=None, inputs=lambda s: rows_and_columns(s)[0],
           label=lambda s: rows_and_columns(s)[1], precisions=("f32",)):
    return Workload(name, title, network or name, inputs, label, "mse", optimizer or {"name": "sgd", "lr": 1e-3}, full, smoke,
                    kernel=True, precisions=precisions)


SQUARE = dict(inputs=lambda s: {"x": ((s["rows"], s["columns"]), "normal")}, label=lambda s: ((s["columns"], s["rows"]), "normal"))

WORKLOADS = {w.name: w for w in (
    Workload("mlp", "MLP 784-128-10, B 64, Adam", "mlp", lambda s: {"x": ((s["inputs"],), "normal")}, lambda s: ((), s["classes"]),
             "cross_entropy", {"name": "adam", "lr": 1e-3},
             Size(64, dict(inputs=784, hidden=128, classes=10)), Size(8, dict(inputs=20, hidden=16, classes=10))),
    Workload("gpt2", "GPT-2 124M, B 32, T 1024, AdamW", "gpt", lambda s: {"ids": ((s["length"],), s["vocabulary"])},
             lambda s: ((s["length"],), s["vocabulary"]), "cross_entropy", adamw(3e-4),
             Size(32, dict(vocabulary=50304, length=1024, width=768, heads=12, layers=12)),
             Size(2, dict(vocabulary=96, length=16, width=32, heads=2, layers=2))),
    Workload("bert_base", "BERT-base, 2 classes, B 32, T 512, AdamW", "bert", lambda s: {"ids": ((s["length"],), s["vocabulary"])},
             lambda s: ((), 2), "cross_entropy", adamw(2e-5),
             Size(32, dict(vocabulary=30522, length=512, width=768, heads=12, layers=12)),
             Size(2, dict(vocabulary=96, length=16, width=32, heads=2, layers=2))),
    Workload("resnet50", "ResNet-50, 224x224, B 256, SGD", "resnet", lambda s: {"image": ((3, s["side"], s["side"]), "normal")},
             lambda s: ((), s["classes"]), "cross_entropy", {"name": "sgd", "lr": 1e-2, "momentum": 0.9, "weight_decay": 1e-4},
             Size(256, dict(side=224, width=64, blocks=(3, 4, 6, 3), classes=1000)),
             Size(8, dict(side=64, width=4, blocks=(1, 1, 1, 1), classes=10)), layouts=("nchw", "channels_last")),
    Workload("vit_b_16", "ViT-B/16, 224x224, B 128, AdamW", "vit", lambda s: {"image": ((3, s["side"], s["side"]), "normal")},
             lambda s: ((), s["classes"]), "cross_entropy", adamw(1e-4),
             Size(128, dict(side=224, patch=16, width=768, heads=12, layers=12, classes=1000)),
             Size(2, dict(side=16, patch=8, width=32, heads=2, layers=2, classes=10))),
    kernel("matmul", "matmul 8192x8192x8192", Size(8192, dict(columns=8192)), Size(16, dict(columns=16)), precisions=PRECISIONS),
    kernel("pointwise", "gelu(x + b) * tanh(x), bias gradient, 16384x4096", Size(16384, dict(columns=4096)), Size(16, dict(columns=16))),
    kernel("softmax", "softmax of rows, forward and backward, 32768x4096", Size(32768, dict(columns=4096)), Size(16, dict(columns=16))),
    kernel("layer_norm", "layer norm, forward and backward, 16384x4096", Size(16384, dict(columns=4096)), Size(16, dict(columns=16))),
    kernel("transpose", "transpose, bias, gelu, 64 of 1024x1024", Size(64, dict(rows=1024, columns=1024)),
           Size(2, dict(rows=8, columns=16)), **SQUARE),
    kernel("adam", "Adam over 8192x8192, batch of 8 rows", Size(8, dict(columns=8192)), Size(4, dict(columns=16)),
           optimizer={"name": "adam", "lr": 1e-3}, network="matmul"),
)}


def read_record(folder, name):
    """What make_models.py wrote beside the model."""
    path = pathlib.Path(folder) / f"{name}.json"
    if not path.exists():
        sys.exit(f"{pathlib.Path(sys.argv[0]).name}: no {path}; make_models.py writes it, on a machine with PyTorch and onnx")
    return json.loads(path.read_text())
