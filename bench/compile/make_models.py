"""Models whose compilation is timed: GPTs of any number of layers, and chains and sums that a few lines declare.

    python bench/compile/make_models.py FOLDER [NAME...]        (needs onnx and numpy)

NAME is gptN (N layers, d 32), reluN, softmaxN (chains of N nodes), sumN (one Sum of N inputs), viewsN (a chain of N transposes and
reshapes), windowsN (N sums of a value with itself shifted), lstmN (one LSTM of N steps). Each is written to FOLDER/NAME.onnx.
"""
import pathlib
import re
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 18
D, HEADS, SEQUENCE, VOCABULARY = 32, 4, 16, 64


class Graph:
    """Nodes and initializers as they are added; a node is named by its output."""

    def __init__(self):
        self.nodes, self.initializers = [], []
        self.random = np.random.default_rng(0)

    def constant(self, name, values):
        self.initializers.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def weight(self, name, *shape, scale=0.02):
        return self.constant(name, (self.random.standard_normal(shape) * scale).astype(np.float32))

    def add(self, op, name, inputs, **attributes):
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=name, **attributes))
        return name

    def save(self, path, inputs, outputs):
        graph = helper.make_graph(self.nodes, path.stem, inputs, outputs, self.initializers)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
        onnx.save(model, path)


def linear(g, name, x, inner, outer):
    product = g.add("MatMul", f"{name}.product", [x, g.weight(f"{name}.weight", inner, outer)])
    return g.add("Add", name, [product, g.constant(f"{name}.bias", np.zeros(outer, np.float32))])


def norm(g, name, x):
    weight = g.constant(f"{name}.weight", np.ones(D, np.float32))
    return g.add("LayerNormalization", name, [x, weight, g.constant(f"{name}.bias", np.zeros(D, np.float32))], axis=-1)


def attention(g, name, x):
    packed = linear(g, f"{name}.qkv", x, D, 3 * D)
    parts = [f"{name}.q", f"{name}.k", f"{name}.v"]
    g.nodes.append(helper.make_node("Split", [packed, "thirds"], parts, name=f"{name}.split", axis=2))
    q, k, v = (g.add("Transpose", f"{part}.heads", [g.add("Reshape", f"{part}.split", [part, "heads"])],
                     perm=[0, 2, 3, 1] if part.endswith(".k") else [0, 2, 1, 3]) for part in parts)
    scores = g.add("Mul", f"{name}.scores", [g.add("MatMul", f"{name}.qk", [q, k]), "scale"])
    weights = g.add("Softmax", f"{name}.softmax", [g.add("Add", f"{name}.masked", [scores, "mask"])], axis=-1)
    mixed = g.add("Transpose", f"{name}.rows", [g.add("MatMul", f"{name}.mixed", [weights, v])], perm=[0, 2, 1, 3])
    return linear(g, f"{name}.out", g.add("Reshape", f"{name}.joined", [mixed, "rows"]), D, D)


def gelu(g, name, x):
    erf = g.add("Erf", f"{name}.erf", [g.add("Div", f"{name}.scaled", [x, "root_two"])])
    half = g.add("Mul", f"{name}.half", [x, "half"])
    return g.add("Mul", name, [half, g.add("Add", f"{name}.shifted", [erf, "one"])])


