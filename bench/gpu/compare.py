"""Times gcomp's training step beside PyTorch's and JAX's on one GPU, in turns, and writes one table and one file of raw figures.

    python compare.py --gcomp PATH --models FOLDER --out FOLDER [--rounds 2] [--steps 50] [--minutes 0] [WORKLOAD...]

Each turn is a process of its own, so that nobody holds memory while another runs. The first losses of every contender must be
finite and agree with those of PyTorch in float32 (three losses to 1e-3; the first to 2e-2 where products are rounded), else its
times are dropped and the table says why. OUT/raw.json is written after every turn; a run that is started again with the same OUT goes on where it ended.
"""
import argparse
import importlib.util
import json
import math
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time

import report
from fill_weights import fill, read_record
from workloads import GCOMP_PRECISIONS, PRECISIONS, WORKLOADS

HERE = pathlib.Path(__file__).resolve().parent
COMPARED_LOSSES = 3
# (losses that must agree, relative tolerance): where products are rounded, updates may part soon.
AGREEMENT = {"f32": (COMPARED_LOSSES, 1e-3), "tf32": (1, 2e-2), "bf16": (1, 2e-2)}
STEP_MODES = ("eager", "compile", "reduce-overhead", "max-autotune", "graph")
KERNEL_MODES = ("eager", "compile", "max-autotune")
REFERENCE = "PyTorch eager"


def parse_options():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=f"of {', '.join(WORKLOADS)}; default all")
    options.add_argument("--gcomp", default="gcomp", help="the binary")
    options.add_argument("--models", type=pathlib.Path, required=True, help="what make_models.py wrote")
    options.add_argument("--out", type=pathlib.Path, required=True, help="gets raw.json, table.md and log.txt")
    options.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu is for trying everything out")
    options.add_argument("--gcomp-device", choices=("cuda", "cpu"), help="another device for gcomp alone")
    options.add_argument("--gcomp-libraries", help="a folder where gcomp alone looks for NVIDIA's libraries first")
    options.add_argument("--jax-python", default=sys.executable, help="an interpreter that has JAX")
    options.add_argument("--precisions", default=",".join(PRECISIONS), help="which of f32, tf32, bf16")
    options.add_argument("--modes", default=",".join(STEP_MODES), help="which of PyTorch's modes")
    options.add_argument("--steps", type=int, default=50, help="timed steps of a turn")
    options.add_argument("--rounds", type=int, default=2, help="turns of each contender")
    options.add_argument("--limit", type=float, default=900, help="seconds for one turn; a cold max-autotune of a large network takes several minutes")
    options.add_argument("--retry", action="store_true", help="try again what failed in earlier runs with the same --out")
    options.add_argument("--minutes", type=float, default=0, help="start no turn later than this; 0 for no end")
    options = options.parse_args()
    unknown = sorted(set(options.workloads) - set(WORKLOADS))
    if unknown:
        sys.exit(f"compare.py: no workload {', '.join(unknown)}; there are {', '.join(WORKLOADS)}")
    for name, given, known in (("--precisions", options.precisions, PRECISIONS), ("--modes", options.modes, STEP_MODES)):
        unknown = sorted(set(given.split(",")) - set(known))
        if unknown:
            sys.exit(f"compare.py: {name} {', '.join(unknown)}: wanted some of {','.join(known)}")
    options.gcomp_device = options.gcomp_device or options.device
    if options.device == "cpu":
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # such a run shows no speed; it should be soon over
    return options


class Turn:
    """Runs one command that prints a line of JSON; the log keeps command and error output."""

    def __init__(self, options):
        self.limit, self.log = options.limit, options.out / "log.txt"

    def __call__(self, command, environment=None):
        """The JSON, or {"error": why}."""
        command = [str(part) for part in command]
        try:
            child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
                                     start_new_session=True)
        except OSError as error:
            return {"error": f"{command[0]}: {error.strerror}"}
        late = threading.Timer(self.limit, os.killpg, (child.pid, signal.SIGKILL))  # compilers that it started go too
        late.start()
        output, errors = child.communicate()
        late.cancel()
        with self.log.open("a") as log:
            log.write(f"$ {' '.join(command)}\n{errors}ended with {child.returncode}\n\n")
        if child.returncode == 0:
            return json.loads(output.strip().splitlines()[-1])
        if child.returncode == -signal.SIGKILL:
            return {"error": f"killed: not done after {self.limit:.0f} s, or out of the machine's memory"}
        lines = [line for line in errors.strip().splitlines() if line.strip()] or ["no message"]
        return {"error": f"ended with {child.returncode}: {lines[-1][:300]}"}


