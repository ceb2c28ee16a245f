"""What dropout costs on a CPU: `python bench/cpu/dropout.py [GCOMP]` (needs NumPy and onnx; GCOMP is build/bin/gcomp).

Two training steps on one thread, of which dropout is a part that can be seen: alone (scaled input, dropout, a narrow product), and in
front of a residual and LayerNorm. Prints the median and the best of 15 runs of `gcomp bench --profile` for the kernel that draws, and
its rate: four bytes for each number drawn, for each element read and for each written.
"""
import pathlib, re, statistics, subprocess, sys, tempfile
import numpy as np, onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = pathlib.Path(__file__).resolve().parents[2]
GCOMP = sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/bin/gcomp"
ROWS, RUNS = 64, 15
random = np.random.default_rng(0)


def normal(*shape):
    return (random.standard_normal(shape) * 0.01).astype("f4")


def save(path, nodes, arrays, row, classes):
    arrays = arrays | {"ratio": np.array(0.1, "f4"), "training": np.array(True)}
    graph = helper.make_graph(nodes, path.stem, [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", *row])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", *row[:-1], classes])],
                              [numpy_helper.from_array(value, name) for name, value in arrays.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    np.savez(path.with_suffix(".npz"), x=random.standard_normal((ROWS, *row)).astype("f4"),
             label=random.standard_normal((ROWS, *row[:-1], classes)).astype("f4"))


def node(op, *names, **attributes):
    return helper.make_node(op, list(names[:-1]), [names[-1]], **attributes)


def alone(path):
    save(path, [node("Mul", "x", "scale", "scaled"), node("Dropout", "scaled", "ratio", "training", "dropped"),
                node("MatMul", "dropped", "w", "y")], {"scale": np.ones(4096, "f4"), "w": normal(4096, 8)}, [4096], 8)
    return "Dropout of dropped", ROWS * 4096


def before_layer_norm(path):
    save(path, [node("MatMul", "x", "w0", "h"), node("Dropout", "h", "ratio", "training", "dropped"), node("Add", "x", "dropped", "sum"),
                node("LayerNormalization", "sum", "g", "b", "normal", axis=-1), node("MatMul", "normal", "w", "y")],
         {"w0": normal(256, 256), "g": np.ones(256, "f4"), "b": np.zeros(256, "f4"), "w": normal(256, 8)}, [16, 256], 8)
    return "LayerNormalization of normal", ROWS * 16 * 256


def measure(path, kernel, flags):
    times = []
    for _ in range(RUNS):
        run = subprocess.run([GCOMP, "bench", path, "--data", path.with_suffix(".npz"), "--loss", "mse", "--batch", str(ROWS),
                              "--threads", "1", "--steps", "20", "--profile", *flags], capture_output=True, text=True, check=True)
        line = next(line for line in (run.stdout + run.stderr).splitlines() if line.rstrip().endswith(kernel))
        times.append(float(re.search(r"([\d.]+) us", line)[1]))
    return statistics.median(times), min(times)


has_isa = "--isa" in subprocess.run([GCOMP, "bench", "--help"], capture_output=True, text=True).stdout
with tempfile.TemporaryDirectory() as folder:
    for make in (alone, before_layer_norm):
        path = pathlib.Path(folder) / f"{make.__name__}.onnx"
        kernel, numbers = make(path)
        for flags in ([], ["--isa", "avx2"]) if has_isa else ([],):
            median, best = measure(path, kernel, flags)
            print(f"{make.__name__:18} {' '.join(flags):11} median {median:7.1f} us, {numbers * 12e-3 / median:5.1f} GB/s; "
                  f"best {best:7.1f} us, {numbers * 12e-3 / best:5.1f} GB/s", flush=True)
