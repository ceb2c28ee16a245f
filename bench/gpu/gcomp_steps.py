"""The first losses and gradient norms of a training by gcomp, as one line of JSON:   python gcomp_steps.py gcomp train MODEL ..."""
import json
import pathlib
import subprocess
import sys
import tempfile

# Far above any norm: clipping changes nothing, and has the norm computed.
NO_CLIP = "1e30"


def main():
    with tempfile.TemporaryDirectory() as folder:
        metrics = pathlib.Path(folder) / "metrics.jsonl"
        command = [*sys.argv[1:], "--no-shuffle", "--clip-norm", NO_CLIP, "--metrics", metrics,
                   "--out", pathlib.Path(folder) / "trained.gcx"]
        done = subprocess.run([str(part) for part in command], stdout=sys.stderr)
        if done.returncode != 0:
            sys.exit(done.returncode)
        steps = [line for line in map(json.loads, metrics.read_text().splitlines()) if "gradient_norm" in line]
    print(json.dumps({"losses": [step["loss"] for step in steps], "norms": [step["gradient_norm"] for step in steps]}))


if __name__ == "__main__":
    main()
