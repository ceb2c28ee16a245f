"""Times gcomp beside its peers on the same graphs, data, cores, threads and vector instructions, in turns, and prints tables.

    python compare.py [--gcomp build/bin/gcomp] [--isa avx2|avx512|all] [--steps 50] [--rounds 3] [WORKLOAD...]

Training steps beside PyTorch's, forward passes beside onnxruntime's; WORKLOAD is C1 to C10 or a name such as gpt. Before any timing
the first losses of gcomp must match PyTorch's, and its outputs onnxruntime's (1e-3 relative). Each round gives every contender its
warm-up (10 steps; 3 in further rounds where a step takes 50 ms or more) and then its share of --steps, or more that fill 0.2 s. A
median is that of the rounds' medians. Ratios are gcomp over the best peer, by medians; below 1 gcomp is faster. The machine's own
rates (rates.cpp) are measured before each workload; shares are those of the best so far.

Of gcomp it runs   gcomp bench MODEL.onnx --data x.npz --loss cross_entropy --optimizer adam --lr 1e-3 --batch 128 --steps 17 --json
             and   gcomp bench MODEL.onnx --data x.npz --inference --batch 128 --steps 17 --json
             and   gcomp run MODEL.onnx --inputs x.npz --outputs y.npz --batch 128
"""
import argparse
import importlib.metadata
import math
import pathlib
import subprocess
import sys

import numpy as np

import machine
import tables
from contenders import Failed, Gcomp, Server, Turn

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
COMPARED_LOSSES = 5
TOLERANCE = 1e-3
LOSS_TOLERANCE = {"f32": TOLERANCE, "bf16": 4 * 2**-8}  # two computations may each stray by twice the rounding
MODES = ("eager", "compile", "compile max-autotune")


def parse_options():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("workloads", nargs="*", metavar="WORKLOAD", help="C1 to C10, or names such as mnist_cnn; default all")
    options.add_argument("--isa", choices=["avx2", "avx512", "all"], default="all", help="default all that the processor has")
    options.add_argument("--what", choices=["steps", "forward", "all"], default="all", help="training steps, or forward passes")
    options.add_argument("--modes", default=",".join(MODES), help="PyTorch's, separated by commas; default %(default)s")
    options.add_argument("--gcomp", default=str(ROOT / "build/bin/gcomp"))
    options.add_argument("--winograd", action="store_true", help="gcomp computes 3x3 convolutions by Winograd's algorithm")
    options.add_argument("--precision", choices=["f32", "bf16"], default="f32",
                         help="of training steps: bf16 is mixed precision, PyTorch's by autocast; default f32")
    options.add_argument("--models", default=str(ROOT / "build/bench"), help="where the exported models lie or are put")
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--steps", type=int, default=50, help="timed steps of each contender, over all rounds")
    options.add_argument("--rounds", type=int, default=3)
    options = options.parse_args()
    if options.precision != "f32":
        options.what = "steps"
    if unknown := set(options.modes.split(",")) - set(MODES):
        sys.exit(f"compare.py: --modes: no {', '.join(unknown)}; there are {', '.join(MODES)}")
    for name in ("threads", "steps", "rounds"):
        if getattr(options, name) < 1:
            sys.exit(f"compare.py: --{name}: wanted 1 or more")
    return options


def check_losses(ours, theirs, tolerance):
    for step, (a, b) in enumerate(zip(ours, theirs, strict=True), 1):
        if not math.isclose(a, b, rel_tol=tolerance):
            raise Failed(f"the loss of step {step} is {a} with gcomp and {b} with PyTorch; no timing")


def check_outputs(ours, theirs):
    """Files of arrays by their names, each within TOLERANCE of its largest element."""
    with np.load(ours) as a, np.load(theirs) as b:
        for name in b.files:
            difference, largest = np.abs(a[name] - b[name]).max(), np.abs(b[name]).max()
            if not difference <= TOLERANCE * largest:
                raise Failed(f"outputs '{name}' of gcomp and onnxruntime differ by {difference}, their largest is {largest}; "
                             "no timing")


