"""What Nsight Compute says of the generated kernels that take most of a step of gcomp's:

    python ncu.py --gcomp PATH --models FOLDER --out FOLDER [--precision bf16] [--kernels 4] WORKLOAD

Prints ncu's tables, and leaves OUT/WORKLOAD-PRECISION-KERNEL.ncu-rep. A process profiles one launch
of one kernel.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys

from contenders import gcomp_command
from workloads import PRECISIONS, WORKLOADS

SECTIONS = ("SpeedOfLight", "MemoryWorkloadAnalysis", "Occupancy", "WarpStateStats")
GENERATED = re.compile(r"k[0-9a-f]{10}")  # the name of a generated kernel, by its text
ONE_STEP = ["--steps", 1, "--warmup", 1, "--profile"]  # with --profile the kernels are launched one by one


def parse_options():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("workload", choices=WORKLOADS)
    options.add_argument("--gcomp", default="gcomp")
    options.add_argument("--models", type=pathlib.Path, required=True)
    options.add_argument("--out", type=pathlib.Path, required=True)
    options.add_argument("--precision", choices=PRECISIONS, default="bf16")
    options.add_argument("--kernels", type=int, default=4)
    options = options.parse_args()
    options.gcomp_device = "cuda"
    return options


def longest_kernels(steps, count):
    """Names of generated kernels, by the time of all their launches together. Products are told without a name."""
    times = {}
    for step in steps:
        if not step["product"] and GENERATED.fullmatch(step["what"]):
            times[step["what"]] = times.get(step["what"], 0) + step["us"]
    return sorted(times, key=times.get, reverse=True)[:count]


def main():
    options = parse_options()
    options.out.mkdir(parents=True, exist_ok=True)
    command = [str(part) for part in gcomp_command(options, WORKLOADS[options.workload], options.precision, ["--json", *ONE_STEP])]
    steps = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)["profile"]
    names, failed = longest_kernels(steps, options.kernels), 0
    if not names:
        sys.exit("ncu.py: no generated kernel in this step")
    for name in names:
        kept = options.out / f"{options.workload}-{options.precision}-{name}"
        sections = [argument for section in SECTIONS for argument in ("--section", section)]
        under = ["ncu", "--target-processes", "all", "--kernel-name-base", "function", "--kernel-name", name, "--launch-count", "1",
                 *sections, "--export", str(kept), "--force-overwrite", "--print-details", "all"]
        print(f"== {name}", flush=True)
        failed += subprocess.run(under + command).returncode != 0
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