class Contender:
    def __init__(self, name, command, kind, environment=None):
        self.name, self.command, self.kind, self.environment = name, command, kind, environment

    def turn(self, run):
        """{"losses", "median_ms", "min_ms", "mean_ms", ...} or {"error"}."""
        found = run(self.command, self.environment)
        if "error" in found:
            return found
        if self.kind == "gcomp":
            return from_gcomp(found)
        times = found.pop("times_ms")
        return found | {"median_ms": statistics.median(times), "min_ms": min(times), "mean_ms": statistics.fmean(times)}


def from_gcomp(found):
    figures = {key: found[key] for key in ("median_ms", "min_ms", "mean_ms", "device", "launches", "memory")}
    figures |= {"losses": found["losses"][:COMPARED_LOSSES], "allocated_bytes": found["memory"]["total"],
                "first_steps_seconds": found["setup_seconds"]}
    if "profile" in found:
        figures["profile"] = found["profile"]
        figures["kernels_ms"] = sum(step["us"] for step in found["profile"]) / 1e3
    return figures


def gcomp_command(options, workload, precision, extra):
    size, how = read_record(options.models, workload.name)["size"], workload.optimizer
    command = [options.gcomp, "bench", options.models / f"{workload.name}.onnx", "--data", options.models / f"{workload.name}.npz",
               "--loss", workload.loss, "--optimizer", how["name"], "--batch", workload.size(size).batch, "--device",
               options.gcomp_device, "--json", *GCOMP_PRECISIONS[precision], *extra]
    for key, value in how.items():
        if key != "name":
            command += ["--" + key.replace("_", "-"), value]
    return command


def gcomp_environment(options):
    if not options.gcomp_libraries:
        return None
    rest = os.environ.get("LD_LIBRARY_PATH")
    return os.environ | {"LD_LIBRARY_PATH": options.gcomp_libraries + (f":{rest}" if rest else "")}


def contenders_of(options, workload, precision):
    """In the order of their turns: the reference first."""
    size = read_record(options.models, workload.name)["size"]
    same = [workload.name, "--size", size, "--precision", precision, "--device", options.device, "--steps", options.steps]
    found, allowed = [], options.modes.split(",")
    modes = [mode for mode in (KERNEL_MODES if workload.kernel else STEP_MODES) if mode in allowed or mode == "eager"]
    if options.device == "cpu":  # no CUDA graphs there
        modes = [mode for mode in modes if mode in ("eager", "compile")]
    for layout in workload.layouts:
        for mode in modes:
            name = f"PyTorch {mode}" + (f", {layout}" if layout != "nchw" else "")
            found.append(Contender(name, [sys.executable, HERE / "torch_peer.py", *same, "--mode", mode, "--layout", layout], "torch"))
    if precision in GCOMP_PRECISIONS:
        extra = ["--steps", options.steps] + (["--profile"] if workload.kernel else [])
        gcomp = Contender("gcomp", gcomp_command(options, workload, precision, extra), "gcomp", gcomp_environment(options))
        found.insert(1, gcomp)
    if options.has_jax:
        found.append(Contender("JAX jit", [options.jax_python, HERE / "jax_peer.py", *same, "--models", options.models], "jax"))
    return found


def disagreement(losses, reference, precision):
    """Why these first losses are not those of the reference, or None."""
    if not all(map(math.isfinite, losses)):
        return f"losses {losses}"
    count, tolerance = AGREEMENT[precision]
    for step, (a, b) in enumerate(zip(losses[:count], reference or losses), 1):
        if not math.isclose(a, b, rel_tol=tolerance):
            return f"the loss of step {step} is {a:.6g}, PyTorch's in float32 {b:.6g}"
    return None


