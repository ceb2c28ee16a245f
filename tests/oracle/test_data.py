"""What a training does with its data, asked of NumPy and onnxruntime: preprocessing in the exported model, splits by class."""
import json
import pathlib
import tempfile
import unittest

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from recorded import gcomp

IMAGENET = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
CLASSES = 4


def normalised(pixels, mean, std, axis):
    """torchvision's ToTensor and Normalize: bytes divided by 255, then (x - mean) / std of each channel, all in float32."""
    shape = [1] * pixels.ndim
    shape[axis] = len(mean)
    x = pixels.astype(np.float32) / np.float32(255)
    return (x - mean.astype(np.float32).reshape(shape)) / std.astype(np.float32).reshape(shape)


def classifier(path, row):
    """Scores from all pixels, through a hidden layer."""
    random, size = np.random.RandomState(1), int(np.prod(row))
    weights = {"w0": random.standard_normal((size, 8)) / size**0.5, "b0": np.zeros(8), "w1": random.standard_normal((8, CLASSES)), "b1": np.zeros(CLASSES)}
    nodes = [helper.make_node("Flatten", ["image"], ["flat"]), helper.make_node("Gemm", ["flat", "w0", "b0"], ["s"]),
             helper.make_node("Relu", ["s"], ["h"]), helper.make_node("Gemm", ["h", "w1", "b1"], ["logits"])]
    graph = helper.make_graph(nodes, "classifier", [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", *row])],
                              [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", CLASSES])],
                              [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def logits_of(path, image):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL  # each node as it stands in the file
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return session.run(["logits"], {"image": image})[0]


def cross_entropy(logits, label):
    shifted = logits.astype(np.float64) - logits.max(1, keepdims=True)
    return float(np.mean(np.log(np.exp(shifted).sum(1)) - shifted[np.arange(len(label)), label]))


class WithScratch(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(scratch.name)


class ExportedPreprocessing(WithScratch):
    """--export-preprocess: raw bytes go in, and what comes out is that of the model without it on normalised floats."""

    def check(self, row, axis, augment, mean, std):
        random = np.random.RandomState(0)
        image, label = random.randint(0, 256, (48, *row), np.uint8), random.randint(0, CLASSES, 48)
        data, model = self.scratch / "data.npz", self.scratch / "model.onnx"
        np.savez(data, image=image, label=label)
        classifier(model, row)
        with_it, without = self.scratch / "with.onnx", self.scratch / "without.onnx"
        for out, more in ((with_it, ["--export-preprocess"]), (without, [])):
            gcomp("train", model, "--data", data, "--augment", augment, "--loss", "cross_entropy", "--optimizer", "adam", "--lr", 1e-2,
                  "--batch", 16, "--epochs", 2, "--out", out, *more)
        onnx.checker.check_model(onnx.load(with_it), full_check=True)
        self.assertEqual(onnx.load(with_it).graph.input[0].type.tensor_type.elem_type, TensorProto.UINT8)

        logits = logits_of(with_it, image)
        np.testing.assert_array_equal(logits, logits_of(without, normalised(image, mean, std, axis)))
        gcomp("run", with_it, "--inputs", data, "--outputs", self.scratch / "y.npz")
        np.testing.assert_allclose(np.load(self.scratch / "y.npz")["logits"], logits, rtol=1e-5, atol=1e-5)
        for arguments in ([with_it], [without, "--augment", augment]):
            report = json.loads(gcomp("eval", *arguments, "--data", data, "--loss", "cross_entropy", "--json").stdout)
            self.assertAlmostEqual(report["loss"], cross_entropy(logits, label), places=5, msg=str(arguments))
        # It is a model like any other: it trains on.
        gcomp("train", with_it, "--data", data, "--loss", "cross_entropy", "--batch", 16, "--steps", 1, "--out", self.scratch / "further.onnx")

    def test_channels_first(self):
        self.check((3, 6, 5), 1, "hflip, normalize(imagenet)", *IMAGENET)

    def test_channels_last(self):
        self.check((6, 5, 3), 3, "hflip, normalize(imagenet)", *IMAGENET)

    def test_grey(self):
        self.check((1, 6, 5), 1, "normalize(mean=[0.1307], std=[0.3081])", np.array([0.1307]), np.array([0.3081]))

    def test_bytes_alone(self):
        self.check((3, 6, 5), 1, "random_crop([6, 5], padding=1)", np.zeros(3), np.ones(3))


class RunOnData(WithScratch):
    """gcomp run on what eval reads: the outputs of onnxruntime on the same rows, in the order of the data."""

    ROWS = 37  # no multiple of a batch

    def outputs(self, model, data, *options):
        gcomp("run", model, "--inputs", data, "--outputs", self.scratch / "y.npz", *options)
        return np.load(self.scratch / "y.npz")["logits"]

    def test_folder_of_images(self):
        random = np.random.RandomState(0)
        image, label = random.randint(0, 256, (self.ROWS, 3, 6, 5), np.uint8), np.sort(random.randint(0, CLASSES, self.ROWS))
        data, folder, model = self.scratch / "data.npz", self.scratch / "folder", self.scratch / "model.onnx"
        np.savez(data, image=image, label=label)
        gcomp("data", "convert", data, "-o", folder, "--to", "images")
        classifier(model, (3, 6, 5))
        wanted = logits_of(model, normalised(image, *IMAGENET, 1))
        for options in ([], ["--batch", 8], ["--batch", 8, "--workers", 3], ["--workers", 0], ["--batch", 1]):
            found = self.outputs(model, folder, "--augment", "hflip, normalize(imagenet)", *options)
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5, err_msg=str(options))
        np.testing.assert_allclose(self.outputs(model, data, "--augment", "normalize(imagenet)"), wanted, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(self.outputs(model, folder), logits_of(model, image.astype(np.float32) / np.float32(255)), rtol=1e-5, atol=1e-5)

        # A .gcx keeps what was done to rows.
        gcomp("train", model, "--data", folder, "--augment", "random_crop([6, 5], padding=1), normalize(imagenet)", "--loss", "cross_entropy",
              "--batch", 8, "--steps", 4, "--out", self.scratch / "t.gcx")
        gcomp("convert", self.scratch / "t.gcx", self.scratch / "t.onnx")
        wanted = logits_of(self.scratch / "t.onnx", normalised(image, *IMAGENET, 1))
        np.testing.assert_allclose(self.outputs(self.scratch / "t.gcx", folder), wanted, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(self.outputs(self.scratch / "t.onnx", folder, "--augment", "normalize(imagenet)"), wanted, rtol=1e-5, atol=1e-5)

    def test_table(self):
        x, model, table = np.random.RandomState(3).standard_normal((self.ROWS, 3)), self.scratch / "model.onnx", self.scratch / "t.csv"
        table.write_text("a,b,c\n" + "".join(",".join(map(repr, row)) + "\n" for row in x.tolist()))
        classifier(model, (3,))
        found = self.outputs(model, f"{table},features=all", "--map", "image=features")
        np.testing.assert_allclose(found, logits_of(model, x.astype(np.float32)), rtol=1e-5, atol=1e-5)

    def test_refusals(self):
        model = self.scratch / "model.onnx"
        classifier(model, (3, 6, 5))
        np.savez(self.scratch / "other.npz", image=np.zeros((4, 3, 2, 5), np.uint8))
        for data, options, part in ((self.scratch / "none", [], "does not exist"), (self.scratch / "other.npz", ["--augment", "hflip"], "3,2,5"),
                                    (self.scratch / "other.npz", ["--augment", "hlfip"], "hflip"), (self.scratch / "other.npz", ["--map", "image=no"], "'no'")):
            with self.assertRaises(AssertionError) as refused:
                self.outputs(model, data, *options)
            self.assertIn(part, str(refused.exception))


class Splits(WithScratch):
    def evaluated(self, label, *options):
        """How many rows of each class are evaluated: the sums of the confusion matrix over what was predicted."""
        data, model = self.scratch / "data.npz", self.scratch / "model.onnx"
        np.savez(data, image=np.zeros((len(label), 3), np.float32), label=label, kind=label % 2, weight=label * 0.5)
        classifier(model, (3,))
        report = json.loads(gcomp("train", model, "--data", data, "--loss", "cross_entropy", "--metric", "confusion", "--batch", 8, "--steps", 1,
                                  "--out", self.scratch / "t.onnx", "--json", *options).stdout)
        return np.array(report["eval"]["confusion"]).sum(1)

    def test_stratified(self):
        label = np.random.RandomState(2).choice(CLASSES, 997, p=[0.7, 0.2, 0.09, 0.01])
        counts = np.bincount(label, minlength=CLASSES)
        for share in (0.5, 0.8, 0.95):
            trained = np.clip(np.floor(share * counts + 0.5).astype(int), 1, counts - 1)  # each class is on either side
            wanted = counts - trained
            np.testing.assert_array_equal(self.evaluated(label, "--split", share, "--stratify", "label"), wanted)
            np.testing.assert_array_equal(self.evaluated(label, "--split", share, "--stratify", "label", "--seed", 9), wanted)
        self.assertEqual(wanted[3], 1)
        self.assertEqual(self.evaluated(label, "--split", 0.8).sum(), 997 - round(0.8 * 997))
        halves = np.bincount(label % 2)
        kinds = self.evaluated(label, "--split", 0.8, "--stratify", "kind")
        np.testing.assert_array_equal([kinds[::2].sum(), kinds[1::2].sum()], halves - np.floor(0.8 * halves + 0.5).astype(int))

    def test_refusals(self):
        label = np.arange(40) % CLASSES
        for options, part in ((["--split", 0.8, "--stratify", "weight"], "wanted a whole number"), (["--split", 0.8, "--stratify", "image"], "wanted one number in each row"),
                              (["--split", 0.8, "--stratify", "labl"], "has no array 'labl'"), (["--eval-data", self.scratch / "data.npz", "--stratify", "label"], "--split 0.9")):
            with self.assertRaises(AssertionError) as refused:
                self.evaluated(label, *options)
            self.assertIn(part, str(refused.exception))
