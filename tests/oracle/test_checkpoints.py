"""Checkpoints are what docs/checkpoints.md says: read here, and written in pieces, with nothing of gcomp."""
import hashlib
import json
import pathlib
import struct
import tempfile
import unittest

import numpy as np
import onnx
from onnx import numpy_helper

from recorded import gcomp, model_folders, recipe_of, train_options

DTYPES = {"F64": np.float64, "F32": np.float32, "I64": np.int64}
NAMES = {np.dtype(np.float64): "f64", np.dtype(np.float32): "f32", np.dtype(np.int64): "i64"}


def read_safetensors(path):
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        values = np.frombuffer(data[8 + length + begin : 8 + length + end], DTYPES[entry["dtype"]])
        tensors[name] = values.reshape(entry["shape"])
    return tensors


def write_safetensors(path, tensors):
    spelled = {np.dtype(dtype): name for name, dtype in DTYPES.items()}
    header, body = {}, b""
    for name, values in sorted(tensors.items(), key=lambda item: (-item[1].dtype.itemsize, item[0])):
        data = values.tobytes()
        header[name] = {"dtype": spelled[values.dtype], "shape": list(values.shape), "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def digest(path):
    return {"bytes": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


def write_manifest(folder, manifest):
    text = json.dumps(manifest).encode()
    (folder / "manifest.json").write_bytes(text)
    (folder / "manifest.json.sha256").write_text(hashlib.sha256(text).hexdigest() + "  manifest.json\n")


class Checkpoints(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(scratch.name)
        self.model = model_folders()["mlp"]
        gcomp("train", self.model / "model.onnx", "--data", self.model / "train.npz", *train_options(recipe_of(self.model)),
              "--steps", "3", "--ema", "0.9", "--out", self.scratch / "t.gcx")
        gcomp("convert", self.scratch / "t.gcx", self.scratch / "checkpoint")
        gcomp("convert", self.scratch / "t.gcx", self.scratch / "t.onnx")
        self.manifest = json.loads((self.scratch / "checkpoint/manifest.json").read_text())

    def tensors(self):
        """Put together from the pieces of the manifest."""
        files = {name: read_safetensors(self.scratch / "checkpoint" / name) for name in self.manifest["files"]}
        tensors = {}
        for name, entry in self.manifest["tensors"].items():
            (piece,) = entry["pieces"]
            values = files[piece["file"]].pop(name)
            self.assertEqual((piece["offset"], piece["length"]), (0, values.size))
            self.assertEqual((list(values.shape), NAMES[values.dtype]), (entry["shape"], entry["dtype"]))
            tensors[name] = values
        self.assertFalse(any(files.values()), "tensors of which the manifest says nothing")
        return tensors

    def test_digests_are_of_the_bytes(self):
        folder = self.scratch / "checkpoint"
        self.assertEqual({name: digest(folder / name) for name in self.manifest["files"]}, self.manifest["files"])
        self.assertEqual({path.name for path in folder.iterdir()}, {*self.manifest["files"], "manifest.json", "manifest.json.sha256"})
        self.assertEqual((folder / "manifest.json.sha256").read_text(), digest(folder / "manifest.json")["sha256"] + "  manifest.json\n")
        config = json.dumps(self.manifest["config"], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        self.assertEqual(hashlib.sha256(config.encode()).hexdigest(), self.manifest["config_sha256"])
        self.assertEqual(self.manifest["model"]["sha256"], digest(self.model / "model.onnx")["sha256"])

    def test_tensors_are_those_of_the_training(self):
        tensors = self.tensors()
        weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load(str(self.scratch / "t.onnx")).graph.initializer}
        trained = self.manifest["model"]["trained"]
        self.assertTrue(trained)
        for name in trained:
            self.assertEqual(tensors[name].tobytes(), weights[name].tobytes(), name)
            self.assertEqual(self.manifest["tensors"][name]["kind"], "parameter")
            self.assertEqual(self.manifest["tensors"][name + ".ema"]["kind"], "average")
            self.assertFalse(np.array_equal(tensors[name + ".ema"], tensors[name]), name)
        self.assertEqual(tensors["step"], 3)
        self.assertEqual((self.manifest["step"], self.manifest["position"]["steps"]), (3, 3))

    def test_pieces_written_elsewhere_are_read(self):
        folder = self.scratch / "pieces"
        folder.mkdir()
        manifest = dict(self.manifest, files={})
        ranks = [{}, {}, {}]
        for name, values in self.tensors().items():
            flat, pieces = values.reshape(-1), []
            for rank in range(len(ranks)):
                begin, end = flat.size * rank // len(ranks), flat.size * (rank + 1) // len(ranks)
                if begin == end:
                    continue
                ranks[rank][name] = values if end - begin == flat.size else flat[begin:end]
                pieces.append({"file": f"rank-{rank}.safetensors", "offset": begin, "length": end - begin})
            manifest["tensors"][name]["pieces"] = pieces
        for rank, tensors in enumerate(ranks):
            path = folder / f"rank-{rank}.safetensors"
            write_safetensors(path, tensors)
            manifest["files"][path.name] = digest(path)
        write_manifest(folder, manifest)
        gcomp("convert", folder, self.scratch / "again.onnx")
        self.assertEqual((self.scratch / "again.onnx").read_bytes(), (self.scratch / "t.onnx").read_bytes())


if __name__ == "__main__":
    unittest.main()
