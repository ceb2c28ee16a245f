"""Compiles models of growing size and prints, for each, the passes' time, the whole command's, and the most memory it held.

    bench/compile/run [--gcomp build/bin/gcomp] [--rounds 3] [NAME...]        (names as in make_models.py)
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import tempfile
import time

import make_models

ROOT = pathlib.Path(__file__).resolve().parents[2]
GPTS = ["gpt12", "gpt24", "gpt48", "gpt96", "gpt192"]
CHAINS = ["relu10000", "relu100000", "softmax1000", "softmax10000", "sum2000", "sum20000", "views10000"]


def loss_of(name):
    return "cross_entropy" if name.startswith("gpt") else "mse"


def compiled(gcomp, model, name, folder):
    """Seconds of the passes, of the whole command, and MiB, of one compilation of a training step; kernels come from a warm cache."""
    command = [gcomp, "compile", str(model), "--train", "--loss", loss_of(name), "--dim", "batch=2", "-o", str(folder / "out.gcx"),
               "--time-passes", "--json"]
    environment = dict(os.environ, XDG_CACHE_HOME=str(folder / "cache"))
    with open(folder / "output", "w+b") as output, open(folder / "errors", "w+b") as errors:  # of any length, as no pipe is
        start = time.monotonic()
        process = subprocess.Popen(command, stdout=output, stderr=errors, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - start
    if status:
        raise SystemExit(f"{name}: {(folder / 'errors').read_text().strip()}")
    rows = json.loads((folder / "output").read_text())["phases"]
    passes = sum(row["seconds"] for row in rows if row["name"] == "passes")
    return passes, seconds, usage.ru_maxrss / 1024


def measure(gcomp, name, rounds, folder):
    make_models.write(folder, name)
    model = folder / f"{name}.onnx"
    compiled(gcomp, model, name, folder)  # fills the cache of kernels
    runs = [compiled(gcomp, model, name, folder) for _ in range(rounds)]
    return [min(column) for column in zip(*runs)]


def report(title, names, gcomp, rounds, folder):
    print(f"\n{title}\n\n| model | passes | a node or layer | whole command | most memory |\n|---|---|---|---|---|")
    by_name = {}
    for name in names:
        passes, whole, memory = measure(gcomp, name, rounds, folder)
        size = int(re.search(r"\d+", name)[0])
        by_name[name] = passes / size
        print(f"| {name} | {passes:.3f} s | {1e3 * passes / size:.3f} ms | {whole:.2f} s | {memory:.0f} MiB |", flush=True)
    return by_name


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gcomp", default=str(ROOT / "build/bin/gcomp"))
    parser.add_argument("--rounds", type=int, default=3, help="the least time of so many counts")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        common = (arguments.gcomp, arguments.rounds, pathlib.Path(temporary))
        if arguments.names:
            report("Training steps", arguments.names, *common)
        else:
            layer = report("GPTs of d 32, training steps", GPTS, *common)
            print(f"\nA layer of gpt192 takes the passes {layer['gpt192'] / layer['gpt24']:.2f} times as long as one of gpt24.")
            report("Chains, training steps", CHAINS, *common)
