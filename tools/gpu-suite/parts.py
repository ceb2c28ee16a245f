"""The parts of the suite, each a list of shards."""
import dataclasses
import shutil

from payload import Payload
from shards import Shard, file_name, in_suites, list_tests

TESTS_OF_A_SHARD = 16  # at most, in `parity`
# They build models in C++ and train them on the CPU beside.
NEED_A_COMPILER = ("Evaluation", "LossScale", "PendingSteps")
SANITIZERS = ("memcheck", "racecheck", "initcheck", "synccheck")
SANITIZED = ("*Patterns*",)
SANITIZER_LIMIT = 540
BENCH_LIMIT = 6 * 3600


@dataclasses.dataclass(frozen=True)
class Call:
    """What the parts of one call share."""
    payload: Payload
    environment: dict
    gpu: str  # as nvidia-smi names it
    retry: bool
    bench_arguments: list  # of bench/gpu/compare.py


def doctor(call):
    # Its own exit status is that of the CPU, which needs a compiler.
    script = '"$0" doctor; "$0" doctor --json | grep -Eq \'"cuda_training": ?true\''
    return [Shard("doctor", "doctor", ["sh", "-c", script, call.payload.program("gcomp")], limit=120)]


def gtest(part, binary, name, filter_, **more):
    return Shard(part, name, [binary, f"--gtest_filter={filter_}"], is_gtest=True, **more)


def tests(call):
    """A process for each test: what an error leaves of a CUDA context ends one of them."""
    binary = call.payload.program("test_device")
    return [gtest("tests", binary, name, filter_, limit=540) for name, filter_ in in_suites(list_tests(binary, call.environment), 1)]


def parity(call):
    binary, found = call.payload.program("test_train"), []
    has_compiler = any(shutil.which(name, path=call.environment["PATH"]) for name in ("c++", "g++", "clang++"))
    for name, filter_ in in_suites(list_tests(binary, call.environment), TESTS_OF_A_SHARD):
        lacks = not has_compiler and name.split()[0] in NEED_A_COMPILER
        found.append(gtest("parity", binary, name, filter_, left_out="no C++ compiler" if lacks else ""))
    return found


def sanitizer(call):
    """The whole list of graphs under four tools would take hours: every path of the emitter and some random graphs."""
    missing = "" if shutil.which("compute-sanitizer", path=call.environment["PATH"]) else "compute-sanitizer is not installed"
    found = []
    for filter_ in SANITIZED:
        for tool in SANITIZERS:
            command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "1", "--target-processes", "all",
                       call.payload.program("test_device"), f"--gtest_filter={filter_}"]
            found.append(Shard("sanitizer", f"{tool} {filter_}", command, SANITIZER_LIMIT, is_gtest=True, left_out=missing))
    return found


def bench(call):
    """Figures of different devices never meet in one table."""
    models, gpu = call.payload.folder / "bench-gpu-models", file_name(call.gpu.split(",")[0])
    missing = "" if models.is_dir() else "the models were not packed: bench/gpu/make_models.py build/bench-gpu-models, then pack"
    command = [call.payload.folder / "bench" / "gpu" / "run", "--out", call.payload.results / "bench" / gpu, *call.bench_arguments]
    return [Shard("bench", " ".join([gpu, *call.bench_arguments]), command + (["--retry"] if call.retry else []), BENCH_LIMIT,
                  paces_itself=True, environment={"GCOMP": str(call.payload.program("gcomp")), "MODELS": str(models)}, left_out=missing)]


PARTS = {"doctor": doctor, "tests": tests, "parity": parity, "sanitizer": sanitizer, "bench": bench}
