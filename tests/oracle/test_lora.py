"""Merged adapters must be what the adapted model computes: for onnxruntime; and the files of adapters what PEFT reads."""
import importlib.util
import json
import pathlib
import struct
import tempfile
import unittest

import numpy as np
import onnx
import onnxruntime

from recorded import ROOT, gcomp

FIXTURES = ROOT / "tests/fixtures/training"
SHAPES = {  # of each module's weight as PyTorch has it
    "mlp": {"0": (8, 5), "2": (3, 8)},
    "cnn": {"0": (4, 2, 3, 3), "3": (3, 4, 3, 3), "6": (3, 12)},
    "transformer": {"query": (8, 8), "key": (8, 8), "value": (8, 8), "up": (16, 8), "down": (8, 16), "head": (11, 8)},
}


def read_safetensors(path):
    """{name: array} by the format's own description, and its metadata."""
    data = pathlib.Path(path).read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    metadata = header.pop("__metadata__", {})
    types = {"F32": np.float32, "F64": np.float64}
    arrays = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        arrays[name] = np.frombuffer(data[8 + length + begin:8 + length + end], types[entry["dtype"]]).reshape(entry["shape"])
    return arrays, metadata


def adapters_of(arrays, module):
    prefix = f"base_model.model.{module}."
    return arrays[prefix + "lora_A.weight"], arrays[prefix + "lora_B.weight"]


class Lora(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(scratch.name)

    def train(self, name, precision="f32"):
        gcomp("train", FIXTURES / f"{name}.onnx", "--data", FIXTURES / f"{name}.npz", "--loss", "cross_entropy", "--batch", 6, "--steps", 30, "--lr", 0.02,
              "--lora", "*", "--lora-rank", 2, "--lora-alpha", 6, "--precision", precision, "--out", self.scratch / "merged.onnx",
              "--out-adapter", self.scratch / "adapter_model.safetensors")
        return read_safetensors(self.scratch / "adapter_model.safetensors")

    def test_files(self):
        for name, modules in SHAPES.items():
            with self.subTest(name):
                arrays, metadata = self.train(name)
                self.assertEqual(metadata, {"format": "pt"})
                self.assertEqual(len(arrays), 2 * len(modules))
                for module, (outputs, *inputs) in modules.items():
                    a, b = adapters_of(arrays, module)
                    self.assertEqual(a.shape, (2, *inputs))
                    self.assertEqual(b.shape, (outputs, 2) + (1,) * (len(inputs) - 1))
                    self.assertTrue(np.abs(b).max() > 0, module)
                config = json.loads((self.scratch / "adapter_config.json").read_text())
                self.assertEqual((config["peft_type"], config["r"], config["lora_alpha"], config["bias"]), ("LORA", 2, 6, "none"))
                self.assertEqual(set(config["target_modules"]), set(modules))

    def test_merged_is_adapted(self):
        """onnxruntime on the merged file gives what it gives on the original with W + 3 B A put in by NumPy, in f64, and what gcomp gives."""
        for name, modules in SHAPES.items():
            with self.subTest(name):
                arrays, _ = self.train(name)
                by_hand = onnx.load(FIXTURES / f"{name}.onnx")
                holders = {"query": "val_2", "key": "val_3", "value": "val_5", "up": "val_8", "down": "val_10", "head": "val_12"}
                for tensor in by_hand.graph.initializer:
                    for module, (outputs, *inputs) in modules.items():
                        if tensor.name != (holders[module] if name == "transformer" else f"{module}.weight"):
                            continue
                        a, b = (factor.astype(np.float64) for factor in adapters_of(arrays, module))
                        change = 3 * np.einsum("or,ri->oi", b.reshape(outputs, 2), a.reshape(2, -1)).reshape(outputs, *inputs)
                        weight = onnx.numpy_helper.to_array(tensor).astype(np.float64)
                        weight = weight + (change.T if name == "transformer" else change)
                        tensor.CopyFrom(onnx.numpy_helper.from_array(weight.astype(np.float32), tensor.name))
                merged = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(self.scratch / "merged.onnx").graph.initializer}
                for tensor in by_hand.graph.initializer:
                    ulps = np.spacing(np.abs(onnx.numpy_helper.to_array(tensor)))
                    self.assertTrue(np.all(np.abs(merged[tensor.name] - onnx.numpy_helper.to_array(tensor)) <= ulps), tensor.name)
                with np.load(FIXTURES / f"{name}.npz") as data:
                    inputs = {"x": data["x"][:6]}
                np.savez(self.scratch / "x.npz", **inputs)
                gcomp("run", self.scratch / "merged.onnx", "--inputs", self.scratch / "x.npz", "--outputs", self.scratch / "y.npz")
                theirs = onnxruntime.InferenceSession(str(self.scratch / "merged.onnx"), providers=["CPUExecutionProvider"]).run(None, inputs)[0]
                hand = onnxruntime.InferenceSession(by_hand.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, inputs)[0]
                np.testing.assert_allclose(theirs, hand, rtol=1e-5, atol=1e-5)
                with np.load(self.scratch / "y.npz") as ours:
                    np.testing.assert_allclose(ours["logits"], theirs, rtol=1e-5, atol=1e-5)

    @unittest.skipUnless(importlib.util.find_spec("peft"), "needs peft and torch, which the tests do not install")
    def test_peft_reads_them(self):
        import peft
        import torch
        from torch import nn
        networks = {
            "mlp": nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3)),
            "cnn": nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(4, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(12, 3)),
        }
        for name, network in networks.items():
            with self.subTest(name):
                self.train(name)
                weights = {t.name: torch.tensor(onnx.numpy_helper.to_array(t)) for t in onnx.load(FIXTURES / f"{name}.onnx").graph.initializer}
                network.load_state_dict({key: weights[key] for key in network.state_dict()})
                adapted = peft.PeftModel.from_pretrained(network, self.scratch).eval()
                with np.load(FIXTURES / f"{name}.npz") as data:
                    x = data["x"][:6]
                theirs = adapted(torch.tensor(x)).detach().numpy()
                merged = onnxruntime.InferenceSession(str(self.scratch / "merged.onnx"), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
                np.testing.assert_allclose(merged, theirs, rtol=1e-5, atol=1e-5)
