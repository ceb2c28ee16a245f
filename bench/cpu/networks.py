"""The networks that bench/cpu trains, in PyTorch, and batches of random data for them."""
import torch
import torch.nn.functional as F
from torch import nn


def mlp(*widths):
    layers = []
    for width, next_width in zip(widths, widths[1:]):
        layers += [nn.Linear(width, next_width), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class MnistCnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3)
        self.fc1, self.fc2 = nn.Linear(64 * 12 * 12, 128), nn.Linear(128, 10)

    def forward(self, image):
        x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(image)))), 2)
        return self.fc2(F.relu(self.fc1(torch.flatten(x, 1))))


def convolution(channels, outputs, size, stride=1):
    return nn.Conv2d(channels, outputs, size, stride, padding=size // 2, bias=False)


class Basic(nn.Module):
    """Two 3x3 convolutions beside a shortcut, which a 1x1 convolution fits where channels or stride differ."""
    expansion = 1

    def __init__(self, channels, width, stride):
        super().__init__()
        self.conv1, self.bn1 = convolution(channels, width, 3, stride), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = convolution(width, width, 3), nn.BatchNorm2d(width)
        self.shortcut = shortcut(channels, width, stride)
        nn.init.zeros_(self.bn2.weight)

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


class Bottleneck(nn.Module):
    """1x1, 3x3 with the stride, 1x1 to four times the width."""
    expansion = 4

    def __init__(self, channels, width, stride):
        super().__init__()
        self.conv1, self.bn1 = convolution(channels, width, 1), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = convolution(width, width, 3, stride), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = convolution(width, 4 * width, 1), nn.BatchNorm2d(4 * width)
        self.shortcut = shortcut(channels, 4 * width, stride)
        nn.init.zeros_(self.bn3.weight)

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        return F.relu(self.bn3(self.conv3(y)) + self.shortcut(x))


def shortcut(channels, outputs, stride):
    if stride == 1 and channels == outputs:
        return nn.Identity()
    return nn.Sequential(convolution(channels, outputs, 1, stride), nn.BatchNorm2d(outputs))


class ResNet(nn.Module):
    """He et al. 2015 with the stride in the 3x3 convolution. A small image has a 3x3 stem and no pooling (their section 4.2).

    The last norm of each block starts at 0 (Goyal et al. 2017). Started at 1, the gradients of a ResNet-50 in float32 are off by
    2 % to 4 %, whoever computes them, and no two loss curves agree to 1e-3 after the first step.
    """

    def __init__(self, block, counts, classes, small_images=False):
        super().__init__()
        stem = [convolution(3, 64, 3) if small_images else convolution(3, 64, 7, 2), nn.BatchNorm2d(64), nn.ReLU()]
        self.stem = nn.Sequential(*stem, *([] if small_images else [nn.MaxPool2d(3, 2, 1)]))
        blocks, channels = [], 64
        for stage, count in enumerate(counts):
            for i in range(count):
                blocks.append(block(channels, 64 << stage, 2 if stage > 0 and i == 0 else 1))
                channels = block.expansion * (64 << stage)
        self.blocks, self.head = nn.Sequential(*blocks), nn.Linear(channels, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, image):
        x = F.adaptive_avg_pool2d(self.blocks(self.stem(image)), 1)
        return self.head(torch.flatten(x, 1))


class CausalAttention(nn.Module):
    """Of q, k, v, each [batch, heads, length, width of a head]."""

    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class Block(nn.Module):
    """One pre-norm transformer block with causal attention; x is [batch, length, width]."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.mix = CausalAttention()

    def attention(self, x):
        batch, length, width = x.shape
        q, k, v = (part.reshape(batch, length, self.heads, width // self.heads).transpose(1, 2)
                   for part in self.qkv(x).split(width, dim=-1))
        return self.out(self.mix(q, k, v).transpose(1, 2).reshape(batch, length, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, vocabulary, length, layers, heads, width):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        return self.head(self.norm(self.blocks(x)))


def generator():
    return torch.Generator().manual_seed(7)


def rows(*shape, classes=10):
    """Normal numbers and a class for each row."""
    g = generator()
    return torch.randn(*shape, generator=g), torch.randint(0, classes, (shape[0],), generator=g)


def token_ids(batch, length, vocabulary):
    """Ids, and for each the one that follows."""
    ids = torch.randint(0, vocabulary, (batch, length + 1), generator=generator())
    return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
