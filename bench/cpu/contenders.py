"""Who takes turns: gcomp, a process for each turn, and its peers, in a process that lives for a workload (serve.py)."""
import json
import math
import pathlib
import statistics
import subprocess
import sys

from machine import asked_of_gcomp, environment

HERE = pathlib.Path(__file__).resolve().parent
LEAST_SECONDS = 0.2  # of a turn's timed steps


class Failed(Exception):
    """One line that says why there is no figure."""


class Turn:
    """How long a contender's turn is, by the milliseconds of its last one: a step of a microsecond is timed more often."""

    def __init__(self, steps, last=None):
        self.warm_up = 10 if last is None or last < 50 else 3
        self.steps = steps
        self.filled = max(steps, math.ceil(1e3 * LEAST_SECONDS / last)) if last else steps


class Gcomp:
    def __init__(self, options, workload, isa):
        self.program, self.workload, self.precision = options.gcomp, workload, options.precision
        models = pathlib.Path(options.models)
        self.model, self.data = models / f"{workload.name}.onnx", models / f"{workload.name}.npz"
        self.device = ["--device", "cpu", "--threads", options.threads, "--isa", asked_of_gcomp(isa)] + ["--winograd"] * options.winograd

    def run(self, *arguments):
        command = [str(part) for part in (self.program, *arguments, *self.device, "--json")]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            message = (done.stderr.strip().splitlines() or [""])[-1]
            raise Failed(f"`{' '.join(command)}` ended with {done.returncode}: {message}")
        return json.loads(done.stdout)

    def bench(self, form, steps, warm_up):
        """{"median_ms": 3.1, "min_ms": 2.9, "losses": [2.41, ...]}: losses of the first steps, warm-up included."""
        return self.run("bench", self.model, "--data", self.data, "--batch", self.workload.batch_rows, "--steps", steps,
                        "--warmup", warm_up, *form)

    def step(self, steps, warm_up):
        return self.bench([*self.workload.gcomp_options(), "--precision", self.precision], steps, warm_up)

    def forward(self, steps, warm_up):
        return self.bench(["--inference"], steps, warm_up)

    def outputs(self, file):
        self.run("run", self.model, "--inputs", self.data, "--batch", self.workload.batch_rows, "--outputs", file)


class Server:
    """serve.py under the variables of an instruction set; what it prints beside its answers goes to a file."""

    def __init__(self, isa, log, *arguments):
        self.log = log
        cache = {"TORCHINDUCTOR_CACHE_DIR": str(log.parent / f"inductor-{isa}")}  # it does not ask which vectors were meant
        with open(log, "w") as errors:
            self.process = subprocess.Popen([sys.executable, HERE / "serve.py", *map(str, arguments)], env=environment(isa) | cache,
                                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)

    def ask(self, what, **arguments):
        try:
            print(json.dumps({"do": what} | arguments), file=self.process.stdin, flush=True)
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        answer = json.loads(line) if line else {"error": f"the process ended with {self.process.wait()}"}
        if "error" in answer:
            raise Failed(f"{answer['error']} (see {self.log})")
        return answer

    def turn(self, turn, **which):
        """(name, median ms, min ms)."""
        answer = self.ask("turn", steps=turn.steps, warm_up=turn.warm_up, seconds=LEAST_SECONDS, **which)
        return answer["name"], statistics.median(answer["ms"]), min(answer["ms"])

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.stdin.close()
        try:
            self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
