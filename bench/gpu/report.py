"""The tables of bench/gpu, out of the raw figures of compare.py:   python report.py raw.json"""
import json
import pathlib
import statistics
import sys

from agreement import distance
from workloads import WORKLOADS

GCOMP, TUNED = "gcomp", "gcomp --tune"  # the contenders of kind "gcomp"
SMALL = 32 << 20  # bytes below which a kernel may live in the L2 cache; no share of the copy rate is told
KERNELS_SHOWN = 8  # of one training step


def table(head, rows):
    return ["| " + " | ".join(head) + " |", "|---" * len(head) + "|", *("| " + " | ".join(row) + " |" for row in rows), ""]


def number(value, digits=3):
    return "" if value is None else f"{value:.{digits}f}"


def gib(bytes_):
    return "" if bytes_ is None else f"{bytes_ / 2**30:.2f}"


class Figures:
    """Of one contender. A kernel workload of gcomp counts its kernels' time: copies of the batch are not what it is made to show."""

    def __init__(self, name, entry):
        self.name, self.kind, self.error, self.turns = name, entry["kind"], entry.get("error"), entry["turns"]
        self.median = self.least = None
        if self.turns:
            medians = [turn.get("kernels_ms", turn["median_ms"]) for turn in self.turns]
            self.median, self.least = statistics.median(medians), min(medians)
            last = self.turns[-1]
            self.error = self.error or (None if last["compared"] else "measured, but there is no reference for its losses")
            self.allocated, self.reserved = last.get("allocated_bytes"), last.get("reserved_bytes")
            self.first = [turn["first_steps_seconds"] for turn in self.turns]

    def memory(self):
        return gib(self.allocated) + (f" / {gib(self.reserved)}" if self.reserved is not None else "")


def figures_of(raw):
    """(workload, precision, gcomp's Figures by name, the peers'), for all that was measured."""
    for name, precisions in raw["workloads"].items():
        for precision, entries in precisions.items():
            found = [Figures(contender, entry) for contender, entry in entries.items()]
            yield WORKLOADS[name], precision, {f.name: f for f in found if f.kind == "gcomp"}, [f for f in found if f.kind != "gcomp"]


def failures(raw):
    """(workload, precision, which, why) where gcomp gave no figure, or one that was refused."""
    return [(workload.name, precision, f.name, f.error) for workload, precision, ours, _ in figures_of(raw) for f in ours.values() if f.error]


def least_ms(raw, name, precision):
    """What gcomp's plan would take if products ran at PyTorch's rate for 8192 x 8192 x 8192 and all else at the copy rate."""
    steps, found = raw.get("profiles", {}).get(name, {}).get(precision, {}).get(GCOMP), raw.get("rates", {})
    if not steps or precision not in found.get("products", {}):
        return None
    copy, products = found["copy"]["per_second"], found["products"][precision]["per_second"]
    return 1e3 * sum(max(step["bytes"] / copy, step["flops"] / products if step["product"] else 0) for step in steps)


def best_of(peers):
    return min((peer for peer in peers if peer.turns), key=lambda peer: peer.median, default=None)


def milliseconds(figures):
    """"" where there is no turn, "failed" where there was one that gave none."""
    if figures is None or not figures.turns:
        return "failed" if figures and figures.error else ""
    return f"{figures.median:.3f} ({figures.least:.3f})"


def ratio(figures, other):
    return f"{figures.median / other.median:.2f}" if figures and figures.turns and other and other.turns else ""


def summary(raw):
    rows = []
    for workload, precision, ours, peers in figures_of(raw):
        best, plain, tuned = best_of(peers), ours.get(GCOMP), ours.get(TUNED)
        rows.append([workload.title, precision, milliseconds(plain), milliseconds(tuned), best.name if best else "", milliseconds(best),
                     ratio(plain, best), ratio(tuned, best), number(least_ms(raw, workload.name, precision)),
                     gib(plain.allocated) if plain and plain.turns else "", best.memory() if best else ""])
    note = "At best: every launch of gcomp's plan at the rates below, products at that of 8192 x 8192 x 8192, all else at the copy rate."
    return ["## gcomp beside the best peer", "", note, ""] + table(
        ["workload", "precision", "gcomp ms (best turn)", "with --tune", "best peer", "its ms (best turn)", "gcomp / peer",
         "with --tune / peer", "gcomp's plan at best, ms", "gcomp GiB", "peer GiB, allocated / reserved"], rows)


