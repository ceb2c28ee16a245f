"""C1 to C10, which bench/cpu times: network, one fixed batch, loss and optimizer, for PyTorch and as gcomp's options.

Random data and weights under fixed seeds. The batch stays the same in every step, so that only the step itself is timed.
"""
import dataclasses
import typing

import torch
import torch.nn.functional as F
from torch import nn

from networks import Basic, Bottleneck, Gpt, MnistCnn, ResNet, mlp, rows, token_ids

BOTH_LAYOUTS = ("nchw", "channels_last")


@dataclasses.dataclass(frozen=True)
class Workload:
    id: str
    name: str
    title: str
    network: typing.Callable[[], nn.Module]
    batch: typing.Callable[[], tuple]  # (input, label)
    input_name: str
    optimizer: str  # "adam" or "sgd"
    learning_rate: float
    momentum: float = 0.0  # of sgd
    layouts: tuple = ("nchw",)  # memory formats worth timing in PyTorch

    @property
    def batch_rows(self):
        return len(self.batch()[1])

    @property
    def rule(self):
        """For a reader: "SGD with momentum"."""
        return {"adam": "Adam", "sgd": "SGD with momentum" if self.momentum else "SGD"}[self.optimizer]

    def peer_name(self, mode, layout):
        return f"PyTorch {mode}" + (f", {layout}" if len(self.layouts) > 1 else "")

    def gcomp_options(self):
        """Of its training step; a forward pass has none of them."""
        momentum = ["--momentum", self.momentum] if self.momentum else []
        return ["--loss", "cross_entropy", "--optimizer", self.optimizer, "--lr", self.learning_rate, *momentum]


ALL = (
    Workload("C1", "mlp_tiny", "MLP 32-64-64-8, batch 32", lambda: mlp(32, 64, 64, 8), lambda: rows(32, 32, classes=8), "x", "adam",
             1e-3),
    Workload("C2", "mlp_small", "MLP 784-128-10, batch 64", lambda: mlp(784, 128, 10), lambda: rows(64, 784), "x", "adam", 1e-3),
    Workload("C3", "mlp", "MLP 784-512-512-10, batch 128", lambda: mlp(784, 512, 512, 10), lambda: rows(128, 784), "x", "adam",
             1e-3),
    Workload("C4", "mlp_large", "MLP 1024-4096-4096-1024, batch 256", lambda: mlp(1024, 4096, 4096, 1024),
             lambda: rows(256, 1024, classes=1024), "x", "adam", 1e-4),
    Workload("C5", "mnist_cnn", "MNIST CNN, batch 64", MnistCnn, lambda: rows(64, 1, 28, 28), "image", "sgd", 1e-2,
             layouts=BOTH_LAYOUTS),
    Workload("C6", "resnet18_cifar", "ResNet-18 for 32x32, batch 32", lambda: ResNet(Basic, (2, 2, 2, 2), 10, small_images=True),
             lambda: rows(32, 3, 32, 32), "image", "sgd", 1e-2, 0.9, BOTH_LAYOUTS),
    Workload("C7", "resnet18", "ResNet-18, 224x224, batch 16", lambda: ResNet(Basic, (2, 2, 2, 2), 1000),
             lambda: rows(16, 3, 224, 224, classes=1000), "image", "sgd", 1e-2, 0.9, BOTH_LAYOUTS),
    Workload("C8", "resnet50", "ResNet-50, 224x224, batch 8", lambda: ResNet(Bottleneck, (3, 4, 6, 3), 1000),
             lambda: rows(8, 3, 224, 224, classes=1000), "image", "sgd", 1e-2, 0.9, BOTH_LAYOUTS),
    Workload("C9", "char_gpt", "GPT 4 layers, d 128, 4 heads, 65 characters, batch 12, length 64",
             lambda: Gpt(vocabulary=65, length=64, layers=4, heads=4, width=128), lambda: token_ids(12, 64, 65), "ids", "adam",
             3e-4),
    Workload("C10", "gpt", "GPT 4 layers, d 256, 8 heads, batch 8, length 128",
             lambda: Gpt(vocabulary=512, length=128, layers=4, heads=8, width=256), lambda: token_ids(8, 128, 512), "ids", "adam",
             3e-4),
)
WORKLOADS = {w.name: w for w in ALL}


def find_workloads(texts):
    """By id or name, in the order of the table; all where nothing is asked for. Throws SystemExit for what there is not."""
    known = {key: w for w in ALL for key in (w.id, w.id.lower(), w.name)}
    unknown = [text for text in texts if text not in known]
    if unknown:
        raise SystemExit(f"no workload {', '.join(unknown)}; there are {', '.join(f'{w.id} {w.name}' for w in ALL)}")
    chosen = {known[text].name for text in texts}
    return [w for w in ALL if not texts or w.name in chosen]


def initial_network(workload):
    """PyTorch's initial weights under seed 0, every one-dimensional parameter moved off its constant start.

    The ONNX exporter may merge initializers of equal value, such as the ones and zeros of all norms, into one.
    """
    torch.manual_seed(0)
    network = workload.network()
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.ndim == 1:
                parameter += 0.05 * torch.randn(parameter.shape)
    return network


def loss_of(logits, label):
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), label.reshape(-1))
