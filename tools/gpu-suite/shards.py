"""A shard: one process with a log and a limit, and what its end says."""
import dataclasses
import pathlib
import re
import signal
import subprocess

import processes

UNFINISHED = 75  # EX_TEMPFAIL
GRACE = 10  # seconds between the request to end and the end
LISTING_LIMIT = 60
RAN = re.compile(r"^\[==========\] (\d+) tests? from .* ran\.", re.MULTILINE)
SKIPPED = re.compile(r"^\[  SKIPPED \] (\d+) tests?", re.MULTILINE)


def file_name(text):
    return re.sub(r"[^A-Za-z0-9.+-]+", "_", text).strip("_")


@dataclasses.dataclass(frozen=True)
class Shard:
    part: str
    name: str  # unique in its part
    command: list
    limit: float = 300  # seconds
    is_gtest: bool = False
    paces_itself: bool = False  # takes --minutes, and ends with UNFINISHED where something is left to do
    environment: dict = dataclasses.field(default_factory=dict)  # beside that of the payload
    left_out: str = ""  # why it cannot run here

    @property
    def key(self):
        return f"{self.part}/{self.name}"

    @property
    def log(self):
        """Relative to the results."""
        return pathlib.Path("logs") / self.part / (file_name(self.name) + ".log")


def outcome(shard, ended, limit, text):
    """What the record keeps: status, and why where it is not "passed"."""
    found = {"status": "failed", "seconds": round(ended.seconds, 1), "log": str(shard.log)}
    cut_by_call = ended.cut == "signal" or (ended.cut == "limit" and limit < shard.limit)
    if cut_by_call or (shard.paces_itself and ended.returncode == UNFINISHED):
        return found | {"status": "unfinished", "why": "the call ended first"}
    if ended.cut == "limit":
        return found | {"why": f"not done after {limit:.0f} s"}
    if ended.returncode < 0:
        return found | {"why": f"ended by {signal.Signals(-ended.returncode).name}"}
    if ended.returncode > 0:
        found["why"] = f"ended with {ended.returncode}"
    if shard.is_gtest:
        ran, skipped = RAN.search(text), SKIPPED.search(text)
        found |= {"tests": int(ran[1]) if ran else 0, "skipped": int(skipped[1]) if skipped else 0}
        if "why" not in found and found["tests"] == 0:
            found["why"] = "no test ran"
    return found if "why" in found else found | {"status": "passed"}


def run(shard, results, environment, seconds_left, meanwhile=lambda: None):
    """Its output goes to the log as it comes, so that what was written before a cut is there."""
    if shard.left_out:
        return {"status": "left out", "why": shard.left_out, "seconds": 0}
    log, limit = results / shard.log, min(shard.limit, seconds_left)
    log.parent.mkdir(parents=True, exist_ok=True)
    pace = ["--minutes", f"{limit / 60:.2f}"] if shard.paces_itself else []
    with log.open("w") as file:
        try:
            ended = processes.run([str(part) for part in shard.command + pace], limit + (GRACE if pace else 0), GRACE, meanwhile,
                                  stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
                                  env=environment | shard.environment)
        except OSError as error:
            return {"status": "failed", "why": f"{shard.command[0]}: {error.strerror}", "seconds": 0, "log": str(shard.log)}
    return outcome(shard, ended, limit, log.read_text(errors="replace"))


def tests_of(listing):
    """[(suite, [test, ...]), ...] out of what --gtest_list_tests prints."""
    found = []
    for line in listing.splitlines():
        name = line.split("#")[0].rstrip()
        if name.startswith("  ") and found:
            found[-1][1].append(name.strip())
        elif name.endswith(".") and " " not in name:
            found.append((name[:-1], []))
    return found


def list_tests(binary, environment, filter_="*"):
    done = processes.run([str(binary), "--gtest_list_tests", f"--gtest_filter={filter_}"], LISTING_LIMIT, env=environment,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode != 0:
        raise RuntimeError(f"{binary.name} --gtest_list_tests ended with {done.returncode}: {done.errors.strip()[-300:]}")
    return tests_of(done.output)


def in_suites(listing, most):
    """(name, filter) of shards: a suite each, in pieces of at most `most` tests."""
    for suite, tests in listing:
        for begin in range(0, len(tests), most):
            piece = tests[begin:begin + most]
            part = f" {begin + 1}-{begin + len(piece)}" if len(tests) > most else ""
            name = f"{suite}.{piece[0]}" if most == 1 else suite + part
            yield name, ":".join(f"{suite}.{test}" for test in piece)
