"""One turn of a comparison: a process that prints a line of JSON, within the time that the whole comparison has."""
import json
import signal
import subprocess
import time

import processes


class OutOfTime(Exception):
    """The time given is used up, or this process was told to end: nothing is known of the turn that was due."""


class Turn:
    """Runs one command; the log keeps command and error output."""

    def __init__(self, log, limit, minutes):
        self.log, self.limit = log, limit
        self.deadline = time.monotonic() + 60 * minutes if minutes > 0 else float("inf")

    def check_time(self):
        if processes.told_to_end() or time.monotonic() >= self.deadline:
            raise OutOfTime

    def __call__(self, command, environment=None):
        """The JSON, or {"error": why}."""
        self.check_time()
        command, left = [str(part) for part in command], self.deadline - time.monotonic()
        try:  # compilers that it started go with it
            ended = processes.run(command, min(self.limit, left), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
        except OSError as error:
            return {"error": f"{command[0]}: {error.strerror}"}
        with self.log.open("a") as log:
            cut = ended.cut and f", cut by a {ended.cut}"
            log.write(f"$ {' '.join(command)}\n{ended.errors}ended with {ended.returncode}{cut}\n\n")
        if ended.cut == "signal" or (ended.cut == "limit" and left < self.limit):
            raise OutOfTime
        if ended.cut:
            return {"error": f"not done after {self.limit:.0f} s"}
        if ended.returncode == 0:
            return json.loads(ended.output.strip().splitlines()[-1])
        if ended.returncode == -signal.SIGKILL:
            return {"error": "killed: out of the machine's memory?"}
        lines = [line for line in ended.errors.strip().splitlines() if line.strip()] or ["no message"]
        return {"error": f"ended with {ended.returncode}: {lines[-1][:300]}"}
