"""The lit format of the pass tests: a shell test that opens with a sentence and whose directives are all known.

A comment that looks like a directive but is none ("CHEKC:", "CHECK-NETX:") would check nothing; here it fails its test.
"""
import re

import lit.formats
import lit.Test

DIRECTIVE = re.compile(r"(?://|#|;)\s*([A-Z][A-Z0-9_-]*):")
PREFIXES = re.compile(r"--check-prefix(?:es)?[= ]([A-Z0-9_,-]+)")
SENTENCE = re.compile(r"// [A-Z`@].*")
LIT_WORDS = {"RUN", "REQUIRES", "UNSUPPORTED", "XFAIL", "END", "COM"}
SUFFIX = r"(-(NEXT|SAME|NOT|DAG|LABEL|EMPTY|COUNT-[0-9]+))?"


def complaint(text):
    """What is wrong with the directives of a test file; "" if nothing is."""
    first = text.split("\n", 1)[0]
    if not SENTENCE.fullmatch(first) or DIRECTIVE.search(first):
        return "the first line is no comment that says in a sentence what the test shows"
    directives = set(DIRECTIVE.findall(text)) - LIT_WORDS
    prefixes = {"CHECK"} | {prefix for group in PREFIXES.findall(text) for prefix in group.split(",")}
    known = re.compile("(" + "|".join(map(re.escape, sorted(prefixes))) + ")" + SUFFIX)
    unknown = sorted(d for d in directives if not known.fullmatch(d))
    if unknown:
        return f"unknown directives: {', '.join(unknown)}"
    return "" if directives else "no CHECK line: the test checks nothing"


class GirTest(lit.formats.ShTest):
    def execute(self, test, lit_config):
        with open(test.getSourcePath()) as file:
            wrong = complaint(file.read())
        return (lit.Test.FAIL, wrong) if wrong else super().execute(test, lit_config)
