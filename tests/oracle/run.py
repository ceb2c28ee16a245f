"""Runs the tests of this folder and writes one line a test: "PASS name", "FAIL name" or "SKIP name: reason".

    python run.py --gcomp build/bin/gcomp --results FILE [--big] [--filter TEXT] [--shard I/N]

The tests are unittest cases in test_*.py, with --big in big_*.py: what takes too long for every run of the suite. They ask another implementation (onnx.checker, onnxruntime, NumPy) whether gcomp is right.
"""
import argparse
import os
import pathlib
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent


class LineResult(unittest.TextTestResult):
    """Also keeps one line a test; a test whose subtests fail is one failure."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.lines = {}

    def note(self, test, line):
        name = getattr(test, "test_case", test).id()
        if not self.lines.get(name, "").startswith("FAIL"):
            self.lines[name] = line.format(name)

    def addSuccess(self, test):
        super().addSuccess(test)
        self.note(test, "PASS {}")

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.note(test, "FAIL {}")

    def addError(self, test, err):
        super().addError(test, err)
        self.note(test, "FAIL {}")

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err:
            self.note(test, "FAIL {}")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.note(test, "SKIP {}: " + reason.replace("{", "{{").replace("}", "}}"))


def flatten(suite):
    for entry in suite:
        if isinstance(entry, unittest.TestSuite):
            yield from flatten(entry)
        else:
            yield entry


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--gcomp", required=True, help="the tool under test")
    options.add_argument("--results", required=True, help="file to write")
    options.add_argument("--big", action="store_true", help="what ./dev test leaves out, and no more")
    options.add_argument("--filter", default="", help="only tests whose name contains this")
    options.add_argument("--shard", default="0/1", metavar="I/N", help="only every N-th test from the I-th on")
    options = options.parse_args()
    os.environ["GCOMP"] = str(pathlib.Path(options.gcomp).resolve())
    found = unittest.defaultTestLoader.discover(str(HERE), pattern="big_*.py" if options.big else "test_*.py")
    shard, shards = map(int, options.shard.split("/"))
    suite = unittest.TestSuite([test for test in flatten(found) if options.filter in test.id()][shard::shards])
    result = unittest.TextTestRunner(resultclass=LineResult, verbosity=2, stream=sys.stdout).run(suite)
    pathlib.Path(options.results).write_text("".join(line + "\n" for line in result.lines.values()))
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
