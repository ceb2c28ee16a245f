"""Classifiers as skl2onnx writes them: the label, looked up by an operator that gcomp lacks, beside probabilities that are trained."""
import pathlib
import tempfile
import unittest

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from recorded import gcomp, step_losses

ROWS, BATCH, STEPS, RATE, HIDDEN = 24, 8, 3, 0.5, 5
CLASSES = np.array([40, 10, 20, 30])


def softmax(x):
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def classifier(weights):
    """Two layers, relu, softmax; `label` first, as an element of `classes`."""
    nodes = [
        helper.make_node("MatMul", ["X", "w0"], ["p0"], "p0"),
        helper.make_node("Add", ["p0", "b0"], ["s0"], "s0"),
        helper.make_node("Relu", ["s0"], ["h"], "h"),
        helper.make_node("MatMul", ["h", "w1"], ["p1"], "p1"),
        helper.make_node("Add", ["p1", "b1"], ["s1"], "s1"),
        helper.make_node("Softmax", ["s1"], ["probabilities"], "softmax", axis=1),
        helper.make_node("ArgMax", ["probabilities"], ["position"], "argmax", axis=1),
        helper.make_node("ArrayFeatureExtractor", ["classes", "position"], ["found"], "lookup", domain="ai.onnx.ml"),
        helper.make_node("Reshape", ["found", "flat"], ["label"], "flatten"),
    ]
    constants = {**weights, "classes": CLASSES, "flat": np.array([-1])}
    graph = helper.make_graph(nodes, "classifier", [helper.make_tensor_value_info("X", TensorProto.FLOAT, [None, 3])],
                              [helper.make_tensor_value_info("label", TensorProto.INT64, [None]),
                               helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, [None, len(CLASSES)])],
                              [numpy_helper.from_array(value, name) for name, value in constants.items()])
    opsets = [helper.make_opsetid("ai.onnx.ml", 1), helper.make_opsetid("", 17), helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def step(w, x, y):
    """The cross entropy of scores, which here are the probabilities, before one step of SGD on `w`."""
    s0 = x @ w["w0"] + w["b0"]
    h = np.maximum(s0, 0)
    p = softmax(h @ w["w1"] + w["b1"])
    q, rows = softmax(p), np.arange(len(y))
    loss = -np.log(q[rows, y]).mean()
    q[rows, y] -= 1
    dp = q / len(y)
    d1 = p * (dp - (dp * p).sum(1, keepdims=True))
    d0 = (d1 @ w["w1"].T) * (s0 > 0)
    for name, gradient in (("w1", h.T @ d1), ("b1", d1.sum(0, keepdims=True)), ("w0", x.T @ d0), ("b0", d0.sum(0, keepdims=True))):
        w[name] = w[name] - RATE * gradient
    return loss


class Classifier(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(scratch.name)

    def test_probabilities_train_and_the_label_follows(self):
        random = np.random.RandomState(0)
        shapes = {"w0": (3, HIDDEN), "b0": (1, HIDDEN), "w1": (HIDDEN, len(CLASSES)), "b1": (1, len(CLASSES))}
        weights = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
        x, y = random.standard_normal((ROWS, 3)).astype(np.float32), random.randint(0, len(CLASSES), ROWS)
        model, data, trained = (self.scratch / name for name in ("model.onnx", "data.npz", "trained.onnx"))
        onnx.save(classifier(weights), model)
        np.savez(data, X=x, label=y)
        gcomp("train", model, "--data", data, "--loss", "cross_entropy", "--output", "probabilities", "--optimizer", "sgd", "--lr", RATE,
              "--batch", BATCH, "--steps", STEPS, "--no-shuffle", "--metrics", self.scratch / "m.jsonl", "--out", trained)

        wanted = {name: value.astype(np.float64) for name, value in weights.items()}
        losses = [step(wanted, x[i * BATCH:(i + 1) * BATCH], y[i * BATCH:(i + 1) * BATCH]) for i in range(STEPS)]
        np.testing.assert_allclose(step_losses(self.scratch / "m.jsonl"), losses, rtol=1e-5)
        found = {tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load(trained).graph.initializer}
        for name, value in wanted.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-6, err_msg=name)

        self.assertEqual(onnx.load(trained).graph.node, onnx.load(model).graph.node)
        session = onnxruntime.InferenceSession(str(trained), providers=["CPUExecutionProvider"])
        label, probabilities = session.run(["label", "probabilities"], {"X": x})
        expected = softmax(np.maximum(x @ wanted["w0"] + wanted["b0"], 0) @ wanted["w1"] + wanted["b1"])
        np.testing.assert_allclose(probabilities, expected, rtol=1e-4)
        np.testing.assert_array_equal(label, CLASSES[expected.argmax(1)])