def everyone(raw):
    rows = []
    for workload, precision, ours, peers in figures_of(raw):
        for f in [*ours.values(), *peers]:
            seconds = " / ".join(f"{s:.1f}" for s in f.first) if f.turns else ""
            rows.append([workload.name, precision, f.name, number(f.median) if f.turns else "", number(f.least) if f.turns else "",
                         f.memory() if f.turns else "", seconds, (f.error or "").replace("|", "/")])
    return ["## Everyone", "", "Seconds to the first steps, turn by turn: the first turn compiles, later ones find caches. Those of the peers hold\nthe ten compared steps.", ""] + table(
        ["workload", "precision", "who", "median ms", "best turn ms", "GiB", "seconds to first steps", "why not"], rows)


def first_steps(raw):
    rows = []
    for name, found in raw.get("first_steps", {}).items():
        exact, rounded = (raw["references"][name][precision] for precision in ("f32", "bf16"))
        for who, steps in [("PyTorch eager", rounded), *found.items()]:
            rows.append([name, who] + [f"{100 * distance(steps[what], exact[what]):.3f} %" for what in ("losses", "norms")])
    note = "The largest distance of ten steps from PyTorch eager in float32, of losses and of the norms of all gradients together."
    return ["## First steps in bf16", "", note, ""] + table(["workload", "who", "losses", "gradient norms"], rows) if rows else []


def kernels(raw):
    copy = raw.get("rates", {}).get("copy", {}).get("per_second")
    rows, products = [], []
    found = [(name, precision, who, steps) for name, precisions in raw.get("profiles", {}).items()
             for precision, profiles in precisions.items() for who, steps in profiles.items()]
    for name, precision, who, steps in found:
        total = sum(step["us"] for step in steps) or 1
        shown = len(steps) if WORKLOADS[name].kernel else KERNELS_SHOWN
        for step in steps[:shown]:
            share, microseconds = f"{100 * step['us'] / total:.1f} %", f"{step['us']:.1f}"
            if step["us"] <= 0:
                continue
            if step["product"]:
                products.append([name, precision, who, step["what"], step["origin"], microseconds, share,
                                 f"{step['flops'] / step['us'] / 1e6:.2f}"])
            else:
                rate = step["bytes"] / step["us"] * 1e6
                of_copy = f"{100 * rate / copy:.0f} %" if copy and step["bytes"] > SMALL else ""
                rows.append([name, precision, who, step["what"], step["origin"], microseconds, share, f"{step['bytes'] / 2**20:.1f}",
                             f"{rate / 1e9:.0f}", of_copy])
    lines = ["## gcomp's kernels", "", "Bytes that must move, counted from the graph: operands as far as they are read, each once, and results.", ""]
    lines += table(["workload", "precision", "who", "kernel", "node", "us", "of the step", "MiB", "GB/s", "of the copy rate"], rows)
    return lines + ["## gcomp's products", ""] + table(["workload", "precision", "who", "product", "node", "us", "of the step", "TFLOP/s"], products)


def rates(raw):
    if "rates" not in raw:
        return []
    copy = raw["rates"]["copy"]["per_second"]
    lines = ["## The machine, by PyTorch", "", f"Copy: {copy / 1e9:.0f} GB/s, bytes read and bytes written both counted.", ""]
    lines += table(["product", "us", "TFLOP/s"],
                   [[name, f"{r['us']:.1f}", f"{r['per_second'] / 1e12:.2f}"] for name, r in raw["rates"]["products"].items()])
    rows = [[name, mode, f"{r['us']:.1f}", f"{r['per_second'] / 1e9:.0f}", f"{100 * r['per_second'] / copy:.0f} %"]
            for name, modes in raw["rates"]["operations"].items() for mode, r in modes.items()]
    return lines + table(["operation, f32", "PyTorch", "us", "GB/s", "of the copy rate"], rows)


def heading(raw):
    """Who was measured on what."""
    seen = {}
    for precisions in raw["workloads"].values():
        for entries in precisions.values():
            for name, entry in entries.items():
                for turn in entry["turns"]:
                    who = turn.get("version", name)
                    seen[who] = turn.get("device", "cpu")
    lines = ["# gcomp beside PyTorch and JAX", "", *(f"* {who}: {device}" for who, device in seen.items())]
    lines += [f"* {key}: {value}" for key, value in raw["machine"].items()]
    if raw["size"] != "full":
        lines.append(f"* size: {raw['size']}, not the sizes in the titles: this run shows that everything works, and no speed")
    lines += [f"* command: `{command}`" for command in raw["commands"]]
    if raw.get("unfinished"):
        lines.append("* unfinished: the time given was used up; the same command goes on from here")
    return lines + ["", "Milliseconds of a step: the median of the turns' medians, and the least of these. A ratio below 1: gcomp is faster.", ""]


def markdown(raw):
    return "\n".join(heading(raw) + summary(raw) + everyone(raw) + first_steps(raw) + kernels(raw) + rates(raw))


if __name__ == "__main__":
    print(markdown(json.loads(pathlib.Path(sys.argv[1]).read_text())))