def measure_step(options, workload, isa):
    """{contender: Times}, gcomp first, and {contender: why it has none}."""
    steps = math.ceil(options.steps / options.rounds)
    times, failures = {"gcomp": tables.Times()}, {}
    gcomp = Gcomp(options, workload, isa)
    log = pathlib.Path(options.models) / f"{workload.name}-{isa}.log"
    with Server(isa, log, "torch", workload.name, options.threads, options.precision) as torch:
        capability = torch.ask("describe")["capability"]
        if capability != {"avx2": "AVX2", "avx512": "AVX512"}[isa]:
            raise Failed(f"PyTorch computes with {capability}")
        first = gcomp.step(3, COMPARED_LOSSES)
        check_losses(first["losses"][:COMPARED_LOSSES], torch.ask("losses", count=COMPARED_LOSSES)["losses"],
                     LOSS_TOLERANCE[options.precision])
        ways = [(mode, layout) for layout in workload.layouts for mode in options.modes.split(",")]
        last = {way: None for way in ways}
        for _ in range(options.rounds):
            turn = Turn(steps, first["median_ms"])
            report = gcomp.step(turn.filled, turn.warm_up)
            times["gcomp"].note(report["median_ms"], report["min_ms"])
            for way in [way for way in ways if way not in failures]:
                try:
                    name, median, least = torch.turn(Turn(steps, last[way]), mode=way[0], layout=way[1])
                except Failed as error:
                    if way[0] == "eager":
                        raise
                    failures[way] = str(error)
                    continue
                last[way] = median
                times.setdefault(name, tables.Times()).note(median, least)
    return times, {workload.peer_name(*way): why for way, why in failures.items()}


def measure_forward(options, workload, isa):
    steps = math.ceil(options.steps / options.rounds)
    times = {"gcomp": tables.Times()}
    gcomp = Gcomp(options, workload, isa)
    models = pathlib.Path(options.models)
    ours, theirs = models / f"{workload.name}-{isa}-gcomp.npz", models / f"{workload.name}-{isa}-onnxruntime.npz"
    gcomp.outputs(ours)
    with Server(isa, models / f"{workload.name}-{isa}-onnxruntime.log", "onnxruntime", gcomp.model, gcomp.data, options.threads,
                theirs) as onnxruntime:
        onnxruntime.ask("describe")
        check_outputs(ours, theirs)
        first, last = gcomp.forward(3, 3)["median_ms"], None
        for _ in range(options.rounds):
            turn = Turn(steps, first)
            report = gcomp.forward(turn.filled, turn.warm_up)
            times["gcomp"].note(report["median_ms"], report["min_ms"])
            if isa == machine.instruction_sets()[-1]:  # nothing holds it to fewer
                name, last, least = onnxruntime.turn(Turn(steps, last))
                times.setdefault(name, tables.Times()).note(last, least)
    return times, {}


def measure(options, workload, isa, rates, results):
    """Adds to the results and prints them; gives whether all was measured."""
    from work import work_of

    work, complete = work_of(workload), True
    for what, run, flop, optimizer_bytes in (("steps", measure_step, work.step_flop, work.optimizer_bytes),
                                             ("forward", measure_forward, work.forward_flop, 0)):
        if options.what not in (what, "all"):
            continue
        try:
            times, failures = run(options, workload, isa)
        except Failed as error:
            complete = False
            print(f"\n{tables.heading(workload, isa, what == 'forward')}: {error}", flush=True)
            continue
        results[what, isa].append(tables.Result(workload, isa, flop, optimizer_bytes, rates, times, failures))
        tables.print_result(results[what, isa][-1], what == "forward")
        complete &= not failures
    return complete


def print_heading(options, isas):
    versions = ", ".join(f"{shown} {importlib.metadata.version(name)}" for shown, name in
                         (("PyTorch", "torch"), ("onnxruntime", "onnxruntime")))
    precision = {"f32": "float32", "bf16": "bfloat16 in mixed precision"}[options.precision]
    print(f"{machine.processor()}, {options.threads} threads on as many cores; {versions}; {precision}, {options.steps} steps in "
          f"{options.rounds} rounds")
    if options.winograd:
        print("gcomp runs with --winograd, which is not its default")
    here = machine.instruction_sets()
    if options.isa == "all" and "avx512" not in here:
        print("AVX-512: this processor has none, its rows are left out")
    if "avx2" in isas and "avx512" in here and options.what != "steps":
        print("onnxruntime: no variable holds it to AVX2, so that it stands in the rows of AVX-512 alone")


def main():
    options = parse_options()
    machine.pin_to_cores(options.threads)
    from workloads import find_workloads  # after the pinning, since it loads torch

    workloads, isas = find_workloads(options.workloads), machine.chosen_instruction_sets(options.isa)
    subprocess.run([sys.executable, HERE / "make_models.py", options.models, *(w.name for w in workloads)], check=True)
    print_heading(options, isas)
    rates = {isa: machine.Rates(isa, options.threads, pathlib.Path(options.models)) for isa in isas}
    results = {(what, isa): [] for what in ("steps", "forward") for isa in isas}
    complete = True
    try:
        for workload in workloads:
            for isa in isas:
                rates[isa].measure()
                complete &= measure(options, workload, isa, rates[isa], results)
    finally:
        print()
        for isa in isas:
            print(f"{machine.SHOWN[isa]}: {rates[isa]}")
        for isa in isas:
            if results["steps", isa]:
                tables.print_steps(isa, results["steps", isa])
            if results["forward", isa]:
                tables.print_forwards(isa, results["forward", isa])
    if not complete:
        sys.exit("compare.py: not everything was measured; see above")


if __name__ == "__main__":
    main()
