#!/usr/bin/env python3
"""Counts instructions in the loops of cubins that multiply on tensor cores: what codegen/cuda/products/instructions.h says.

    pip install nvidia-cuda-nvdisasm
    gcomp compile MODEL.onnx --train ... --target cuda:sm_90 --emit cubin -o CUBINS
    python bench/gpu/sass.py CUBINS [--nvdisasm PATH]

For each kernel that has them, of the loop with most tensor-core instructions (HMMA): how many of these stand in it, and the
instructions that go with one. `least` are those on the shortest way through the loop that computes all products and makes all
16-byte loads; `most` are all but the blocks that load single elements. Inner loops that the compiler left rolled count once.
"""
import argparse
import heapq
import pathlib
import re
import subprocess
import sys

LABEL = re.compile(r"\s*(\.L_x_\d+):")
CODE = re.compile(r"\s*/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;")
ENDS = {"BRA", "EXIT", "BSYNC", "RET", "BREAK"}


def opcode(line):
    return re.sub(r"^@!?U?P\w+\s+", "", line).split()[0]


class Kernel:
    def __init__(self, listing):
        self.code, self.labels = [], {}
        for line in listing.splitlines():
            if match := LABEL.match(line):
                self.labels[match[1]] = len(self.code)
            elif match := CODE.match(line):
                self.code.append(match[1])
        starts = {0, *self.labels.values()} | {i + 1 for i, line in enumerate(self.code) if opcode(line).split(".")[0] in ENDS}
        self.starts = sorted(start for start in starts if start < len(self.code))
        self.end = dict(zip(self.starts, [*self.starts[1:], len(self.code)]))

    def target(self, line):
        match = re.search(r"`\((\.L_x_\d+)\)", line)
        return self.labels.get(match[1]) if match else None

    def block(self, start):
        return self.code[start:self.end[start]]

    def successors(self, start):
        last = self.code[self.end[start] - 1]
        name = opcode(last).split(".")[0]
        if name in ("EXIT", "RET") and not last.startswith("@"):
            return []
        nexts = [self.target(last)] if name == "BRA" else []
        if name != "BRA" or last.startswith("@"):
            nexts.append(self.end[start])
        return [n for n in nexts if n in self.end]

    def loops(self):
        for i, line in enumerate(self.code):
            first = self.target(line) if opcode(line).startswith("BRA") else None
            if first is not None and first <= i:
                yield first, [start for start in self.starts if first <= start <= i]

    def shortest_way(self, first, blocks):
        inside, length, before = set(blocks), {first: self.end[first] - first}, {}
        heap = [(length[first], first)]
        while heap:
            distance, start = heapq.heappop(heap)
            if distance > length[start]:
                continue
            for n in self.successors(start):
                if n not in inside or n == first:
                    continue
                further = distance + self.end[n] - n
                if further < length.get(n, 1 << 30):
                    length[n], before[n] = further, start
                    heapq.heappush(heap, (further, n))
        way, at = {blocks[-1]}, blocks[-1]
        while at in before:
            at = before[at]
            way.add(at)
        return way


def products_in(lines):
    return sum(opcode(line).startswith("HMMA") for line in lines)


def loads_single(lines):
    return any(re.match(r"LDG\S*\.[US](8|16)", opcode(line)) for line in lines)


def count(kernel):
    best = None
    for first, blocks in kernel.loops():
        products = sum(products_in(kernel.block(start)) for start in blocks)
        if not products:
            continue
        needed = {s for s in blocks if products_in(kernel.block(s)) or any("LDG" in x and "128" in x for x in kernel.block(s))}
        least = sum(kernel.end[s] - s for s in needed | kernel.shortest_way(first, blocks))
        most = sum(kernel.end[s] - s for s in blocks if not loads_single(kernel.block(s)))
        if best is None or (products, -most) > (best[0], -best[2]):
            best = products, least, most
    return best


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("cubins", type=pathlib.Path)
    options.add_argument("--nvdisasm", default="nvdisasm")
    options = options.parse_args()
    print("| kernel | HMMA in the loop | least for each | most for each |\n|---|---|---|---|")
    for path in sorted(options.cubins.glob("*.cubin")):
        done = subprocess.run([options.nvdisasm, "-c", path], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"sass.py: {path}: {done.stderr.strip()}")
        if found := count(Kernel(done.stdout)):
            products, least, most = found
            print(f"| {path.stem} | {products} | {least / products:.1f} | {most / products:.1f} |")


if __name__ == "__main__":
    main()
