"""The machine: its cores, its instruction sets, how everyone is held to one of them, and what it can do at most."""
import json
import os
import pathlib
import platform
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent

# What holds libraries to a set, in the environment of a process before it loads them. DEFAULT: all that the processor has.
VARIABLES = {
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "avx512": {"ATEN_CPU_CAPABILITY": "avx512", "ONEDNN_MAX_CPU_ISA": "DEFAULT", "MKL_ENABLE_INSTRUCTIONS": "AVX512"},
}
SHOWN = {"avx2": "AVX2", "avx512": "AVX-512"}
NEEDED = {"avx2": {"avx2", "fma"}, "avx512": {"avx2", "fma", "avx512f", "avx512bw", "avx512dq", "avx512vl"}}  # as gcomp does
COMPILED_WITH = {"avx2": ["-mavx2", "-mfma"], "avx512": ["-mavx512f"]}


def cpuinfo(field):
    """The first processor's, or ""."""
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.split(":")[0].strip() == field:
            return line.split(":", 1)[1].strip()
    return ""


def processor():
    return cpuinfo("model name") or platform.processor()


def instruction_sets():
    """Of this machine, the widest last."""
    flags = set(cpuinfo("flags").split())
    return [isa for isa in VARIABLES if NEEDED[isa] <= flags]


def asked_of_gcomp(isa):
    """Its --isa: with AVX-512 goes what the processor has beside it, as with the libraries' DEFAULT."""
    return "amx" if isa == "avx512" and {"amx_tile", "amx_bf16"} <= set(cpuinfo("flags").split()) else isa


def chosen_instruction_sets(asked):
    """`asked` is "all" or a name."""
    here = instruction_sets()
    if asked == "all":
        if not here:
            sys.exit("compare.py: this processor has no AVX2")
        return here
    if asked not in here:
        sys.exit(f"compare.py: --isa {asked}: this processor has {', '.join(here) or 'neither'}")
    return [asked]


def environment(isa):
    return os.environ | VARIABLES[isa]


def pin_to_cores(threads):
    """This process and its children: the same cores for everyone."""
    cores = sorted(os.sched_getaffinity(0))[:threads]
    if len(cores) < threads:
        sys.exit(f"compare.py: --threads {threads}, but this machine offers {len(cores)} cores")
    os.sched_setaffinity(0, cores)
    os.environ["OMP_NUM_THREADS"] = str(threads)


class Rates:
    """What rates.cpp measures of an instruction set: the best that was seen so far, FLOP/s and bytes a second."""

    def __init__(self, isa, threads, folder):
        self.command = [folder / f"rates-{isa}", str(threads)]
        self.flops, self.bytes, self.all_flops = 0.0, 0.0, []
        compiler = [os.environ.get("CXX", "g++"), "-std=c++20", "-O2", "-pthread", *COMPILED_WITH[isa]]
        subprocess.run([*compiler, HERE / "rates.cpp", "-o", self.command[0]], check=True)

    def measure(self):
        found = json.loads(subprocess.run(self.command, check=True, capture_output=True, text=True).stdout)
        self.all_flops.append(1e9 * found["fma_gflops"])
        self.flops, self.bytes = max(self.all_flops), max(self.bytes, 1e9 * found["copy_gbytes"])

    def __str__(self):
        return (f"{self.flops * 1e-9:.0f} GFLOP/s of multiply-adds (the least of {len(self.all_flops)} measurements "
                f"{min(self.all_flops) * 1e-9:.0f}), copy {self.bytes * 1e-9:.1f} GB/s")
