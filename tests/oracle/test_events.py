"""TensorBoard's own reader reads the events that gcomp writes."""
import json
import pathlib
import tempfile
import unittest

import numpy as np
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from recorded import gcomp, model_folders, recipe_of, train_options


def scalars(folder, tag):
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    return [(event.step, event.value) for event in events.Scalars(tag)]


class Events(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(scratch.name)

    def train(self, run, *more):
        folder = model_folders()["mlp"]
        gcomp("train", folder / "model.onnx", "--data", folder / "train.npz", "--eval-data", folder / "train.npz", *train_options(recipe_of(folder)),
              "--eval-every", 4, "--clip-norm", 1, "--run-dir", run, *more)
        return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]

    def compare(self, run, lines):
        steps, evaluations = ([line for line in lines if ("eval" in line) == wanted] for wanted in (False, True))
        for tag, rows, name in (("train/loss", steps, "loss"), ("train/lr", steps, "lr"), ("train/gradient_norm", steps, "gradient_norm"),
                                ("eval/loss", evaluations, "loss")):
            self.assertEqual(scalars(run, tag), [(row["step"], float(np.float32(row[name]))) for row in rows], tag)

    def test_the_scalars_are_those_of_the_lines(self):
        lines = self.train(self.scratch / "run", "--steps", 10)
        self.assertEqual(len([line for line in lines if "eval" not in line]), 10)
        self.compare(self.scratch / "run", lines)

    def test_the_table_has_them_too(self):
        lines = self.train(self.scratch / "run", "--steps", 10)
        table = np.genfromtxt(self.scratch / "run" / "metrics.csv", delimiter=",", names=True)
        losses = table["loss"][~np.isnan(table["loss"])]
        np.testing.assert_array_equal(losses, [line["loss"] for line in lines if "eval" not in line])
        evaluated = table["eval_loss"][~np.isnan(table["eval_loss"])]
        np.testing.assert_array_equal(evaluated, [line["loss"] for line in lines if "eval" in line])
