"""A network in training form: what gcomp writes after training gives others the accuracy that training reported."""
import json
import pathlib
import tempfile
import unittest

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from recorded import gcomp

WIDTH, CLASSES, ROWS = 8, 3, 256


def network_in_training_form(opset):
    """Gemm, BatchNormalization, Relu, Dropout, Gemm, both forms as PyTorch's exporters leave a model in train mode."""
    rng = np.random.default_rng(7)
    weights = {"fc1.weight": rng.normal(0, 0.4, (16, WIDTH)), "fc1.bias": np.zeros(16), "bn.weight": np.ones(16), "bn.bias": np.zeros(16),
               "bn.running_mean": np.zeros(16), "bn.running_var": np.ones(16), "fc2.weight": rng.normal(0, 0.4, (CLASSES, 16)),
               "fc2.bias": np.zeros(CLASSES), "ratio": np.array(0.3)}
    initializers = [numpy_helper.from_array(values.astype(np.float32), name) for name, values in weights.items()]
    initializers.append(numpy_helper.from_array(np.array(True), "live"))
    newer = opset >= 14
    updates = ["new_mean", "new_var"] + ([] if newer else ["saved_mean", "saved_var"])
    nodes = [
        helper.make_node("Gemm", ["x", "fc1.weight", "fc1.bias"], ["a"], transB=1),
        helper.make_node("BatchNormalization", ["a", "bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"], ["b", *updates],
                         momentum=0.9, **({"training_mode": 1} if newer else {})),
        helper.make_node("Relu", ["b"], ["c"]),
        helper.make_node("Dropout", ["c", "ratio", "live"], ["d"]),
        helper.make_node("Gemm", ["d", "fc2.weight", "fc2.bias"], ["logits"], transB=1),
    ]
    graph = helper.make_graph(nodes, "net", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", WIDTH])],
                              [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", CLASSES])], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def samples(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(3, 2, (ROWS, WIDTH)).astype(np.float32)
    return x, np.argmax(x[:, :CLASSES] + rng.normal(0, 0.5, (ROWS, CLASSES)), axis=1)


def weights_of(path):
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load(path).graph.initializer}


class Forms(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(scratch.name)
        for name, seed in (("train", 1), ("test", 2)):
            x, label = samples(seed)
            np.savez(self.scratch / f"{name}.npz", x=x, label=label)
        np.savez(self.scratch / "x.npz", x=samples(2)[0])

    def train(self, model, out, *options):
        return gcomp("train", model, "--json", "--data", self.scratch / "train.npz", "--eval-data", self.scratch / "test.npz", "--loss",
                     "cross_entropy", "--optimizer", "sgd", "--lr", "0.1", "--batch", "32", "--steps", "40", "--out", out, *options)

    def outputs(self, model, *options):
        gcomp("run", model, "--inputs", self.scratch / "x.npz", "--outputs", self.scratch / "y.npz", *options)
        return np.load(self.scratch / "y.npz")["logits"]

    def check_opset(self, opset):
        model, out, kept = (self.scratch / name for name in ("model.onnx", "out.onnx", "kept.onnx"))
        onnx.save(network_in_training_form(opset), model)
        done = self.train(model, out)
        self.assertIn("1 BatchNormalization and 1 Dropout written in inference form", done.stderr)
        onnx.checker.check_model(str(out), full_check=True)

        x, label = samples(2)
        theirs = onnxruntime.InferenceSession(str(out), providers=["CPUExecutionProvider"]).run(["logits"], {"x": x})[0]
        accuracy = np.mean(np.argmax(theirs, axis=1) == label)
        self.assertEqual(accuracy, json.loads(done.stdout)["eval"]["accuracy"])
        np.testing.assert_allclose(self.outputs(out), theirs, rtol=1e-4, atol=1e-5)

        self.train(model, kept, "--training")
        self.assertEqual([n.output for n in onnx.load(kept).graph.node], [n.output for n in onnx.load(model).graph.node])
        np.testing.assert_array_equal(self.outputs(kept), self.outputs(out))
        in_training = self.outputs(kept, "--training")
        np.testing.assert_array_equal(self.outputs(out, "--training"), in_training)
        self.assertFalse(np.allclose(in_training, theirs, atol=1e-2))

        for trained in (out, kept):
            self.train(trained, self.scratch / f"again_{trained.name}")
        again, kept_again = weights_of(self.scratch / "again_out.onnx"), weights_of(self.scratch / "again_kept.onnx")
        for name in again:
            np.testing.assert_array_equal(again[name], kept_again[name], err_msg=name)

    def test_five_outputs(self):
        self.check_opset(13)

    def test_training_mode(self):
        self.check_opset(17)
