"""Times a training step of gcomp and of PyTorch on the same graphs, data, cores and thread count, in turns, and prints a table.

    python compare.py --gcomp build/bin/gcomp [--models FOLDER] [--threads 2] [--steps 50] [--rounds 3] [WORKLOAD...]

Before any timing the first losses of gcomp must match PyTorch's (1e-3 relative). Each round gives every contender 10 warm-up steps
and then its share of --steps; a cell is the median over the rounds' medians and the least of all steps. The ratio is gcomp over the
best PyTorch, by medians; below 1 gcomp is faster.

Of gcomp it runs   gcomp bench MODEL.onnx --data x.npz --loss cross_entropy --optimizer adam --lr 1e-3 --batch 128 --threads 2 --steps 17 --json
and reads          {"median_ms": 3.1, "min_ms": 2.9, "losses": [2.41, 2.38, ...]}   losses of the first steps, warm-up included
"""
import argparse
import json
import math
import os
import pathlib
import platform
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
COMPARED_LOSSES = 5


def parse_options():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("workloads", nargs="*", metavar="WORKLOAD", help="mlp, mnist_cnn, gpt; default all")
    options.add_argument("--gcomp", default=str(HERE.parent.parent / "build/bin/gcomp"))
    options.add_argument("--models", default=str(HERE.parent.parent / "build/bench"), help="where the exported models lie or are put")
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--steps", type=int, default=50, help="timed steps of each contender, over all rounds")
    options.add_argument("--rounds", type=int, default=3)
    return options.parse_args()


def pin_to_cores(threads):
    """This process and its children: the same cores for everyone."""
    cores = sorted(os.sched_getaffinity(0))[:threads]
    if len(cores) < threads:
        sys.exit(f"compare.py: --threads {threads}, but this machine offers {len(cores)} cores")
    os.sched_setaffinity(0, cores)
    os.environ["OMP_NUM_THREADS"] = str(threads)


def machine():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def run_gcomp(options, workload, steps):
    models = pathlib.Path(options.models)
    batch = len(workload.batch()[1])
    command = [options.gcomp, "bench", models / f"{workload.name}.onnx", "--data", models / f"{workload.name}.npz",
               "--loss", "cross_entropy", "--optimizer", workload.optimizer, "--lr", str(workload.learning_rate),
               "--batch", str(batch), "--threads", str(options.threads), "--steps", str(steps), "--json"]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"compare.py: {' '.join(map(str, command))}\nended with {done.returncode}:\n{done.stderr}")
    return json.loads(done.stdout)


def check_losses(workload, ours, theirs):
    for step, (a, b) in enumerate(zip(ours, theirs, strict=True), 1):
        if not math.isclose(a, b, rel_tol=1e-3):
            sys.exit(f"compare.py: {workload.name}: the loss of step {step} is {a} with gcomp and {b} with PyTorch; no timing")


def measure(options, workload):
    """{contender: (median of the rounds' medians, least step)} in milliseconds; gcomp comes first."""
    import peers

    losses = run_gcomp(options, workload, COMPARED_LOSSES)["losses"][:COMPARED_LOSSES]
    check_losses(workload, losses, peers.Peer(workload, "eager", "nchw").losses(COMPARED_LOSSES))
    contenders = peers.peers_of(workload)
    steps = math.ceil(options.steps / options.rounds)
    medians, least = {}, {}

    def note(name, median, minimum):
        medians.setdefault(name, []).append(median)
        least[name] = min(minimum, least.get(name, math.inf))

    for _ in range(options.rounds):
        report = run_gcomp(options, workload, steps)
        note("gcomp", report["median_ms"], report["min_ms"])
        for peer in contenders:
            times = peer.times_ms(steps)
            note(peer.name, statistics.median(times), min(times))
    return {name: (statistics.median(medians[name]), least[name]) for name in medians}


def print_table(workload, figures):
    ours = figures["gcomp"]
    best = min((name for name in figures if name != "gcomp"), key=lambda name: figures[name][0])
    print(f"\n**{workload.title}**: ratio {ours[0] / figures[best][0]:.2f} (of the least steps {ours[1] / figures[best][1]:.2f})\n")
    print("| | median ms | min ms | gcomp / this |\n|---|---|---|---|")
    for name, (median, minimum) in figures.items():
        ratio = "" if name == "gcomp" else f"{ours[0] / median:.2f}"
        print(f"| {name}{' (best)' if name == best else ''} | {median:.3f} | {minimum:.3f} | {ratio} |", flush=True)


def main():
    options = parse_options()
    pin_to_cores(options.threads)
    import torch  # after the pinning: its thread pool counts the cores it may use

    from make_models import write_models
    from workloads import WORKLOADS

    unknown = sorted(set(options.workloads) - set(WORKLOADS))
    if unknown:
        sys.exit(f"compare.py: no workload {', '.join(unknown)}; there are {', '.join(WORKLOADS)}")
    torch.set_num_threads(options.threads)
    write_models(options.models)
    print(f"{machine()}, {options.threads} threads on as many cores; PyTorch {torch.__version__}, {torch.get_num_threads()} threads; "
          f"float32, {options.steps} steps in {options.rounds} rounds")
    for name in options.workloads or WORKLOADS:
        print_table(WORKLOADS[name], measure(options, WORKLOADS[name]))


if __name__ == "__main__":
    main()
