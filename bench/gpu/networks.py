"""The networks of workloads.py in PyTorch. Each function takes the settings of a Size."""
import torch
import torch.nn.functional as F
from torch import nn

from drawing import draw_weight


def mlp(inputs, hidden, classes):
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, classes))


class Attention(nn.Module):
    def __init__(self, width, heads, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (part.reshape(batch, length, self.heads, width // self.heads).transpose(1, 2)
                   for part in self.qkv(x).split(width, dim=-1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    """A transformer block; x is [batch, length, width]. The norms stand before the two parts (GPT, ViT) or after their sums (BERT)."""

    def __init__(self, width, heads, causal=False, norm_first=True, gelu="none"):
        super().__init__()
        self.norm_first, self.gelu = norm_first, gelu
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, causal)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        feed = lambda x: self.down(F.gelu(self.up(x), approximate=self.gelu))
        if self.norm_first:
            x = x + self.attention(self.norm1(x))
            return x + feed(self.norm2(x))
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + feed(x))


class Gpt(nn.Module):
    """GPT-2: the output head is the token table."""

    def __init__(self, vocabulary, length, width, heads, layers):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Parameter(torch.zeros(length, width))
        self.blocks = nn.Sequential(*(Block(width, heads, causal=True, gelu="tanh") for _ in range(layers)))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids):
        return F.linear(self.norm(self.blocks(self.tokens(ids) + self.positions)), self.tokens.weight)


class Bert(nn.Module):
    """BERT with one kind of token, no padding, a pooler over the first token and two classes."""

    def __init__(self, vocabulary, length, width, heads, layers):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions, self.kind = nn.Parameter(torch.zeros(length, width)), nn.Parameter(torch.zeros(width))
        self.norm = nn.LayerNorm(width)
        self.blocks = nn.Sequential(*(Block(width, heads, norm_first=False) for _ in range(layers)))
        self.pooler, self.classifier = nn.Linear(width, width), nn.Linear(width, 2)

    def forward(self, ids):
        x = self.blocks(self.norm(self.tokens(ids) + self.positions + self.kind))
        return self.classifier(torch.tanh(self.pooler(x[:, 0])))


class Vit(nn.Module):
    def __init__(self, side, patch, width, heads, layers, classes):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.zeros((side // patch) ** 2 + 1, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, image):
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.positions
        return self.head(self.norm(self.blocks(x))[:, 0])


class Bottleneck(nn.Module):
    def __init__(self, before, width, stride):
        super().__init__()
        after = 4 * width
        self.conv1, self.norm1 = nn.Conv2d(before, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.norm2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.norm3 = nn.Conv2d(width, after, 1, bias=False), nn.BatchNorm2d(after)
        self.project = stride != 1 or before != after
        if self.project:
            self.conv4, self.norm4 = nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)))
        y = F.relu(self.norm2(self.conv2(y)))
        kept = self.norm4(self.conv4(x)) if self.project else x
        return F.relu(self.norm3(self.conv3(y)) + kept)


class Resnet(nn.Module):
    """ResNet with bottlenecks, the stride in the 3x3 convolution as everyone trains it."""

    def __init__(self, side, width, blocks, classes):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width)
        layers, before = [], width
        for stage, count in enumerate(blocks):
            for i in range(count):
                layers.append(Bottleneck(before, width << stage, 2 if stage and not i else 1))
                before = 4 * (width << stage)
        self.blocks, self.head = nn.Sequential(*layers), nn.Linear(before, classes)

    def forward(self, image):
        x = F.max_pool2d(F.relu(self.norm(self.conv(image))), 3, 2, 1)
        return self.head(self.blocks(x).mean((2, 3)))


class Product(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(columns, columns))

    def forward(self, x):
        return x @ self.weight


class Row(nn.Module):
    """One parameter as long as a row, and an operation on rows."""

    def __init__(self, columns, operation):
        super().__init__()
        self.weight, self.operation = nn.Parameter(torch.zeros(columns)), operation

    def forward(self, x):
        return self.operation(x, self.weight)


class ScaledNorm(nn.Module):
    """The scale before the norm makes its gradient by x necessary."""

    def __init__(self, columns):
        super().__init__()
        self.scale, self.norm = nn.Parameter(torch.zeros(columns)), nn.LayerNorm(columns)

    def forward(self, x):
        return self.norm(x * self.scale)


NETWORKS = {
    "mlp": mlp, "gpt": Gpt, "bert": Bert, "vit": Vit, "resnet": Resnet, "matmul": Product, "layer_norm": ScaledNorm,
    "pointwise": lambda columns: Row(columns, lambda x, w: F.gelu(x + w, approximate="tanh") * torch.tanh(x)),
    "softmax": lambda columns: Row(columns, lambda x, w: torch.softmax(x * w, -1)),
    "transpose": lambda rows, columns: Row(rows, lambda x, w: F.gelu(x.transpose(1, 2) + w, approximate="tanh")),
}


def roles_of(network):
    """{name: role} of every parameter and running statistic, as drawing.draw_weight wants it."""
    roles = {name: "normal" for name, _ in network.named_parameters()}
    for prefix, module in network.named_modules():
        if isinstance(module, (nn.LayerNorm, nn.BatchNorm2d)):
            roles[f"{prefix}.weight"] = "ones"
        if isinstance(module, nn.BatchNorm2d):
            roles |= {f"{prefix}.running_mean": "zeros", f"{prefix}.running_var": "ones"}
    return roles


def initial_network(workload, size):
    """With the weights that every side starts from."""
    network = NETWORKS[workload.network](**workload.size(size).settings)
    state = network.state_dict()
    with torch.no_grad():
        for name, role in roles_of(network).items():
            state[name].copy_(torch.from_numpy(draw_weight(name, tuple(state[name].shape), role)))
    return network


def loss_of(loss, output, label):
    if loss == "mse":
        return F.mse_loss(output, label)
    return F.cross_entropy(output.reshape(-1, output.shape[-1]), label.reshape(-1))
