"""Who is timed: gcomp, PyTorch in its modes, JAX. Each prints a line of JSON with losses and times."""
import os
import pathlib
import statistics
import sys

from report import GCOMP, TUNED
from workloads import COMPARED_LOSSES, GCOMP_PRECISIONS, read_record

TUNING = {GCOMP: [], TUNED: ["--tune"]}
HERE = pathlib.Path(__file__).resolve().parent
STEP_MODES = ("eager", "compile", "reduce-overhead", "max-autotune", "graph")
KERNEL_MODES = ("eager", "compile", "max-autotune")


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


def gcomp_command(options, workload, precision, extra, command="bench"):
    size, how = read_record(options.models, workload.name)["size"], workload.optimizer
    command = [options.gcomp, command, options.models / f"{workload.name}.onnx", "--data", options.models / f"{workload.name}.npz",
               "--loss", workload.loss, "--optimizer", how["name"], "--batch", workload.size(size).batch, "--device",
               options.gcomp_device, *GCOMP_PRECISIONS[precision], *extra]
    for key, value in how.items():
        if key != "name":
            command += ["--" + key.replace("_", "-"), value]
    return command


def gcomp_environment(options):
    if not options.gcomp_libraries:
        return None
    rest = os.environ.get("LD_LIBRARY_PATH")
    return os.environ | {"LD_LIBRARY_PATH": options.gcomp_libraries + (f":{rest}" if rest else "")}


def torch_peer(options, workload, name, precision="f32", mode="eager", layout="nchw", steps=None, more=()):
    command = [sys.executable, HERE / "torch_peer.py", workload.name, "--size", read_record(options.models, workload.name)["size"],
               "--precision", precision, "--device", options.device, "--steps", steps or options.steps,
               "--mode", mode, "--layout", layout]
    return Contender(name, [*command, *more], "torch")


def reference_of(options, workload, precision):
    """Whose first losses and gradient norms the others are held to."""
    return torch_peer(options, workload, "reference", precision, steps=1, more=["--warmup", 0, "--norms"])


def gcomp_steps(options, workload, precision, extra):
    """A command that prints gcomp's first losses and gradient norms."""
    train = gcomp_command(options, workload, precision, ["--steps", COMPARED_LOSSES, *extra], "train")
    return [sys.executable, HERE / "gcomp_steps.py", *train]


def has_products(workload):
    """What --tune has an influence on."""
    return not workload.kernel or workload.network == "matmul"


def contenders_of(options, workload, precision):
    """In the order of their turns."""
    found, allowed = [], options.modes.split(",")
    modes = [mode for mode in (KERNEL_MODES if workload.kernel else STEP_MODES) if mode in allowed]
    if options.device == "cpu":  # no CUDA graphs there
        modes = [mode for mode in modes if mode in ("eager", "compile")]
    for layout in workload.layouts:
        for mode in modes:
            name = f"PyTorch {mode}" + (f", {layout}" if layout != "nchw" else "")
            found.append(torch_peer(options, workload, name, precision, mode, layout))
    extra = ["--steps", options.steps] + (["--profile"] if workload.kernel else [])
    ours = TUNING if has_products(workload) and options.gcomp_device == "cuda" else [GCOMP]
    found[:0] = [Contender(name, gcomp_command(options, workload, precision, ["--json", *extra, *TUNING[name]]), "gcomp",
                           gcomp_environment(options)) for name in ours]
    if options.has_jax:
        size = read_record(options.models, workload.name)["size"]
        command = [options.jax_python, HERE / "jax_peer.py", workload.name, "--size", size, "--precision", precision,
                   "--device", options.device, "--steps", options.steps, "--models", options.models]
        found.append(Contender("JAX jit", command, "jax"))
    return found
