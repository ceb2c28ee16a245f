"""What checkpoints cost a training: the share of time that --checkpoint-every takes.

    python bench/checkpoints/measure.py --gcomp build/bin/gcomp [--model M.onnx --data D.npz --loss L --batch B] [--every 50] [--rounds 3]

Trains the same steps in turns with a checkpoint after every N and with none, both with --run-dir, and prints the seconds of the steps
of each and their ratio, and what one checkpoint takes as a share of 50 steps. A run has 2 N + N / 2 steps, so that two checkpoints are
written while it goes on. Without --model it is GPT-2 124M, filled as ../shared/models/fill.py does, in batches of B rows of 64 tokens.
Needs numpy, and onnx for that.
"""
import argparse
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


def write_gpt2(folder, batch):
    import numpy as np
    import onnx

    models = pathlib.Path(os.environ.get("GCOMP_SHARED_DIR") or ROOT.parent / "shared") / "models"
    spec = importlib.util.spec_from_file_location("fill", models / "fill.py")
    fill = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fill)
    record = json.loads((models / "architectures/gpt2_124m.json").read_text())
    onnx.save(fill.load("gpt2_124m"), folder / "model.onnx")
    inputs, label = fill.batch("gpt2_124m", record["inputs"], record["draw"], record["label"])
    arrays = {name: np.resize(array, (batch, *array.shape[1:])) for name, array in {**inputs, "label": label}.items()}
    np.savez(folder / "data.npz", **arrays)
    return folder / "model.onnx", folder / "data.npz", record["loss"], batch


def seconds_of(options, model, data, loss, batch, folder, every):
    """Of all steps of one run."""
    run = folder / "run"
    arguments = [options.gcomp, "train", model, "--data", data, "--loss", loss, "--batch", batch, "--lr", "1e-6", "--steps", options.steps,
                 "--run-dir", run, "--overwrite", "--log-every", options.steps, "--json"]
    if every:
        arguments += ["--checkpoint-every", every, "--keep", "1"]
    done = subprocess.run(list(map(str, arguments)), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["seconds"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gcomp", default=ROOT / "build/bin/gcomp")
    parser.add_argument("--model")
    parser.add_argument("--data")
    parser.add_argument("--loss", default="cross_entropy")
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--every", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    options.steps = 2 * options.every + options.every // 2
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        workload = (options.model, options.data, options.loss, options.batch) if options.model else write_gpt2(folder, options.batch)
        times = {0: [], options.every: []}
        for _ in range(options.rounds):
            for every, list_of in times.items():
                list_of.append(seconds_of(options, *workload, folder, every))
    for every, list_of in times.items():
        label = f"every {every} steps" if every else "without"
        print(f"{label}: median {statistics.median(list_of):.2f} s, least {min(list_of):.2f} s of {options.steps} steps")
    without, with_them = times[0], times[options.every]
    print(f"share of time: {100 * (statistics.median(with_them) / statistics.median(without) - 1):.2f} % (medians), "
          f"{100 * (min(with_them) / min(without) - 1):.2f} % (least)")
    step, one = min(without) / options.steps, (min(with_them) - min(without)) / 2
    print(f"a step {step:.2f} s, a checkpoint {one:.2f} s: {100 * one / (50 * step):.2f} % of 50 steps (least)")


if __name__ == "__main__":
    main()
