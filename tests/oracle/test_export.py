"""What gcomp exports after training must be a good ONNX file: for onnx.checker, for onnxruntime, and for gcomp itself."""
import pathlib
import tempfile
import unittest

import numpy as np
import onnx
import onnxruntime

from recorded import batch_of, gcomp, model_folders, recipe_of, step_losses, train_options

STEPS = 3


def nodes_of(model):
    """In inference form a BatchNormalization has its first output alone."""
    return [(n.op_type, list(n.input), list(n.output)[:1 if n.op_type == "BatchNormalization" else None]) for n in model.graph.node]


class Export(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(scratch.name)

    def check_model(self, folder):
        recipe = recipe_of(folder)
        trained = self.scratch / "trained.onnx"
        gcomp("train", folder / "model.onnx", "--data", folder / "train.npz", *train_options(recipe), "--steps", STEPS, "--out", trained)
        onnx.checker.check_model(str(trained), full_check=True)
        self.check_names_and_change(onnx.load(folder / "model.onnx"), onnx.load(trained))

        inputs = batch_of(folder, 0, recipe["batch"])
        np.savez(self.scratch / "inputs.npz", **inputs)
        gcomp("run", trained, "--inputs", self.scratch / "inputs.npz", "--outputs", self.scratch / "outputs.npz")
        session = onnxruntime.InferenceSession(str(trained), providers=["CPUExecutionProvider"])
        with np.load(self.scratch / "outputs.npz") as ours:
            for output, theirs in zip(session.get_outputs(), session.run(None, inputs), strict=True):
                np.testing.assert_allclose(ours[output.name], theirs, rtol=1e-4, atol=1e-4 * np.abs(theirs).max(), err_msg=output.name)

    def check_names_and_change(self, before, after):
        """The same interface, nodes and initializers by name, and weights that moved."""
        def names(values):
            return [value.name for value in values]

        self.assertEqual(names(before.graph.input), names(after.graph.input))
        self.assertEqual(names(before.graph.output), names(after.graph.output))
        self.assertEqual(nodes_of(before), nodes_of(after))
        old = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in before.graph.initializer}
        new = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in after.graph.initializer}
        self.assertEqual({n: (a.dtype, a.shape) for n, a in old.items()}, {n: (a.dtype, a.shape) for n, a in new.items()})
        self.assertTrue(any(not np.array_equal(old[name], new[name]) for name in old), "training changed no initializer")

    def test_training_further_continues(self):
        """Two runs of SGD without momentum, the second from the first's file, give the losses of one long run."""
        folder = model_folders()["mlp"]
        options = ["--loss", "bce", "--optimizer", "sgd", "--lr", "0.1", "--batch", "64", "--no-shuffle"]
        with np.load(folder / "train.npz") as data:
            np.savez(self.scratch / "first.npz", **{name: data[name][:256] for name in data.files})
            np.savez(self.scratch / "second.npz", **{name: data[name][256:512] for name in data.files})

        def train(model, data, steps, out):
            gcomp("train", model, "--data", data, *options, "--steps", steps, "--metrics", self.scratch / "m.jsonl", "--out", out)
            return step_losses(self.scratch / "m.jsonl")

        whole = train(folder / "model.onnx", folder / "train.npz", 8, self.scratch / "whole.onnx")
        first = train(folder / "model.onnx", self.scratch / "first.npz", 4, self.scratch / "first.onnx")
        second = train(self.scratch / "first.onnx", self.scratch / "second.npz", 4, self.scratch / "second.onnx")
        self.assertEqual(len(whole), 8)
        np.testing.assert_allclose(first + second, whole, rtol=1e-6)


def add_model_tests():
    for name, folder in model_folders().items():
        setattr(Export, f"test_{name}", lambda self, folder=folder: self.check_model(folder))


add_model_tests()
