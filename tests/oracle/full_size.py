"""Everyday networks at full size, filled as their records were: the loss (1e-4) and gradients (1e-3) of a first step through
`gcomp grad`. They lie in ../shared/models only.

The convolutional ones run in float64, as the record did: in float32 PyTorch's own gradients stray from it by 1.9e-2 on resnet50 and
4.7e-3 on unet, since pooling and ReLU decide otherwise where values nearly tie. Their float32 loss is compared too.
"""
import importlib.util
import json
import math
import pathlib
import tempfile
import unittest

import numpy as np
import onnx

from recorded import gcomp, shared_models

CONVOLUTIONAL = ["resnet50", "mobilenet_v3_large", "efficientnet_b0", "unet"]
TRANSFORMERS = ["vit_b_16", "bert_base", "gpt2_124m"]
ATTENTIONS = 12  # of each transformer


def fill_script(models):
    spec = importlib.util.spec_from_file_location("fill", models / "fill.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class FullSize(unittest.TestCase):
    def setUp(self):
        models = shared_models()
        if not (models / "architectures").is_dir():
            self.skipTest("the full-size architectures lie in ../shared/models only")
        self.fill = fill_script(models)
        self.scratch = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def write(self, name):
        """Model and batch; returns the record."""
        record = json.loads((shared_models() / "architectures" / f"{name}.json").read_text())
        onnx.save(self.fill.load(name), self.scratch / "model.onnx")
        inputs, label = self.fill.batch(name, record["inputs"], record["draw"], record["label"])
        label = label.astype(np.float32) if record["loss"] == "bce_with_logits" else label
        np.savez(self.scratch / "batch.npz", **inputs, label=label)
        return record

    def check_first_step(self, name):
        record = self.write(name)
        self.grad(record, "f32")
        with np.load(self.scratch / "grads.npz") as found:
            self.compare_loss(record, found)
            if name not in CONVOLUTIONAL:
                return self.compare_gradients(record, found)
        self.grad(record, "f64")
        with np.load(self.scratch / "grads.npz") as found:
            self.compare_loss(record, found)
            self.compare_gradients(record, found)

    def check_attentions(self, name):
        """Imported and differentiated, with each attention as one op where the target is CUDA."""
        record = self.write(name)
        shapes = [option for n, shape in record["inputs"].items() for option in ("--shapes", f"{n}:{'x'.join(map(str, shape))}")]
        graph = gcomp("compile", self.scratch / "model.onnx", "--train", "--loss", record["loss"], *shapes, "--target", "cuda:sm_90",
                      "--emit", "ir").stdout
        self.assertEqual(graph.count(" = attention "), ATTENTIONS)
        self.assertEqual(graph.count(" = attention_gradient "), ATTENTIONS)

    def grad(self, record, precision):
        gcomp("grad", self.scratch / "model.onnx", "--inputs", self.scratch / "batch.npz", "--loss", record["loss"], "--precision", precision,
              "--outputs", self.scratch / "grads.npz")

    def compare_loss(self, record, found):
        loss = float(found["loss"])
        self.assertTrue(math.isclose(loss, record["loss_value"], rel_tol=1e-4), f"loss {loss}, recorded {record['loss_value']}")

    def compare_gradients(self, record, found):
        gradients = record["gradients"]
        largest = {name: max(abs(value) for _, value in g["largest"]) for name, g in gradients.items()}
        floor = 0.1 * max(largest.values(), default=0)
        for name, recorded in gradients.items():
            self.assertIn(name, found.files)
            gradient = found[name].astype(np.float64).ravel()
            scale = max(largest[name], floor)
            for index, value in recorded["largest"]:
                self.assertLess(abs(gradient[index] - value), 1e-3 * scale, f"{name}[{index}] is {gradient[index]}, recorded {value}")
            norm = float(np.linalg.norm(gradient))
            self.assertLess(abs(norm - recorded["norm"]), 1e-3 * max(recorded["norm"], scale), f"norm of {name} is {norm}, recorded {recorded['norm']}")


def add_tests(case, prefix, names, check):
    for name in names:
        def test(self, name=name):
            getattr(self, check)(name)
        setattr(case, f"{prefix}_{name}", test)
