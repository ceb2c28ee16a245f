"""The networks whose scaling is simulated and measured, as ONNX files whose weights are zero: no time depends on them.

    python bench/scale/make_models.py FOLDER [NAME...]        (needs onnx)

gpt2 (124M, 1,024 tokens), bert_base (128 tokens, 2 classes), resnet50 (224 x 224) as bench/gpu has them; mlp, cnn and gpt_small, which
two cores train in a moment. The weights of NAME.onnx lie in NAME.weights, a file of holes.
"""
import pathlib
import sys

import onnx
from onnx import TensorProto, helper

OPSET = 18
FLOATS = 4


class Network:
    """Nodes and initializers as they are added; a node is named by its output."""

    def __init__(self):
        self.nodes, self.initializers, self.offset = [], [], 0

    def weight(self, name, *shape):
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape, data_location=TensorProto.EXTERNAL)
        size = FLOATS
        for extent in shape:
            size *= extent
        tensor.external_data.add(key="offset", value=str(self.offset))
        tensor.external_data.add(key="length", value=str(size))
        self.offset = -(-(self.offset + size) // 4096) * 4096
        self.initializers.append(tensor)
        return name

    def constant(self, name, kind, shape, values):
        self.initializers.append(helper.make_tensor(name, kind, shape, values))
        return name

    def add(self, op, name, inputs, **attributes):
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=name, **attributes))
        return name

    def save(self, path, inputs, outputs):
        for tensor in self.initializers:
            if tensor.data_location == TensorProto.EXTERNAL:
                tensor.external_data.add(key="location", value=f"{path.stem}.weights")
        graph = helper.make_graph(self.nodes, path.stem, inputs, outputs, self.initializers)
        path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9).SerializeToString())
        with path.with_suffix(".weights").open("wb") as file:
            file.truncate(self.offset)


def info(name, kind, *shape):
    return helper.make_tensor_value_info(name, kind, ["batch", *shape])


def linear(n, name, x, inner, outer):
    product = n.add("MatMul", f"{name}.product", [x, n.weight(f"{name}.weight", inner, outer)])
    return n.add("Add", name, [product, n.weight(f"{name}.bias", outer)])


def norm(n, name, x, width):
    return n.add("LayerNormalization", name, [x, n.weight(f"{name}.weight", width), n.weight(f"{name}.bias", width)], axis=-1)


def attention(n, name, x, width):
    packed = linear(n, f"{name}.qkv", x, width, 3 * width)
    parts = [f"{name}.q", f"{name}.k", f"{name}.v"]
    n.nodes.append(helper.make_node("Split", [packed, "thirds"], parts, name=f"{name}.split", axis=2))
    q, k, v = (n.add("Transpose", f"{part}.heads", [n.add("Reshape", f"{part}.split", [part, "heads"])],
                     perm=[0, 2, 3, 1] if part.endswith(".k") else [0, 2, 1, 3]) for part in parts)
    scores = n.add("Mul", f"{name}.scores", [n.add("MatMul", f"{name}.qk", [q, k]), "scale"])
    if any(tensor.name == "mask" for tensor in n.initializers):
        scores = n.add("Add", f"{name}.masked", [scores, "mask"])
    weights = n.add("Softmax", f"{name}.softmax", [scores], axis=-1)
    mixed = n.add("Transpose", f"{name}.rows", [n.add("MatMul", f"{name}.mixed", [weights, v])], perm=[0, 2, 1, 3])
    return linear(n, f"{name}.out", n.add("Reshape", f"{name}.joined", [mixed, "rows"]), width, width)


def gelu(n, name, x):
    erf = n.add("Erf", f"{name}.erf", [n.add("Div", f"{name}.scaled", [x, "root_two"])])
    half = n.add("Mul", f"{name}.half", [x, "half"])
    return n.add("Mul", name, [half, n.add("Add", f"{name}.shifted", [erf, "one"])])


def feed(n, name, x, width):
    return linear(n, f"{name}.down", gelu(n, f"{name}.gelu", linear(n, f"{name}.up", x, width, 4 * width)), 4 * width, width)


