"""What `pack` packed, unpacked into the work folder, and the environment that its programs run in."""
import hashlib
import os
import pathlib
import shutil
import tarfile

PROGRAMS = ("gcomp", "test_device", "test_train")
STAMP = "unpacked"  # holds the digest of the archive, written last

# The libraries that came along are for gcomp alone: Python, PyTorch and compute-sanitizer have their own.
WRAPPER = """#!/bin/sh
LD_LIBRARY_PATH="{lib}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}" exec "{real}" "$@"
"""


def digest_of(archive):
    return hashlib.sha256(archive.read_bytes()).hexdigest()


def wrap(folder, name):
    program, real = folder / "bin" / name, folder / "bin" / f"{name}.real"
    program.rename(real)
    program.write_text(WRAPPER.format(lib=folder / "lib", real=real))
    program.chmod(0o755)


class Payload:
    """`work` keeps one folder of files and results for each version of gcomp, and the compiled kernels of all of them."""

    def __init__(self, archive, work):
        work.mkdir(parents=True, exist_ok=True)
        self.work = work.resolve()
        digest = digest_of(archive)
        with tarfile.open(archive) as tar:
            self.version = tar.extractfile("./version").read().decode().strip()
        # What stands in no commit is told apart by its bytes.
        vague = self.version == "unknown" or self.version.endswith("-dirty")
        self.identity = f"{self.version}-{digest[:12]}" if vague else self.version
        self.folder = self.work / self.identity / "files"
        self.results = self.work / self.identity / "results"
        if not self._is(digest):
            self._unpack(archive, digest)

    def program(self, name):
        return self.folder / "bin" / name

    def environment(self):
        found = dict(os.environ)
        # where the toolkit's packages leave compute-sanitizer and ncu
        toolkit = os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "bin")
        found["PATH"] = os.pathsep.join([os.environ.get("PATH", os.defpath), toolkit])
        found |= {"XDG_CACHE_HOME": str(self.work / "cache"), "GCOMP_SHARED_DIR": str(self.folder / "shared"),
                  "GCOMP_TEST_BINARY": str(self.program("gcomp"))}
        found.setdefault("GCOMP_CUDA_TESTS", "device")
        found.setdefault("GCOMP_TEST_DEVICE", "cuda")
        return found

    def _is(self, digest):
        stamp = self.folder / STAMP
        return stamp.exists() and stamp.read_text() == digest

    def _unpack(self, archive, digest):
        """Whole, or not at all: a call may be cut in the middle."""
        part = self.folder.with_name("files.part")
        for stale in (part, self.folder):
            if stale.exists():
                shutil.rmtree(stale)
        part.mkdir(parents=True)
        with tarfile.open(archive) as tar:
            tar.extractall(part)
        part.rename(self.folder)
        for name in PROGRAMS:
            wrap(self.folder, name)
        (self.folder / STAMP).write_text(digest)
