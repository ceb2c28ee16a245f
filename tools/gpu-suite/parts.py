"""The parts of the suite, each a list of shards."""
import shutil

from shards import Shard, in_suites, list_tests

TESTS_OF_A_SHARD = 16  # at most, in `parity`
# They build models in C++ and train them on the CPU beside.
NEED_A_COMPILER = ("Evaluation", "LossScale", "PendingSteps")
SANITIZERS = ("memcheck", "racecheck", "initcheck", "synccheck")
SANITIZED = ("*Patterns*",)
SANITIZER_LIMIT = 540


def doctor(payload, environment):
    # Its own exit status is that of the CPU, which needs a compiler.
    script = '"$0" doctor; "$0" doctor --json | grep -Eq \'"cuda_training": ?true\''
    return [Shard("doctor", "doctor", ["sh", "-c", script, payload.program("gcomp")], limit=120)]


def gtest(part, binary, name, filter_, **more):
    return Shard(part, name, [binary, f"--gtest_filter={filter_}"], is_gtest=True, **more)


def tests(payload, environment):
    """A process for each test: what an error leaves of a CUDA context ends one of them."""
    binary = payload.program("test_device")
    return [gtest("tests", binary, name, filter_, limit=540) for name, filter_ in in_suites(list_tests(binary, environment), 1)]


def parity(payload, environment):
    binary, found = payload.program("test_train"), []
    has_compiler = any(shutil.which(name, path=environment["PATH"]) for name in ("c++", "g++", "clang++"))
    for name, filter_ in in_suites(list_tests(binary, environment), TESTS_OF_A_SHARD):
        lacks = not has_compiler and name.split()[0] in NEED_A_COMPILER
        found.append(gtest("parity", binary, name, filter_, left_out="no C++ compiler" if lacks else ""))
    return found


def sanitizer(payload, environment):
    """The whole list of graphs under four tools would take hours: every path of the emitter and some random graphs."""
    missing = "" if shutil.which("compute-sanitizer", path=environment["PATH"]) else "compute-sanitizer is not installed"
    found = []
    for filter_ in SANITIZED:
        for tool in SANITIZERS:
            command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "1", "--target-processes", "all",
                       payload.program("test_device"), f"--gtest_filter={filter_}"]
            found.append(Shard("sanitizer", f"{tool} {filter_}", command, SANITIZER_LIMIT, is_gtest=True, left_out=missing))
    return found


def bench(payload, environment):
    models = payload.folder / "bench-gpu-models"
    missing = "" if models.is_dir() else "the models were not packed: bench/gpu/make_models.py build/bench-gpu-models, then pack"
    return [Shard("bench", "bench", [payload.folder / "bench" / "gpu" / "run", "--out", payload.results / "bench"], limit=6 * 3600,
                  environment={"GCOMP": str(payload.program("gcomp")), "MODELS": str(models)}, left_out=missing)]


PARTS = {"doctor": doctor, "tests": tests, "parity": parity, "sanitizer": sanitizer, "bench": bench}
