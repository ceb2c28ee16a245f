"""What gcomp folds at import means what onnxruntime computes at run time."""
import pathlib
import tempfile
import unittest

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from recorded import gcomp


def scatter_chain(rounds):
    """y = x + mask, the mask written slice by slice with repeated places, its type taken from x."""
    nodes = [helper.make_node("ConstantOfShape", ["shape"], ["zeros"]), helper.make_node("CastLike", ["zeros", "x"], ["m0"])]
    weights = [numpy_helper.from_array(np.array([rounds + 2, 3]), "shape"), numpy_helper.from_array(np.array([2, 3]), "two_rows")]
    for i in range(rounds):
        weights += [numpy_helper.from_array(np.array([[i], [(3 * i) % rounds]]), f"at{i}"), numpy_helper.from_array(np.array(i * i - 7), f"n{i}")]
        nodes += [helper.make_node("CastLike", [f"n{i}", f"m{i}"], [f"v{i}"]), helper.make_node("Expand", [f"v{i}", "two_rows"], [f"e{i}"]),
                  helper.make_node("ScatterND", [f"m{i}", f"at{i}", f"e{i}"], [f"m{i + 1}"])]
    nodes.append(helper.make_node("Add", ["x", f"m{rounds}"], ["y"]))
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [rounds + 2, 3]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "chain", values[:1], values[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


class Folding(unittest.TestCase):
    def test_chain_of_scatters(self):
        with tempfile.TemporaryDirectory() as scratch:
            model, inputs, outputs = (pathlib.Path(scratch) / name for name in ("m.onnx", "x.npz", "y.npz"))
            onnx.save(scatter_chain(30), model)
            x = np.random.default_rng(0).standard_normal((32, 3)).astype(np.float32)
            np.savez(inputs, x=x)
            gcomp("run", model, "--inputs", inputs, "--outputs", outputs)
            session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
            with np.load(outputs) as ours:
                np.testing.assert_array_equal(ours["y"], session.run(None, {"x": x})[0])
