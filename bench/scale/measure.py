"""Trains small networks with one rank on one core and with as many ranks as cores, and compares with what `gcomp scale` predicts.

    bench/scale/run [--ranks 2] [--rounds 5] [--steps 40] [--out build/scale.md] [WORKLOAD...]        (names as in WORKLOADS)

Weak: each rank has the batch of the one rank. Strong: the ranks divide it. Every process has one thread and a core of its own.

one       a rank alone, the other cores free as far as this command decides
beside    the same, while as many train alone on the other cores: what sharing the memory costs, without any exchange
ranks     the ranks together; exposed is what a step takes longer than `beside` for the same share; waited and moved are measured
          within the exchanges (`--time-exchanges`, which adds a message of a byte to each)
predicted by the simulator, from `beside`, the links measured by ping.py in this run, and the copy rate of a core
"""
import argparse
import datetime
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

import make_models

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MICRO_BATCHES = 4  # of a rank where the batch grows with the ranks

# model, rows of a rank, (array, shape of a row, exclusive upper bound or None for normal numbers), label's shape and classes
WORKLOADS = {
    "mlp": ("mlp", 256, ("x", (784,), None), ((), 10)),
    "cnn": ("cnn", 64, ("image", (3, 32, 32), None), ((), 10)),
    "gpt_small": ("gpt_small", 16, ("ids", (64,), 2048), ((64,), 2048)),
}


def write_data(path, workload, rows):
    _, _, (name, shape, bound), (label_shape, classes) = WORKLOADS[workload]
    random = np.random.default_rng(0)
    if bound is None:
        values = random.standard_normal((rows, *shape)).astype(np.float32)
    else:
        values = random.integers(0, bound, (rows, *shape))
    np.savez(path, **{name: values, "label": random.integers(0, classes, (rows, *label_shape))})


def cores():
    return sorted(os.sched_getaffinity(0))


class Measurement:
    def __init__(self, options, folder):
        self.options, self.folder, self.count = options, folder, 0

    def words(self, workload, batch, micro_batches):
        self.count += 1
        return [self.options.gcomp, "train", str(self.folder / f"{workload}.onnx"), "--data", str(self.folder / f"{workload}.npz"),
                "--loss", "cross_entropy", "--optimizer", "adamw", "--batch", str(batch), "--micro-batches", str(micro_batches),
                "--steps", str(self.options.steps), "--threads", "1", "--workers", "0", "--no-shuffle", "--json",
                "--out", str(self.folder / f"out{self.count}.onnx")]

    def alone(self, workload, batch, micro_batches, processes):
        """The time of a step, of each process by itself, all at once on cores of their own."""
        started = [self.start(["taskset", "-c", str(core), *self.words(workload, batch, micro_batches), "--distributed", "none"])
                   for core in cores()[:processes]]
        return max(self.result(process)["seconds"] for process in started) / self.options.steps

    def together(self, workload, batch, micro_batches):
        found = self.result(self.start([*self.mpirun(), *self.words(workload, batch, micro_batches), "--time-exchanges"]))
        steps, exchanges = self.options.steps, found["exchanges"]
        return {"step": found["seconds"] / steps, "waited": exchanges["waited_seconds"] / steps,
                "moved": exchanges["moved_seconds"] / steps, "bytes": exchanges["bytes"] / steps}

    def mpirun(self):
        command = ["mpirun", "-n", str(self.options.ranks), "--bind-to", "core"]
        return command + (["--allow-run-as-root"] if os.geteuid() == 0 else [])

    @staticmethod
    def start(words):
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def result(self, process):
        output, errors = process.communicate()
        if process.returncode:
            sys.exit(f"measure.py: {' '.join(process.args)}: {errors.strip()}")
        return json.loads(output)

    def ping(self):
        plugin = pathlib.Path(self.options.gcomp).parent / "libgcomp_mpi.so"
        return self.result(self.start([*self.mpirun(), sys.executable, str(HERE / "ping.py"), str(plugin)]))

    def predicted(self, workload, batch, micro_batches, step_seconds, links, strong):
        rates = f"copy={links['copy_bytes_per_second']:.0f}B/s,f64=1GFLOP/s,f32=1GFLOP/s,f16=1GFLOP/s,bf16=1GFLOP/s,launch=0us"
        words = [self.options.gcomp, "scale", str(self.folder / f"{workload}.onnx"), "--loss", "cross_entropy",
                 "--optimizer", "adamw", "--batch", str(batch), "--micro-batches", str(micro_batches), "--target", "cpu", "--rates", rates,
                 "--link", f"{links['bytes_per_second']:.0f}B/s,{links['latency_seconds'] * 1e9:.1f}ns", "--step-time",
                 f"{step_seconds * 1e9:.0f}ns", "--zero", str(self.options.zero), "--no-overlap", "--scaling",
                 "strong" if strong else "weak", "--ranks", str(self.options.ranks), "--json"]
        return self.result(self.start(words))["points"][0]


