"""What is known so far: a record of the shards, written anew after every one; a report and an archive, at most seconds old."""
import collections
import json
import os
import pathlib
import re
import tarfile
import threading
import time

ARCHIVE = "results.tar.gz"
LISTING = "listing"  # the shard that stands for a part whose tests could not be listed
SAVED_EVERY = 20  # seconds, while a shard runs
SAVED_AFTER = 2  # seconds, at most, that a shard's end may wait for the report and the archive of several
LINES_SHOWN = 25  # of a shard that failed
TELLING = re.compile(r"^\[  (FAILED|SKIPPED) |Failure$|ERROR SUMMARY|graphs on|left out|[Ee]rror")


def replace(path, write):
    """`write(part)`, then a rename: whoever looks sees the old file or the new one."""
    part = path.with_name(path.name + ".part")
    write(part)
    os.replace(part, path)


def telling_lines(text):
    """Failures and their neighbours first; the end of the log where nothing tells."""
    lines = text.splitlines()
    near = {i + offset for i, line in enumerate(lines) if TELLING.search(line) for offset in range(3)}
    chosen = [lines[i] for i in sorted(near) if i < len(lines)] or lines[-LINES_SHOWN:]
    return [line[:300] for line in chosen[:LINES_SHOWN]]


class Results:
    """Shards that run at once may add to it."""

    def __init__(self, folder, out, identity, gpu):
        self.folder, self.out, self.gpu = folder, out, gpu
        folder.mkdir(parents=True, exist_ok=True)
        out.mkdir(parents=True, exist_ok=True)
        self.path, self.lock = folder / "record.json", threading.RLock()
        nothing = {"version": identity, "calls": [], "planned": {}, "shards": {}}
        self.record = json.loads(self.path.read_text()) if self.path.exists() else nothing

    def save_now_and_then(self):
        """For a long shard that writes results of its own: a kill takes the seconds since the last time at most."""
        with self.lock:
            if time.monotonic() - self.saved > SAVED_EVERY:
                self.save()

    def begin(self, command):
        self.saved = time.monotonic()
        self.record["calls"].append({"date": time.strftime("%F %T"), "command": command, "gpu": self.gpu})

    def plan(self, part, shards):
        """Adds to what earlier calls planned; that they could not list the tests is forgotten."""
        listing = f"{part}/{LISTING}"
        if listing in self.record["planned"].get(part, []):
            self.record["planned"][part].remove(listing)
            self.record["shards"].pop(listing, None)
        for shard in shards:
            names = self.record["planned"].setdefault(shard.part, [])
            if shard.key not in names:
                names.append(shard.key)

    def status(self, key):
        return self.record["shards"].get(key, {}).get("status", "unfinished")

    def wants(self, shard, retry):
        status = self.status(shard.key)
        return status in ("unfinished", "left out") or (retry and status == "failed")

    def add(self, shard, found):
        with self.lock:
            self.record["shards"][shard.key] = found
            self._save_record()
            if time.monotonic() - self.saved > SAVED_AFTER:
                self.save()

    def count(self, part, status):
        return sum(self.status(key) == status for key in self.record["planned"].get(part, []))

    def _save_record(self):
        replace(self.path, lambda part: part.write_text(json.dumps(self.record, indent=1) + "\n"))

    def save(self):
        with self.lock:
            self._save()

    def _save(self):
        self._save_record()
        report = self.report()
        for folder in (self.folder, self.out):
            replace(folder / "report.md", lambda part: part.write_text(report))
        replace(self.out / ARCHIVE, self._archive)
        self.saved = time.monotonic()

    def _archive(self, part):
        with tarfile.open(part, "w:gz", compresslevel=6) as tar:
            tar.add(self.folder, arcname="results")

    def report(self):
        lines = [f"# gcomp {self.record['version']} on {self.gpu}", ""]
        lines += [f"* {call['date']}: `{call['command']}` on {call['gpu']}" for call in self.record["calls"]]
        lines += ["", "| part | passed | failed | left out | unfinished | tests | of them skipped | seconds |", "|---" * 8 + "|"]
        lines += [self._row(part) for part in self.record["planned"]] + [""]
        lines += [f"* {part}: {count} left out: {why}" for (part, why), count in self._left_out().items()] + [""]
        for part, keys in self.record["planned"].items():
            for key in keys:
                if self.status(key) == "failed" or part == "doctor":
                    lines += self._about(part, key)
        return "\n".join(lines + [table.read_text() for table in sorted(self.folder.glob("bench/*/table.md"))]) + "\n"

    def _left_out(self):
        """How many shards, by part and reason."""
        return collections.Counter((part, self.record["shards"][key]["why"]) for part, keys in self.record["planned"].items()
                                   for key in keys if self.status(key) == "left out")

    def _row(self, part):
        found = [self.record["shards"].get(key, {}) for key in self.record["planned"][part]]
        figures = [self.count(part, status) for status in ("passed", "failed", "left out", "unfinished")]
        figures += [sum(shard.get(what, 0) for shard in found) for what in ("tests", "skipped")]
        return "| " + " | ".join([part, *map(str, figures), f"{sum(shard.get('seconds', 0) for shard in found):.0f}"]) + " |"

    def _about(self, part, key):
        found = self.record["shards"].get(key)
        if found is None:
            return []
        lines = [f"## {key}: {found['status']}" + (f", {found['why']}" if "why" in found else ""), ""]
        log = self.folder / found["log"] if "log" in found else None
        if log and log.exists():
            text = log.read_text(errors="replace")
            lines += ["```", *(text.splitlines() if part == "doctor" else telling_lines(text)), "```", ""]
        return lines


def unpack_archive(archive, folder, identity):
    """The results of a call on another machine, to go on from; those that are there already stay."""
    if (folder / "record.json").exists():
        return
    with tarfile.open(archive) as tar:
        version = json.load(tar.extractfile("results/record.json"))["version"]
        if version != identity:
            raise SystemExit(f"gpu-suite: {archive} is of gcomp {version}, this is {identity}")
        # The record comes last: without it the next call unpacks everything again.
        members = [m for m in tar.getmembers() if m.isfile() and ".." not in pathlib.PurePosixPath(m.name).parts]
        for member in sorted(members, key=lambda member: member.name == "results/record.json"):
            target = folder / pathlib.PurePosixPath(member.name).relative_to("results")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(tar.extractfile(member).read())
