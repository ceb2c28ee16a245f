"""Greedy texts must be those of onnxruntime's own loop over the model."""
import json
import pathlib
import tempfile
import unittest

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from recorded import gcomp, model_folders, recipe_of, train_options


def greedy(path, prompt, tokens, context):
    """Right-padded with zeros up to the context; of a longer text the last ids."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    name, text = session.get_inputs()[0].name, list(prompt)
    for _ in range(tokens):
        seen = text[-context:]
        ids = np.zeros((1, context), np.int64)
        ids[0, :len(seen)] = seen
        text.append(int(session.run(None, {name: ids})[0][0, len(seen) - 1].argmax()))
    return text[len(prompt):]


def running_sum_model(path):
    """Logits from the sum of all embeddings so far, of any length."""
    random = np.random.default_rng(3)
    arrays = {"table": random.normal(size=(17, 12)), "head": random.normal(size=(12, 17))}
    nodes = [helper.make_node("Gather", ["table", "ids"], ["e"]), helper.make_node("CumSum", ["e", "axis"], ["s"]),
             helper.make_node("Sin", ["s"], ["h"]), helper.make_node("MatMul", ["h", "head"], ["logits"])]
    graph = helper.make_graph(nodes, "running_sum", [helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "length"])],
                              [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "length", 17])],
                              [numpy_helper.from_array(array.astype(np.float32), name) for name, array in arrays.items()] + [numpy_helper.from_array(np.array(1), "axis")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


class Generate(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(scratch.name)

    def ids_of(self, *arguments):
        return json.loads(gcomp("generate", *arguments, "--json").stdout)["ids"]

    def test_trained_gpt(self):
        folder = model_folders()["gpt_tiny"]
        trained = self.scratch / "trained.onnx"
        gcomp("train", folder / "model.onnx", "--data", folder / "train.npz", *train_options(recipe_of(folder)), "--steps", 4, "--out", trained)
        for prompt in ([3], [1, 2, 3, 4, 5], list(range(60)), [i * 7 % 65 for i in range(70)]):
            found = self.ids_of(trained, "--prompt-ids", ",".join(map(str, prompt)), "--tokens", 20)
            self.assertEqual(found, greedy(trained, prompt, 20, 64), prompt)

    def test_any_length(self):
        model = self.scratch / "model.onnx"
        running_sum_model(model)
        self.assertEqual(self.ids_of(model, "--prompt", "1 2", "--tokens", 30), greedy(model, [1, 2], 30, 32))
        for bound in (["--context", "8"], ["--dim", "length=8"], ["--shapes", "ids:1x8"]):
            self.assertEqual(self.ids_of(model, "--prompt", "1 2", "--tokens", 30, *bound), greedy(model, [1, 2], 30, 8), bound)