def measure(measurement, workload, links):
    """One row for each scaling: the least of the rounds, which take turns."""
    options = measurement.options
    rows = WORKLOADS[workload][1]
    weak = {"one": [], "beside": [], "ranks": []}
    strong = {"one": [], "beside": [], "ranks": []}
    for _ in range(options.rounds):
        weak["one"].append(measurement.alone(workload, rows, MICRO_BATCHES, 1))
        weak["beside"].append(measurement.alone(workload, rows, MICRO_BATCHES, options.ranks))
        weak["ranks"].append(measurement.together(workload, rows * options.ranks, MICRO_BATCHES * options.ranks))
        strong["one"].append(measurement.alone(workload, rows, MICRO_BATCHES * options.ranks, 1))
        strong["beside"].append(measurement.alone(workload, rows, MICRO_BATCHES * options.ranks, options.ranks))
        strong["ranks"].append(measurement.together(workload, rows, MICRO_BATCHES * options.ranks))
    for name, found, share in (("weak", weak, 1), ("strong", strong, options.ranks)):
        one, beside, ranks = min(found["one"]), min(found["beside"]), min(found["ranks"], key=lambda r: r["step"])
        predicted = measurement.predicted(workload, rows, MICRO_BATCHES * (options.ranks if name == "strong" else 1), beside, links,
                                          name == "strong")
        yield {"workload": workload, "scaling": name, "one": one, "beside": beside, "share": share,
               "predicted": predicted["step_seconds"], "predicted_exchange": predicted["exchange_seconds"], "rounds": found, **ranks}


def milliseconds(seconds):
    return f"{seconds * 1e3:.2f}"


def line(row):
    exposed = row["step"] - row["beside"] / row["share"]
    times = [row["one"], row["beside"], row["step"]]
    rest = [exposed, row["waited"], row["moved"], row["predicted_exchange"], row["predicted"]]
    return (f"| {row['workload']} | {row['scaling']} | {' | '.join(map(milliseconds, times))} | "
            f"{row['one'] / row['share'] / row['step']:.1%} | {row['beside'] / row['share'] / row['step']:.1%} | "
            f"{' | '.join(map(milliseconds, rest))} | {row['predicted'] / row['step'] - 1:+.1%} |")


def processor():
    for text in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if text.startswith("model name"):
            return text.split(":", 1)[1].strip()
    return "an unknown processor"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gcomp", default=str(ROOT / "build/bin/gcomp"))
    parser.add_argument("--ranks", type=int, default=2, help="a power of two, at most the cores")
    parser.add_argument("--rounds", type=int, default=5, help="the least time of so many counts")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--zero", type=int, default=0, help="how the ranks of this gcomp divide the update (gcomp scale --zero)")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build/scale.md", help="the table; all rounds go beside it as .json")
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD")
    options = parser.parse_args()
    if options.ranks < 2 or options.ranks & (options.ranks - 1) or options.ranks > len(cores()):
        sys.exit(f"measure.py: --ranks {options.ranks}: wanted a power of two from 2 to the {len(cores())} cores here")
    unknown = set(options.workloads) - set(WORKLOADS)
    if unknown:
        sys.exit(f"measure.py: {', '.join(sorted(unknown))}: wanted some of {', '.join(WORKLOADS)}")
    with tempfile.TemporaryDirectory() as temporary:
        measurement = Measurement(options, pathlib.Path(temporary))
        load = os.getloadavg()[0]
        links = measurement.ping()
        rows, lines = [], [
            f"{datetime.date.today()}, {options.ranks} of {len(cores())} cores of {processor()}, load {load:.1f} before the run"
            f"{' (OTHER WORK WAS RUNNING: no figure counts)' if load > 0.5 else ''}; {links['library']}: "
            f"{links['bytes_per_second'] / 1e9:.2f} GB/s, {links['latency_seconds'] * 1e6:.1f} us a message, at most "
            f"{links['largest_error']:.0%} off; copy of a core {links['copy_bytes_per_second'] / 1e9:.1f} GB/s; "
            f"{options.steps} steps, least of {options.rounds} rounds; milliseconds", "",
            "| | scaling | one | beside | ranks | efficiency to one | to beside | exposed | waited | moved "
            "| predicted exchange | predicted step | off |",
            "|---|---|---|---|---|---|---|---|---|---|---|---|---|"]
        print("\n".join(lines), flush=True)
        for workload in options.workloads or WORKLOADS:
            make_models.write(temporary, WORKLOADS[workload][0])
            write_data(pathlib.Path(temporary) / f"{workload}.npz", workload, 2 * options.ranks * WORKLOADS[workload][1])
            for row in measure(measurement, workload, links):
                rows.append(row)
                lines.append(line(row))
                print(lines[-1], flush=True)
        options.out.write_text("\n".join(lines) + "\n")
        options.out.with_suffix(".json").write_text(json.dumps({"links": links, "load": load, "rows": rows}, indent=1) + "\n")
        print(f"\nwrote {options.out} and {options.out.with_suffix('.json')}")


if __name__ == "__main__":
    main()
