"""The parts of the suite, each a list of shards."""
import dataclasses
import shutil

from payload import Payload
from shards import Shard, file_name, in_suites, list_tests

TESTS_OF_A_SHARD = 4  # at most, in `parity`
# They build models in C++ and train them on the CPU beside.
NEED_A_COMPILER = ("Evaluation", "LossScale", "PendingSteps")
RECORDED = ("Recorded/", "Models/")
SANITIZERS = ("memcheck", "racecheck", "initcheck", "synccheck")
# (filter of test_device, tests of a shard): every path of the emitter, attention, what follows products, convolutions.
SANITIZED = (("*DevicePatterns.*", 1), ("DeviceGraphs.Attention", 1), ("DeviceAttention.GradientsOfFewKeys*", 1),
             ("*Epilogues.*", 4), ("DeviceConvolutions.*", 1))
# Generated products at a size that takes the large tiles, which no test of test_device does: with FMA, with tensor cores.
LARGE_PRODUCT, LARGE_PRODUCT_ROWS = "matmul", 1536
LARGE_PRODUCT_PRECISIONS = {"f32": [], "tf32": ["--tf32"], "bf16": ["--precision", "bf16"]}
SANITIZER_LIMIT = 540
# A network whose attention has few keys: by whom its gradient is computed, and what asks for that.
FEW_KEYS, FEW_KEYS_ROWS = "vit_b_16", 128
FEW_KEYS_WAYS = {"ours": [], "cuDNN's": ["--prefer-cudnn"]}
FEW_KEYS_LIMIT = 240
PROFILED = (("gpt2", "bf16"), ("resnet50", "bf16"))
NCU_LIMIT = 480
BENCH_LIMIT = 6 * 3600
MODELS = "bench-gpu-models"


@dataclasses.dataclass(frozen=True)
class Call:
    """What the parts of one call share."""
    payload: Payload
    environment: dict
    python: str  # with numpy, for what draws weights
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
    listing = list_tests(binary, call.environment)
    return [gtest("tests", binary, name, filter_, limit=540) for name, filter_ in in_suites(listing, 1)]


def parity(call):
    """The recorded trainings first."""
    binary, found = call.payload.program("test_train"), []
    has_compiler = any(shutil.which(name, path=call.environment["PATH"]) for name in ("c++", "g++", "clang++"))
    for name, filter_ in in_suites(list_tests(binary, call.environment), TESTS_OF_A_SHARD):
        lacks = not has_compiler and name.split()[0] in NEED_A_COMPILER
        found.append(gtest("parity", binary, name, filter_, left_out="no C++ compiler" if lacks else ""))
    return sorted(found, key=lambda shard: not shard.name.startswith(RECORDED))


def sanitizer(call):
    """The whole list of graphs under four tools would take hours. All that one tool looks at comes before the next tool."""
    missing = "" if shutil.which("compute-sanitizer", path=call.environment["PATH"]) else "compute-sanitizer is not installed"
    binary, models = call.payload.program("test_device"), call.payload.folder / MODELS
    pieces = [piece for filter_, most in SANITIZED for piece in in_suites(list_tests(binary, call.environment, filter_), most)]
    found = []
    for tool in SANITIZERS:
        under = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "1", "--target-processes", "all"]
        found += [Shard("sanitizer", f"{tool} {name}", [*under, binary, f"--gtest_filter={filter_}"], SANITIZER_LIMIT,
                        is_gtest=True, left_out=missing) for name, filter_ in pieces]
        for precision, options in LARGE_PRODUCT_PRECISIONS.items():
            bench = [call.payload.program("gcomp"), "bench", models / f"{LARGE_PRODUCT}.onnx", "--data",
                     models / f"{LARGE_PRODUCT}.npz", "--loss", "mse", "--optimizer", "sgd", "--batch", LARGE_PRODUCT_ROWS,
                     "--steps", 1, "--warmup", 0, "--device", "cuda", "--no-cublaslt", *options]
            found.append(Shard("sanitizer", f"{tool} large product {precision}", [*filled(call, LARGE_PRODUCT), *under, *bench],
                               SANITIZER_LIMIT, left_out=missing or models_missing(call)))
    return found


def models_missing(call):
    packed = (call.payload.folder / MODELS).is_dir()
    return "" if packed else "the models were not packed: bench/gpu/make_models.py build/bench-gpu-models, then pack"


def filled(call, network):
    """The beginning of a command that first draws the weights and the batch of `network`, where they are not there yet."""
    script = '"$0" "$1" "$2" "$3" && shift 3 && exec "$@"'
    filler = call.payload.folder / "bench" / "gpu" / "fill_weights.py"
    return ["sh", "-c", script, call.python, filler, call.payload.folder / MODELS, network]


def attention(call):
    """A profile of the same steps for each way."""
    models, found = call.payload.folder / MODELS, []
    for way, options in FEW_KEYS_WAYS.items():
        command = [call.payload.program("gcomp"), "bench", models / f"{FEW_KEYS}.onnx", "--data", models / f"{FEW_KEYS}.npz", "--loss",
                   "cross_entropy", "--optimizer", "adamw", "--batch", FEW_KEYS_ROWS, "--steps", 20, "--warmup", 5, "--device", "cuda",
                   "--precision", "bf16", "--profile", *options]
        found.append(Shard("attention", f"gradient {way}", [*filled(call, FEW_KEYS), *command], FEW_KEYS_LIMIT,
                           left_out=models_missing(call)))
    return found


def bench(call):
    """Figures of different devices never meet in one table."""
    gpu = file_name(call.gpu.split(",")[0])
    command = [call.payload.folder / "bench" / "gpu" / "run", "--out", call.payload.results / "bench" / gpu, *call.bench_arguments]
    return [Shard("bench", " ".join([gpu, *call.bench_arguments]), command + (["--retry"] if call.retry else []), BENCH_LIMIT,
                  paces_itself=True, left_out=models_missing(call),
                  environment={"GCOMP": str(call.payload.program("gcomp")), "MODELS": str(call.payload.folder / MODELS)})]


def ncu(call):
    missing = "" if shutil.which("ncu", path=call.environment["PATH"]) else "ncu is not installed"
    script, models = call.payload.folder / "bench" / "gpu" / "ncu.py", call.payload.folder / MODELS
    found = []
    for network, precision in PROFILED:
        command = [call.python, script, network, "--precision", precision, "--gcomp", call.payload.program("gcomp"),
                   "--models", models, "--out", call.payload.results / "ncu"]
        found.append(Shard("ncu", f"{network} {precision}", [*filled(call, network), *command], NCU_LIMIT,
                           left_out=missing or models_missing(call)))
    return found


PARTS = {"doctor": doctor, "tests": tests, "parity": parity, "attention": attention, "sanitizer": sanitizer, "bench": bench, "ncu": ncu}
TIMED = ("doctor", "attention", "bench", "ncu")  # whose shards have the GPU for themselves
