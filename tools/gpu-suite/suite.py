"""Tests gcomp on this machine's GPU, without network and without building, and writes OUT/report.md and OUT/results.tar.gz (the
report, a record and every log) anew after a shard or a few.

The work folder keeps binaries, compiled kernels and the record: the same command again goes on where the last one ended, be it by
--minutes, by a signal or by a kill. On another machine --resume takes the archive of the last call.

Where nothing is timed, in `tests`, `parity` and `sanitizer`, --jobs shards run at once, all on the same GPU.

What follows `--` goes to bench/gpu/compare.py, e.g. `run out bench --minutes 9 -- --precisions bf16 --modes compile gpt2`.

The exit status is the number of parts that failed, or 75 if none failed and something is left to do."""
import argparse
import concurrent.futures
import os
import pathlib
import subprocess
import sys
import time

import processes
import shards
from parts import PARTS, TIMED, Call
from payload import Payload
from results import LISTING, Results, unpack_archive

HERE = pathlib.Path(__file__).resolve().parent
LEAST = 3  # seconds that a shard is worth being started for
RESERVE = 25  # seconds of the call kept for ending the last shard and writing
JOBS = max(1, min(16, len(os.sched_getaffinity(0)) - 1))


def parse_options():
    options = argparse.ArgumentParser(prog="run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("out", nargs="?", type=pathlib.Path, default=pathlib.Path("gpu-report"), metavar="OUT")
    options.add_argument("parts", nargs="*", metavar="PART", help=f"of {' '.join(PARTS)}; default all, in this order")
    options.add_argument("--work", type=pathlib.Path, default=pathlib.Path("gpu-work"), help="stays from call to call")
    options.add_argument("--resume", type=pathlib.Path, metavar="ARCHIVE", help="results.tar.gz of a call on another machine")
    options.add_argument("--minutes", type=float, default=0, help="be done after so many; 0 for no end")
    options.add_argument("--jobs", type=int, default=JOBS, help=f"shards at once where nothing is timed; default {JOBS} here")
    options.add_argument("--retry", action="store_true", help="run again what failed")
    own, bench = sys.argv[1:], []
    if "--" in own:
        own, bench = own[:own.index("--")], own[own.index("--") + 1:]
    options = options.parse_intermixed_args(own)
    options.bench = bench
    unknown = [part for part in options.parts if part not in PARTS]
    if unknown:
        sys.exit(f"gpu-suite: no such part: {' '.join(unknown)} ({' '.join(PARTS)})")
    if options.jobs < 1:
        sys.exit(f"gpu-suite: --jobs {options.jobs}: wanted at least 1")
    options.parts = options.parts or list(PARTS)
    return options


def name_of_gpu():
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        return subprocess.run(query, capture_output=True, text=True, timeout=60).stdout.strip().split("\n")[0] or "no GPU"
    except (OSError, subprocess.TimeoutExpired):
        return "no GPU"


def say(text):
    print(f"gpu-suite: {text}", file=sys.stderr, flush=True)


def run_shard(shard, call, results, deadline):
    left = deadline - time.monotonic()
    if processes.told_to_end() or left < LEAST:
        return
    found = shards.run(shard, results.folder, call.environment, left, results.save_now_and_then)
    say(f"{shard.key}: {found['status']}" + (f", {found['why']}" if "why" in found else f", {found['seconds']:.0f} s"))
    results.add(shard, found)


def run_part(part, call, results, deadline, jobs):
    try:
        planned = PARTS[part](call)
    except (OSError, RuntimeError) as error:  # a binary that cannot even list its tests
        planned = [shards.Shard(part, LISTING, ["sh", "-c", 'echo "$1" >&2; exit 1', "sh", str(error)])]
    results.plan(part, planned)
    wanted = [shard for shard in planned if results.wants(shard, call.retry)]
    with concurrent.futures.ThreadPoolExecutor(1 if part in TIMED else jobs) as pool:
        for future in [pool.submit(run_shard, shard, call, results, deadline) for shard in wanted]:
            future.result()
    results.save()


def main():
    begin, options = time.monotonic(), parse_options()
    processes.heed_signals()
    deadline = begin + 60 * options.minutes - RESERVE if options.minutes > 0 else float("inf")
    payload = Payload(HERE / "payload.tar.xz", options.work)
    if options.resume:
        unpack_archive(options.resume, payload.results, payload.identity)
    call = Call(payload, payload.environment(), sys.executable, name_of_gpu(), options.retry, options.bench)
    results = Results(payload.results, options.out, payload.identity, call.gpu)
    results.begin(" ".join(["run", *sys.argv[1:]]))
    for part in options.parts:
        run_part(part, call, results, deadline, options.jobs)
    failed = sum(results.count(part, "failed") > 0 for part in options.parts)
    left = sum(results.count(part, "unfinished") for part in options.parts)
    say(f"the report is {options.out / 'report.md'}; {failed} part(s) failed, {left} shard(s) are left for the next call")
    if processes.told_to_end():
        sys.exit(128 + processes.told_to_end())
    sys.exit(failed or (shards.UNFINISHED if left else 0))


if __name__ == "__main__":
    main()