def transformer_constants(n, length, width, heads, causal):
    n.constant("thirds", TensorProto.INT64, [3], [width] * 3)
    n.constant("heads", TensorProto.INT64, [4], [0, length, heads, width // heads])
    n.constant("rows", TensorProto.INT64, [3], [0, length, width])
    for name, value in (("scale", (width // heads) ** -0.5), ("root_two", 2 ** 0.5), ("half", 0.5), ("one", 1.0)):
        n.constant(name, TensorProto.FLOAT, [], [value])
    if causal:
        n.constant("mask", TensorProto.FLOAT, [length, length],
                   [-1e9 if column > row else 0.0 for row in range(length) for column in range(length)])


def gpt(path, vocabulary, length, width, heads, layers):
    """The output head is the token table."""
    n = Network()
    transformer_constants(n, length, width, heads, causal=True)
    tokens = n.add("Gather", "tokens", [n.weight("wte", vocabulary, width), "ids"])
    x = n.add("Add", "embedded", [tokens, n.weight("wpe", length, width)])
    for layer in range(layers):
        name = f"h{layer}"
        x = n.add("Add", f"{name}.attended", [x, attention(n, f"{name}.attn", norm(n, f"{name}.ln1", x, width), width)])
        x = n.add("Add", f"{name}.out", [x, feed(n, name, norm(n, f"{name}.ln2", x, width), width)])
    n.add("MatMul", "logits", [norm(n, "ln", x, width), n.add("Transpose", "head", ["wte"], perm=[1, 0])])
    n.save(path, [info("ids", TensorProto.INT64, length)], [info("logits", TensorProto.FLOAT, length, vocabulary)])


def bert(path, vocabulary, length, width, heads, layers):
    """One kind of token, no padding, a pooler over the first token and two classes."""
    n = Network()
    transformer_constants(n, length, width, heads, causal=False)
    tokens = n.add("Gather", "tokens", [n.weight("wte", vocabulary, width), "ids"])
    placed = n.add("Add", "placed", [tokens, n.weight("wpe", length, width)])
    x = norm(n, "ln", n.add("Add", "embedded", [placed, n.weight("kind", width)]), width)
    for layer in range(layers):
        name = f"h{layer}"
        x = norm(n, f"{name}.ln1", n.add("Add", f"{name}.attended", [x, attention(n, f"{name}.attn", x, width)]), width)
        x = norm(n, f"{name}.ln2", n.add("Add", f"{name}.fed", [x, feed(n, name, x, width)]), width)
    first = n.add("Gather", "first", [x, n.constant("zero", TensorProto.INT64, [], [0])], axis=1)
    linear(n, "classes", n.add("Tanh", "pooled", [linear(n, "pooler", first, width, width)]), width, 2)
    n.save(path, [info("ids", TensorProto.INT64, length)], [info("classes", TensorProto.FLOAT, 2)])


def normed_convolution(n, name, x, before, after, kernel, stride=1, relu=True):
    pad = kernel // 2
    y = n.add("Conv", f"{name}.conv", [x, n.weight(f"{name}.conv.weight", after, before, kernel, kernel)],
              kernel_shape=[kernel, kernel], strides=[stride, stride], pads=[pad, pad, pad, pad])
    parts = [n.weight(f"{name}.norm.{part}", after) for part in ("weight", "bias", "running_mean", "running_var")]
    y = n.add("BatchNormalization", f"{name}.norm", [y, *parts])
    return n.add("Relu", f"{name}.relu", [y]) if relu else y


def bottleneck(n, name, x, before, width, stride):
    y = normed_convolution(n, f"{name}.1", x, before, width, 1)
    y = normed_convolution(n, f"{name}.2", y, width, width, 3, stride)
    y = normed_convolution(n, f"{name}.3", y, width, 4 * width, 1, relu=False)
    if stride != 1 or before != 4 * width:
        x = normed_convolution(n, f"{name}.4", x, before, 4 * width, 1, stride, relu=False)
    return n.add("Relu", f"{name}.out", [n.add("Add", f"{name}.sum", [x, y])])


def resnet(path, side, blocks, classes):
    n = Network()
    x = normed_convolution(n, "stem", "image", 3, 64, 7, 2)
    x = n.add("MaxPool", "pooled", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    before = 64
    for stage, count in enumerate(blocks):
        for i in range(count):
            x = bottleneck(n, f"layer{stage}.{i}", x, before, 64 << stage, 2 if stage and not i else 1)
            before = 256 << stage
    flat = n.add("Flatten", "flat", [n.add("GlobalAveragePool", "average", [x])])
    linear(n, "classes", flat, before, classes)
    n.save(path, [info("image", TensorProto.FLOAT, 3, side, side)], [info("classes", TensorProto.FLOAT, classes)])


def mlp(path, inputs, hidden, classes):
    n = Network()
    x = n.add("Relu", "relu1", [linear(n, "hidden1", "x", inputs, hidden)])
    x = n.add("Relu", "relu2", [linear(n, "hidden2", x, hidden, hidden)])
    linear(n, "classes", x, hidden, classes)
    n.save(path, [info("x", TensorProto.FLOAT, inputs)], [info("classes", TensorProto.FLOAT, classes)])


def cnn(path, side, channels, classes):
    n = Network()
    x, before = "image", 3
    for i, after in enumerate(channels):
        x, before = normed_convolution(n, f"layer{i}", x, before, after, 3, 2 if i else 1), after
    flat = n.add("Flatten", "flat", [n.add("GlobalAveragePool", "average", [x])])
    linear(n, "classes", flat, before, classes)
    n.save(path, [info("image", TensorProto.FLOAT, 3, side, side)], [info("classes", TensorProto.FLOAT, classes)])


MODELS = {
    "gpt2": lambda path: gpt(path, vocabulary=50304, length=1024, width=768, heads=12, layers=12),
    "bert_base": lambda path: bert(path, vocabulary=30522, length=128, width=768, heads=12, layers=12),
    "resnet50": lambda path: resnet(path, side=224, blocks=(3, 4, 6, 3), classes=1000),
    "mlp": lambda path: mlp(path, inputs=784, hidden=512, classes=10),
    "cnn": lambda path: cnn(path, side=32, channels=(32, 64, 128), classes=10),
    "gpt_small": lambda path: gpt(path, vocabulary=2048, length=64, width=256, heads=8, layers=4),
}


def write(folder, name):
    path = pathlib.Path(folder) / f"{name}.onnx"
    if not (path.exists() and path.with_suffix(".weights").exists()):
        MODELS[name](path)
    return path


if __name__ == "__main__":
    pathlib.Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    for each in sys.argv[2:] or MODELS:
        write(sys.argv[1], each)
