"""The recorded trainings under tests/fixtures/models and, where it is found, ../shared/models; and gcomp as a subprocess."""
import json
import os
import pathlib
import subprocess

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]


def shared_models():
    return pathlib.Path(os.environ.get("GCOMP_SHARED_DIR") or ROOT.parent / "shared") / "models"


def model_folders():
    """{name: folder}; the full recordings win over the ones cut to fit the project."""
    found = {}
    for models in (ROOT / "tests/fixtures/models", shared_models()):
        for recipe in sorted(models.glob("*/recipe.json")):
            found[recipe.parent.name] = recipe.parent
    return found


def recipe_of(folder):
    return json.loads((folder / "recipe.json").read_text())


def train_options(recipe):
    """The recipe as options of `gcomp train`."""
    options = ["--loss", recipe["loss"], "--optimizer", recipe["optimizer"], "--batch", str(recipe["batch"]), "--no-shuffle"]
    for name, value in recipe["options"].items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            options.append(flag)
        elif isinstance(value, list):
            options += [flag, ",".join(map(str, value))]
        else:
            options += [flag, str(value)]
    return options


def gcomp(*arguments):
    """Runs gcomp and returns what it wrote; AssertionError with its messages where it fails."""
    done = subprocess.run([os.environ["GCOMP"], *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, f"gcomp {' '.join(map(str, arguments))}\nended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done


def batch_of(folder, first, count):
    """Rows of train.npz without the label: the model's inputs."""
    with np.load(folder / "train.npz") as data:
        return {name: data[name][first:first + count] for name in data.files if name != "label"}


def step_losses(metrics_file):
    rows = [json.loads(line) for line in pathlib.Path(metrics_file).read_text().splitlines()]
    return [row["loss"] for row in rows if "step" in row and "eval" not in row]
