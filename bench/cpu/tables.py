"""What compare.py prints: a table for each workload, and one over all of them."""
import dataclasses
import math
import statistics

from machine import SHOWN

BEYOND_CACHES = 50e6  # bytes that an optimizer reads and writes
MEAN_OVER = {f"C{i}" for i in range(2, 11)}


@dataclasses.dataclass
class Times:
    """Milliseconds of one contender: medians of its turns, and its least step."""
    medians: list = dataclasses.field(default_factory=list)
    least_step: float = math.inf

    def note(self, median, least):
        self.medians.append(median)
        self.least_step = min(least, self.least_step)

    @property
    def median(self):
        return statistics.median(self.medians)

    @property
    def least_turn(self):
        return min(self.medians)


@dataclasses.dataclass
class Result:
    """Of a workload's training step or forward pass: {contender: Times}, gcomp first, and who failed: {contender: why}."""
    workload: object
    isa: str
    flop: int
    optimizer_bytes: int  # 0 of a forward pass
    rates: object
    times: dict
    failures: dict

    @property
    def ours(self):
        return self.times["gcomp"]

    @property
    def best(self):
        """The contender beside gcomp with the least median; None where there is none."""
        return min((name for name in self.times if name != "gcomp"), key=lambda name: self.times[name].median, default=None)

    @property
    def ratio(self):
        return self.ours.median / self.times[self.best].median if self.best else math.nan

    @property
    def ratio_of_least_turns(self):
        return self.ours.least_turn / self.times[self.best].least_turn if self.best else math.nan

    @property
    def ratio_of_least_steps(self):
        return self.ours.least_step / self.times[self.best].least_step if self.best else math.nan

    def rate(self, name):
        """FLOP/s by the median."""
        return 1e3 * self.flop / self.times[name].median

    def rate_cells(self, name):
        return f"{gflop(self.rate(name))} | {100 * self.rate(name) / self.rates.flops:.0f} %"


def gflop(flop):
    """Three digits, but whole numbers of GFLOP."""
    number = 1e-9 * flop
    return f"{number:.0f}" if number >= 100 else f"{number:.3g}"


def heading(workload, isa, forward):
    return f"**{workload.id} {workload.title}, {'forward pass' if forward else workload.rule}, {SHOWN[isa]}**"


def print_result(result, forward):
    least = f"of the least turns {result.ratio_of_least_turns:.2f}, of the least steps {result.ratio_of_least_steps:.2f}"
    ratio = f"ratio {result.ratio:.2f} ({least})" if result.best else "no peer"
    print(f"\n{heading(result.workload, result.isa, forward)}: {ratio}; {gflop(result.flop)} GFLOP\n")
    print("| | median ms | min ms | gcomp / this | GFLOP/s | of the FMA rate |\n|---|---|---|---|---|---|")
    for name, times in result.times.items():
        beside = "" if name == "gcomp" else f"{result.ours.median / times.median:.2f}"
        best = " (best)" if name == result.best and len(result.times) > 2 else ""
        print(f"| {name}{best} | {times.median:.3f} | {times.least_step:.3f} | {beside} | {result.rate_cells(name)} |")
    for name, why in result.failures.items():
        print(f"\n{name} has no figure: {why}")
    if result.optimizer_bytes > BEYOND_CACHES:
        seconds = result.optimizer_bytes / result.rates.bytes
        print(f"\nThe optimizer reads and writes {1e-6 * result.optimizer_bytes:.0f} MB, {1e3 * seconds:.2f} ms at the copy rate, "
              f"{100 * 1e3 * seconds / result.ours.median:.0f} % of gcomp's step.")
    print(flush=True)


def print_steps(isa, results):
    print(f"\n**Training steps, {SHOWN[isa]}**\n")
    print("| | gcomp ms | best PyTorch ms | which | ratio | of the least turns | GFLOP | gcomp GFLOP/s | of the FMA rate "
          "| PyTorch GFLOP/s | of the FMA rate |\n|---|---|---|---|---|---|---|---|---|---|---|")
    for r in results:
        theirs = f"{r.times[r.best].median:.3f} | {r.best.removeprefix('PyTorch ')}" if r.best else " | "
        print(f"| {r.workload.id} | {r.ours.median:.3f} | {theirs} | {r.ratio:.2f} | {r.ratio_of_least_turns:.2f} "
              f"| {gflop(r.flop)} | {r.rate_cells('gcomp')} | {r.rate_cells(r.best) if r.best else ' | '} |")
    print_mean(results, lambda result: result.ratio)


def print_forwards(isa, results):
    print(f"\n**Forward passes, {SHOWN[isa]}**\n")
    print("| | gcomp ms | onnxruntime ms | ratio | gcomp least turn | onnxruntime least turn | ratio | GFLOP | gcomp GFLOP/s "
          "| of the FMA rate |\n|---|---|---|---|---|---|---|---|---|---|")
    for r in results:
        theirs = r.times.get(r.best)
        cells = [f"{r.ours.median:.3f}", f"{theirs.median:.3f}" if theirs else "", f"{r.ratio:.2f}" if theirs else "",
                 f"{r.ours.least_turn:.3f}", f"{theirs.least_turn:.3f}" if theirs else "",
                 f"{r.ratio_of_least_turns:.2f}" if theirs else "", gflop(r.flop), r.rate_cells("gcomp")]
        print(f"| {r.workload.id} | {' | '.join(cells)} |")
    print_mean(results, lambda result: result.ratio_of_least_turns, " of the least turns")


def print_mean(results, ratio, which=""):
    counted = [r for r in results if r.workload.id in MEAN_OVER and r.best]
    if not counted:
        return
    worst = max(counted, key=ratio)
    over = "C2 to C10" if len(counted) == len(MEAN_OVER) else ", ".join(r.workload.id for r in counted) + " alone"
    print(f"\nGeometric mean{which}, {over}: {statistics.geometric_mean(map(ratio, counted)):.2f}; worst row {worst.workload.id}, "
          f"{ratio(worst):.2f}.", flush=True)
