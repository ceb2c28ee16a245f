"""Times gcomp's training step beside PyTorch's and JAX's on one GPU, in turns, and writes one table and one file of raw figures.

    python compare.py --gcomp PATH --models FOLDER --out FOLDER [--rounds 2] [--steps 50] [--minutes 0] [WORKLOAD...]

Each turn is a process of its own, so that nobody holds memory while another runs. The first losses of every contender must be
finite and agree with those of PyTorch eager in float32, taken once for each workload, and gcomp's gradient norms in bf16 too
(agreement.py says how far), else its times are dropped and the table says why. OUT/raw.json is written after every turn; a run that is
started again with the same OUT goes on where it ended, by --minutes or by SIGTERM. The exit status is 1 where gcomp has no figure or
one that was refused, 75 where something is left to do.
"""
import argparse
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

import processes
import report
from agreement import disagreement, straying
from contenders import HERE, STEP_MODES, TUNING, contenders_of, gcomp_command, gcomp_environment, gcomp_steps, reference_of
from fill_weights import fill
from turns import OutOfTime, Turn
from workloads import PRECISIONS, WORKLOADS, read_record

UNFINISHED = 75  # exit status


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
    options.add_argument("--minutes", type=float, default=0, help="be done after so many; 0 for no end")
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


class Comparison:
    def __init__(self, options, size):
        self.options, self.begin = options, time.monotonic()
        self.run = Turn(options.out / "log.txt", options.limit, options.minutes)
        self.path = options.out / "raw.json"
        nothing = {"workloads": {}, "references": {}, "first_steps": {}, "commands": []}
        self.raw = json.loads(self.path.read_text()) if self.path.exists() else nothing
        if self.raw.get("size", size) != size:
            sys.exit(f"compare.py: {self.path} holds figures of size {self.raw['size']}, these models are {size}; take another --out")
        self.raw["commands"].append(" ".join(sys.argv))
        self.raw |= {"machine": machine(options), "size": size, "unfinished": False}

    def save(self):
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(self.raw, indent=1) + "\n")
        part.rename(self.path)
        (self.options.out / "table.md").write_text(report.markdown(self.raw))

    def rates(self):
        if "rates" in self.raw:
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

    def wants(self, workload, precision, contender, number):
        entry = self.raw["workloads"].get(workload.name, {}).get(precision, {}).get(contender.name, {"turns": []})
        return len(entry["turns"]) <= number and ("error" not in entry or (self.options.retry and number == 0))

    def fill(self, workload):
        """Takes a minute for a large network that was never timed on this machine."""
        self.run.check_time()
        fill(self.options.models, workload.name)

    def reference(self, workload, precision):
        """Of PyTorch eager: first losses and gradient norms, or None. Computed once."""
        found = self.raw["references"].setdefault(workload.name, {})
        if precision not in found:
            taken = reference_of(self.options, workload, precision).turn(self.run)
            if "error" in taken:
                self.say(f"{workload.name} {precision}: no reference: {taken['error']}")
                return None
            found[precision] = {"losses": taken["losses"], "norms": taken["norms"]}
            self.save()
        return found[precision]

    def straying(self, workload, precision, contender):
        """Why gcomp's first steps in bf16 are too far from float32, or None."""
        if contender.kind != "gcomp" or precision != "bf16":
            return None
        exact, rounded = self.reference(workload, "f32"), self.reference(workload, precision)
        if not exact or not rounded:
            return None
        taken = self.raw["first_steps"].setdefault(workload.name, {})
        refused = "error" in self.raw["workloads"].get(workload.name, {}).get(precision, {}).get(contender.name, {})
        if contender.name not in taken or refused:
            command = gcomp_steps(self.options, workload, precision, TUNING[contender.name])
            found = self.run(command, gcomp_environment(self.options))
            if "error" in found:
                return found["error"]
            taken[contender.name] = found
            self.save()
        found = taken[contender.name]
        return (straying("losses", found["losses"], rounded["losses"], exact["losses"]) or
                straying("gradient norms", found["norms"], rounded["norms"], exact["norms"]))

    def take_turn(self, workload, precision, contender):
        self.fill(workload)
        reference, why = self.reference(workload, "f32"), self.straying(workload, precision, contender)
        figures = {"error": why} if why else contender.turn(self.run)
        entry = self.raw["workloads"].setdefault(workload.name, {}).setdefault(precision, {}).setdefault(
            contender.name, {"kind": contender.kind, "turns": []})
        entry.pop("error", None)
        if "error" not in figures:
            why = disagreement(figures["losses"], reference["losses"], precision) if reference else None
            figures = {"error": why} if why else figures | {"compared": reference is not None}
        entry.update(figures) if "error" in figures else entry["turns"].append(figures)
        took = figures.get("error") or f"median {figures.get('kernels_ms', figures['median_ms']):.3f} ms"
        self.say(f"{workload.name} {precision} {contender.name}: {took}")
        self.save()

    def profile(self, workload, precision, contender):
        """Where gcomp's step goes, once for each precision, and once more with --tune."""
        profiles = self.raw.setdefault("profiles", {}).setdefault(workload.name, {}).setdefault(precision, {})
        turns = self.raw["workloads"].get(workload.name, {}).get(precision, {}).get(contender.name, {}).get("turns")
        if not turns or contender.name in profiles:
            return
        if workload.kernel:
            profiles[contender.name] = turns[0]["profile"]
        else:
            self.fill(workload)
            extra = ["--json", "--steps", 5, "--warmup", 2, "--profile", *TUNING[contender.name]]
            found = self.run(gcomp_command(self.options, workload, precision, extra), gcomp_environment(self.options))
            if "error" not in found:
                profiles[contender.name] = found["profile"]
        self.save()

    def workload(self, workload):
        wanted = [p for p in PRECISIONS if p in self.options.precisions.split(",") and p in workload.precisions]
        turns = [(precision, contender, number) for number in range(self.options.rounds) for precision in wanted
                 for contender in contenders_of(self.options, workload, precision)]
        for precision, contender, number in turns:
            if self.wants(workload, precision, contender, number):
                self.take_turn(workload, precision, contender)
            if contender.kind == "gcomp":
                self.profile(workload, precision, contender)

    def everything(self, names):
        """Whether nothing was cut."""
        try:
            self.rates()
            for name in names:
                self.workload(WORKLOADS[name])
        except OutOfTime:
            self.raw["unfinished"] = True
        self.save()
        return not self.raw["unfinished"]


def machine(options):
    found = {"device": options.device, "gcomp_device": options.gcomp_device}
    if shutil.which("nvidia-smi") and options.device != "cpu":
        query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total,clocks.max.sm,power.limit", "--format=csv,noheader"]
        done = subprocess.run(query, capture_output=True, text=True)
        found["nvidia-smi"] = done.stdout.strip()
    return found


def main():
    options = parse_options()
    processes.heed_signals()
    options.out.mkdir(parents=True, exist_ok=True)
    options.has_jax = (importlib.util.find_spec("jax") is not None if options.jax_python == sys.executable else True)
    names = options.workloads or [name for name in WORKLOADS if (options.models / f"{name}.json").exists()]
    if not names:
        sys.exit(f"compare.py: no models in {options.models}; make_models.py writes them, on a machine with PyTorch and onnx")
    comparison = Comparison(options, read_record(options.models, names[0])["size"])
    finished = comparison.everything(names)
    print((options.out / "table.md").read_text())
    if not finished:
        sys.exit(UNFINISHED)
    sys.exit(1 if report.failures(comparison.raw) else 0)


if __name__ == "__main__":
    main()
