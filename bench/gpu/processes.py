"""Processes that do not outlive who started them: each leads a group of its own, which is ended at a limit, or once this process is
told to end. Needs the standard library alone; tools/gpu-suite takes it along."""
import dataclasses
import os
import signal
import subprocess
import time

POLL = 0.1  # seconds after which a signal to this process is noticed
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

_told = []


def heed_signals():
    """From here on the signals that ask for an end are only noted; `run` ends its process, the caller asks `told_to_end`."""
    for number in SIGNALS:
        signal.signal(number, lambda told, _: _told.append(told))


def told_to_end():
    """The number of the signal, or 0."""
    return _told[0] if _told else 0


@dataclasses.dataclass(frozen=True)
class Ended:
    returncode: int  # -N: by signal N
    seconds: float
    cut: str  # "limit", "signal": why it was not let go on; "" where it ended by itself
    output: str
    errors: str


def end_group(child, grace):
    """SIGTERM, and SIGKILL to whatever of the group is there `grace` seconds later."""
    try:
        if grace > 0:
            os.killpg(child.pid, signal.SIGTERM)
            child.wait(grace)
    except (ProcessLookupError, subprocess.TimeoutExpired):
        pass
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def run(command, limit, grace=0, meanwhile=lambda: None, **popen):
    """Waits for `command`, at most `limit` seconds; calls `meanwhile` now and then. OSError where it cannot be started."""
    begin, cut = time.monotonic(), ""
    with subprocess.Popen(command, text=True, start_new_session=True, **popen) as child:
        while True:
            try:
                output, errors = child.communicate(timeout=POLL)
                break
            except subprocess.TimeoutExpired:
                late = time.monotonic() - begin > limit
                if not cut and (told_to_end() or late):
                    cut = "signal" if told_to_end() else "limit"
                    end_group(child, grace)
                meanwhile()
        end_group(child, 0)  # what it left behind
    return Ended(child.returncode, time.monotonic() - begin, cut, output or "", errors or "")
