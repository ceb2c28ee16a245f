"""Exports char_gpt.onnx: a GPT over 65 characters with PyTorch's and GPT-2's initial weights. Needs torch, onnx and onnxscript; it is
there already, and needed again only to change the model.

    python3 examples/char_gpt/make.py
"""
import pathlib

import onnx
import torch
from torch import nn
from torch.nn import functional

HERE = pathlib.Path(__file__).parent
CHARACTERS, LENGTH, LAYERS, HEADS, WIDTH = 65, 64, 4, 4, 128


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attn, self.proj = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.fc, self.out = nn.Linear(WIDTH, 4 * WIDTH, bias=False), nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (part.view(b, t, HEADS, c // HEADS).transpose(1, 2) for part in self.attn(self.ln_1(x)).split(WIDTH, 2))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.out(functional.gelu(self.fc(self.ln_2(x))))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(CHARACTERS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CHARACTERS, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                scale = 0.02 / (2 * LAYERS) ** 0.5 if name.endswith(("proj.weight", "out.weight")) else 0.02
                nn.init.normal_(parameter, std=scale)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln_f(x))


def without_chatter(path):
    """Drops stack traces and the like, which name paths of the machine that exported it."""
    model = onnx.load(path)
    for part in (*model.graph.node, *model.graph.value_info, *model.graph.input, *model.graph.output, *model.graph.initializer, model.graph, model):
        part.ClearField("metadata_props")
        part.ClearField("doc_string")
    onnx.save(model, path)


if __name__ == "__main__":
    torch.manual_seed(1)
    batch = torch.export.Dim("batch", min=2)
    torch.onnx.export(Gpt().eval(), (torch.zeros(4, LENGTH, dtype=torch.int64),), HERE / "char_gpt.onnx", input_names=["tokens"],
                      output_names=["logits"], dynamic_shapes=({0: batch},), dynamo=True, external_data=False)
    without_chatter(HERE / "char_gpt.onnx")