class Comparison:
    def __init__(self, options, size):
        self.options, self.run, self.begin = options, Turn(options), time.monotonic()
        self.path = options.out / "raw.json"
        self.raw = json.loads(self.path.read_text()) if self.path.exists() else {"workloads": {}, "commands": []}
        if self.raw.get("size", size) != size:
            sys.exit(f"compare.py: {self.path} holds figures of size {self.raw['size']}, these models are {size}; take another --out")
        self.raw["commands"].append(" ".join(sys.argv))
        self.raw |= {"machine": machine(options), "size": size, "unfinished": False}

    def save(self):
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(self.raw, indent=1) + "\n")
        part.rename(self.path)
        (self.options.out / "table.md").write_text(report.markdown(self.raw))

    def out_of_time(self):
        return self.options.minutes > 0 and time.monotonic() - self.begin > 60 * self.options.minutes

    def rates(self):
        if "rates" in self.raw or self.out_of_time():
            return
        self.say("rates of the machine")
        modes = [mode for mode in ("eager", "compile") if mode in self.options.modes.split(",")]
        found = self.run([sys.executable, HERE / "rates.py", "--size", self.raw["size"], "--device", self.options.device, "--modes", *modes])
        if "error" not in found:
            self.raw["rates"] = found
        else:
            self.say(found["error"])

    def say(self, text):
        print(f"[{time.monotonic() - self.begin:6.1f} s] {text}", file=sys.stderr, flush=True)

    def take_turn(self, workload, precision, contender, number):
        entry = self.raw["workloads"].setdefault(workload.name, {}).setdefault(precision, {}).setdefault(contender.name, {"turns": []})
        if len(entry["turns"]) > number or ("error" in entry and not (self.options.retry and number == 0)):
            return
        if self.out_of_time():
            self.raw["unfinished"] = True
            return
        entry.pop("error", None)
        figures = contender.turn(self.run)
        if "error" not in figures:
            reference = self.raw["workloads"][workload.name].get("reference")
            if reference is None and contender.name == REFERENCE and precision == "f32":
                reference = self.raw["workloads"][workload.name]["reference"] = figures["losses"]
            why = disagreement(figures["losses"], reference, precision)
            figures = {"error": why} if why else figures | {"compared": reference is not None}
        entry.update(figures) if "error" in figures else entry["turns"].append(figures)
        took = figures.get("error") or f"median {figures.get('kernels_ms', figures['median_ms']):.3f} ms"
        self.say(f"{workload.name} {precision} {contender.name}: {took}")
        self.save()

    def profile(self, workload, precision):
        """Where gcomp's step goes, once for each precision."""
        profiles = self.raw.setdefault("profiles", {}).setdefault(workload.name, {})
        gcomp = self.raw["workloads"].get(workload.name, {}).get(precision, {}).get("gcomp", {})
        if not gcomp.get("turns") or precision in profiles or self.out_of_time():
            return
        if workload.kernel:
            profiles[precision] = gcomp["turns"][0]["profile"]
        else:
            command = gcomp_command(self.options, workload, precision, ["--steps", 5, "--warmup", 2, "--profile"])
            found = self.run(command, gcomp_environment(self.options))
            if "error" not in found:
                profiles[precision] = found["profile"]
        self.save()

    def workload(self, workload):
        fill(self.options.models, workload.name)
        wanted = [p for p in PRECISIONS if p in self.options.precisions.split(",") and p in workload.precisions]
        for number in range(self.options.rounds):
            for precision in wanted:
                for contender in contenders_of(self.options, workload, precision):
                    self.take_turn(workload, precision, contender, number)
                self.profile(workload, precision)


def machine(options):
    found = {"device": options.device, "gcomp_device": options.gcomp_device}
    if shutil.which("nvidia-smi") and options.device != "cpu":
        query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total,clocks.max.sm,power.limit", "--format=csv,noheader"]
        done = subprocess.run(query, capture_output=True, text=True)
        found["nvidia-smi"] = done.stdout.strip()
    return found


def main():
    options = parse_options()
    options.out.mkdir(parents=True, exist_ok=True)
    options.has_jax = (importlib.util.find_spec("jax") is not None if options.jax_python == sys.executable else True)
    names = options.workloads or [name for name in WORKLOADS if (options.models / f"{name}.json").exists()]
    if not names:
        sys.exit(f"compare.py: no models in {options.models}; make_models.py writes them, on a machine with PyTorch and onnx")
    comparison = Comparison(options, read_record(options.models, names[0])["size"])
    comparison.rates()
    for name in names:
        comparison.workload(WORKLOADS[name])
    comparison.save()
    print((options.out / "table.md").read_text())


if __name__ == "__main__":
    main()
