"""The trainings that examples/ has, as their scripts run them, on the data of GCOMP_SHARED_DIR (default ../shared)."""
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

import recorded

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = recorded.shared_models().parent / "data"


def run(test, name, files, **settings):
    """What the script printed, stdout and stderr."""
    paths = [DATA / file for file in files]
    for path in paths:
        if not path.exists():
            test.skipTest(f"{path} is missing")
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {key: str(value) for key, value in settings.items()}
        done = subprocess.run([ROOT / "examples" / name / "train", *paths, folder], env=environment, capture_output=True, text=True)
    test.assertEqual(done.returncode, 0, done.stderr)
    return done.stdout, done.stderr


def char_gpt(test, **settings):
    """The best loss on the last tenth of tiny Shakespeare, and the text that the model then writes."""
    output, _ = run(test, "char_gpt", ["tinyshakespeare/input.txt"], **settings)
    test.assertIn("ROMEO:", output)
    return float(re.search(r"^best loss ([0-9.]+)", output, re.M)[1]), output[output.index("ROMEO:") :]


def mnist(test, **settings):
    """The share of the 2,000 images that are recognised, in percent."""
    output, _ = run(test, "mnist", ["mnist/t10k-images-idx3-ubyte.gz", "mnist/t10k-labels-idx1-ubyte.gz"], **settings)
    return float(re.search(r"^test accuracy ([0-9.]+) %", output, re.M)[1])


def photos(test, **settings):
    """The shares that are recognised, in percent: of the tenth of the folder that was split off, and of the 360 other digits."""
    output, _ = run(test, "photos", [], **settings)
    return [float(share) for share in re.findall(r"^(?:test )?accuracy ([0-9.]+) %", output, re.M)]
