"""Prints what `gcomp scale` says of GPT-2 124M, BERT-base and ResNet-50 on 1 to 1,024 H200, and of ResNet-50 on four RTX 3090.

    bench/scale/figures.py [--gcomp build/bin/gcomp] [--models build/scale-models]        (needs onnx, for the models alone)

Each table stands under its command, in which MODELS is the folder.
"""
import argparse
import json
import pathlib
import subprocess
import sys

import make_models

ROOT = pathlib.Path(__file__).resolve().parents[2]
RANKS = "1,2,4,8,16,32,64,128,256,512,1024"
H200 = ["--precision", "bf16", "--link", "450GB/s,3us", "--link", "8:50GB/s,10us"]
GPT2 = ["gpt2", "--batch", "32", "--optimizer", "adamw"]
BERT = ["bert_base", "--batch", "256", "--optimizer", "adamw"]
RESNET = ["resnet50", "--optimizer", "sgd", "--momentum", "0.9"]
TODAY = ["--zero", "0", "--no-overlap"]
BEST = ["--casts", "apart", "--route", "groups", "--wire", "bf16", "--bucket-mib", "128"]

# Four RTX 3090 in 16 bits. `one` is the measured step of one GPU, `four` the speedup of four, both from the images a second of
# tf_cnn_benchmarks with NCCL on a board without NVLink (server-gear.com/blog/post/rtx3090-x8-exhaustive-tf-cnn-benchmarks).
PCIE = ["--rates", "rtx3090", "--precision", "bf16", "--ranks", "4"]
MEASURED = {64: (1026.83, 2798.55), 128: (1126.66, 3596.61), 256: (1181.90, 4266.43), 512: (1205.02, 4635.48)}
SLOW, FAST = ["--link", "5.4GB/s,10us"], ["--link", "25GB/s,10us"]


def as_measured(rows):
    return ["--batch", str(rows), "--step-time", f"{rows / MEASURED[rows][0] * 1e3:.1f}ms"]


CHANGES = [
    *((f"{rows} rows, at the rate that the first line gives the link, one after another", as_measured(rows) + SLOW + TODAY,
       MEASURED[rows][1] / MEASURED[rows][0]) for rows in MEASURED),
    ("64 rows, 25 GB/s, one after another", as_measured(64) + FAST + TODAY, None),
    ("updates in pieces, overlap as programs allow", as_measured(64) + FAST, None),
    ("and casts apart", as_measured(64) + FAST + ["--casts", "apart"], None),
    ("128 rows", as_measured(128) + FAST, None),
    ("256 rows", as_measured(256) + FAST, None),
    ("64 rows, 5.4 GB/s, overlap as programs allow", as_measured(64) + SLOW, None),
    ("and casts apart", as_measured(64) + SLOW + ["--casts", "apart"], None),
    ("and bf16 on the wire", as_measured(64) + SLOW + ["--casts", "apart", "--wire", "bf16"], None),
    ("128 rows", as_measured(128) + SLOW + ["--casts", "apart", "--wire", "bf16"], None),
    ("256 rows", as_measured(256) + SLOW + ["--casts", "apart", "--wire", "bf16"], None),
    ("256 rows, f32 on the wire", as_measured(256) + SLOW + ["--casts", "apart"], None),
    ("a GPU at the rates that it can reach, 64 rows, 25 GB/s, one after another", ["--batch", "64", *FAST, *TODAY], None),
    ("overlap as programs allow", ["--batch", "64", *FAST], None),
    ("256 rows", ["--batch", "256", *FAST], None),
    ("256 rows, casts apart, bf16 on the wire", ["--batch", "256", *FAST, "--casts", "apart", "--wire", "bf16"], None),
]


def points(options, words):
    command_line = [options.gcomp, "scale", str(options.models / f"{words[0]}.onnx"), "--loss", "cross_entropy", *words[1:], "--json"]
    found = subprocess.run(command_line, capture_output=True, text=True)
    if found.returncode:
        sys.exit(f"figures.py: {' '.join(words)}: {found.stderr.strip()}")
    return json.loads(found.stdout)["points"]


def command(words):
    return f"gcomp `scale MODELS/{words[0]}.onnx --loss cross_entropy {' '.join(words[1:])}`\n"


def ms(seconds):
    return f"{seconds * 1e3:.2f}"


def scaling_table(options, title, words):
    print(f"\n**{title}**\n\n{command(words)}")
    print("| GPUs | micro-batches of each | step ms | compute ms | exchanges ms | exposed ms | speedup | efficiency | limit |")
    print("|---|---|---|---|---|---|---|---|---|")
    for p in points(options, words):
        limit = f"{p['limit']} ({p['limit_cost']:.1%})" if p["limit"] else "none"
        print(f"| {p['ranks']} | {p['micro_batches']} | {ms(p['step_seconds'])} | {ms(p['compute_seconds'])} | "
              f"{ms(p['exchange_seconds'])} | {ms(p['exposed_seconds'])} | {p['speedup']:.2f} | {p['efficiency']:.1%} | {limit} |", flush=True)


def changes_table(options):
    print(f"\n**ResNet-50 on four RTX 3090, 16 bits**\n\n{command(RESNET + PCIE + ['...'])}")
    print("| what | options | step ms | exposed ms | speedup of 4 | measured |\n|---|---|---|---|---|---|")
    for what, more, measured in CHANGES:
        [p] = points(options, RESNET + PCIE + more)
        print(f"| {what} | `{' '.join(more)}` | {ms(p['step_seconds'])} | {ms(p['exposed_seconds'])} | {p['speedup']:.2f} | "
              f"{f'{measured:.2f}' if measured else ''} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gcomp", default=str(ROOT / "build/bin/gcomp"))
    parser.add_argument("--models", type=pathlib.Path, default=ROOT / "build/scale-models")
    options = parser.parse_args()
    options.models.mkdir(parents=True, exist_ok=True)
    for name in ("gpt2", "bert_base", "resnet50"):
        make_models.write(options.models, name)
    for title, words in (("GPT-2 124M, 1,024 tokens, 32 rows a GPU", GPT2), ("BERT-base, 128 tokens, 256 rows a GPU", BERT),
                         ("ResNet-50, 224 x 224, 256 rows a GPU", [*RESNET, "--batch", "256"])):
        scaling_table(options, f"{title}, nothing shared, one after another (`--zero 0 --no-overlap`)", [*words, *H200, *TODAY, "--ranks", "1,2,4,8,16"])
        scaling_table(options, f"{title}, ZeRO 1, overlap as programs allow", [*words, *H200, "--ranks", RANKS])
        scaling_table(options, f"{title}, with what would help", [*words, *H200, *BEST, "--ranks", RANKS])
    strong = ["gpt2", "--batch", "512", "--micro-batches", "64", "--scaling", "strong"]
    scaling_table(options, "GPT-2 124M, 512 rows in all, strong", [*strong, *H200, "--ranks", "1,2,4,8,16,32,64"])
    changes_table(options)


if __name__ == "__main__":
    main()
