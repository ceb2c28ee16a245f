"""The three training steps that bench/cpu times: network, one fixed batch, loss and optimizer, each as PyTorch and as gcomp options.

Random data and weights under fixed seeds. The batch stays the same in every step, so that only the step itself is timed.
"""
import dataclasses
import typing

import torch
import torch.nn.functional as F
from torch import nn


@dataclasses.dataclass(frozen=True)
class Workload:
    name: str
    title: str
    network: typing.Callable[[], nn.Module]
    batch: typing.Callable[[], tuple]  # (input, label)
    input_name: str
    optimizer: str  # "adam" or "sgd"
    learning_rate: float
    layouts: tuple = ("nchw",)  # memory formats worth timing in PyTorch


def mlp():
    return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))


class MnistCnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3)
        self.fc1, self.fc2 = nn.Linear(64 * 12 * 12, 128), nn.Linear(128, 10)

    def forward(self, image):
        x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(image)))), 2)
        return self.fc2(F.relu(self.fc1(torch.flatten(x, 1))))


class Block(nn.Module):
    """One pre-norm transformer block with causal attention; x is [batch, length, width]."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attention(self, x):
        batch, length, width = x.shape
        q, k, v = (part.reshape(batch, length, self.heads, width // self.heads).transpose(1, 2)
                   for part in self.qkv(x).split(width, dim=-1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, vocabulary=512, width=256, heads=8, layers=4, length=128):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        return self.head(self.norm(self.blocks(x)))


def generator():
    return torch.Generator().manual_seed(7)


def images(*shape):
    g = generator()
    return torch.randn(*shape, generator=g), torch.randint(0, 10, (shape[0],), generator=g)


def token_ids(batch, length, vocabulary):
    rows = torch.randint(0, vocabulary, (batch, length + 1), generator=generator())
    return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()


WORKLOADS = {w.name: w for w in (
    Workload("mlp", "MLP 784-512-512-10, batch 128, Adam", mlp, lambda: images(128, 784), "x", "adam", 1e-3),
    Workload("mnist_cnn", "MNIST CNN, batch 64, SGD", MnistCnn, lambda: images(64, 1, 28, 28), "image", "sgd", 1e-2,
             ("nchw", "channels_last")),
    Workload("gpt", "GPT 4 layers, d 256, 8 heads, batch 8, length 128, Adam", Gpt, lambda: token_ids(8, 128, 512), "ids", "adam", 3e-4),
)}


def initial_network(workload):
    """PyTorch's initial weights under seed 0, every one-dimensional parameter moved off its constant start.

    The ONNX exporter merges initializers of equal value, such as the ones and zeros of all LayerNorms, into one.
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