def gpt(path, layers):
    g = Graph()
    g.constant("thirds", np.array([D, D, D], np.int64))
    g.constant("heads", np.array([0, SEQUENCE, HEADS, D // HEADS], np.int64))
    g.constant("rows", np.array([0, SEQUENCE, D], np.int64))
    g.constant("mask", np.triu(np.full((SEQUENCE, SEQUENCE), -1e9, np.float32), 1))
    for name, value in (("scale", (D // HEADS) ** -0.5), ("root_two", 2 ** 0.5), ("half", 0.5), ("one", 1)):
        g.constant(name, np.float32(value))
    tokens = g.add("Gather", "tokens", [g.weight("wte", VOCABULARY, D), "ids"])
    x = g.add("Add", "embedded", [tokens, g.weight("wpe", SEQUENCE, D)])
    for layer in range(layers):
        name = f"h{layer}"
        x = g.add("Add", f"{name}.attended", [x, attention(g, f"{name}.attn", norm(g, f"{name}.ln1", x))])
        inner = gelu(g, f"{name}.gelu", linear(g, f"{name}.up", norm(g, f"{name}.ln2", x), D, 4 * D))
        x = g.add("Add", f"{name}.out", [x, linear(g, f"{name}.down", inner, 4 * D, D)])
    g.add("MatMul", "logits", [norm(g, "ln", x), g.weight("head", D, VOCABULARY)])
    g.save(path, [helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", SEQUENCE])],
           [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", SEQUENCE, VOCABULARY])])


def save_rows(g, path, last, width=16):
    """A model from x [batch, width] to `last`, of a shape that nothing declares."""
    g.save(path, [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", width])],
           [helper.make_tensor_value_info(last, TensorProto.FLOAT, None)])


def chain(path, length, op, **attributes):
    """A product, so that there is something to train, and `length` nodes one after another."""
    g = Graph()
    x = g.add("MatMul", "product", ["x", g.weight("w", 16, 16)])
    for i in range(length):
        x = g.add(op, f"n{i}", [x], **attributes)
    save_rows(g, path, x)


def wide_sum(path, inputs):
    g = Graph()
    x = g.add("MatMul", "product", ["x", g.weight("w", 16, 16)])
    shifted = [g.add("Add", f"a{i}", [x, g.constant(f"c{i}", np.float32(i))]) for i in range(inputs)]
    save_rows(g, path, g.add("Sum", "sum", shifted))


def views(path, length):
    g = Graph()
    g.constant("flat", np.array([-1], np.int64))
    g.constant("square", np.array([0, 4, 4], np.int64))
    x = g.add("Reshape", "square_x", [g.add("MatMul", "product", ["x", g.weight("w", 16, 16)]), "square"])
    for i in range(length):
        x = g.add("Transpose", f"n{i}", [x], perm=[1, 2, 0] if i % 2 else [0, 2, 1])
    save_rows(g, path, x)


def windows(path, length):
    g = Graph()
    for name, value in (("start", 1), ("end", 2**31), ("axis", 1)):
        g.constant(name, np.array([value], np.int64))
    g.constant("pads", np.array([0, 0, 0, 1], np.int64))
    x = g.add("MatMul", "product", ["x", g.weight("w", 16, 16)])
    for i in range(length):
        shifted = g.add("Pad", f"p{i}", [g.add("Slice", f"s{i}", [x, "start", "end", "axis"]), "pads"])
        x = g.add("Add", f"n{i}", [x, shifted])
    save_rows(g, path, x)


def lstm(path, steps):
    g = Graph()
    rows = g.add("Reshape", "rows", ["x", g.constant("split", np.array([0, steps, 16], np.int64))])
    sequence = g.add("Transpose", "sequence", [rows], perm=[1, 0, 2])
    weights = [g.weight("w", 1, 32, 16), g.weight("r", 1, 32, 8)]
    save_rows(g, path, g.add("LSTM", "lstm", [sequence, *weights], hidden_size=8), width=16 * steps)


MODELS = {
    "lstm": lstm,
    "gpt": gpt,
    "relu": lambda path, n: chain(path, n, "Relu"),
    "softmax": lambda path, n: chain(path, n, "Softmax", axis=-1),
    "sum": wide_sum,
    "views": views,
    "windows": windows,
}


def write(folder, name):
    kind, size = re.fullmatch(r"([a-z]+)(\d+)", name).groups()
    MODELS[kind](pathlib.Path(folder) / f"{name}.onnx", int(size))


if __name__ == "__main__":
    pathlib.Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    for each in sys.argv[2:] or ["gpt12", "gpt24", "gpt48", "gpt96", "gpt192"]:
        write(sys.argv[1], each)
