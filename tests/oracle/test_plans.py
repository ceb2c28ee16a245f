"""docs/parallel-plans.md: its table is what its script computes, and its schedule is one that can run."""
import re
import subprocess
import sys
import unittest

from recorded import ROOT

TEXT = (ROOT / "docs/parallel-plans.md").read_text()


class Plans(unittest.TestCase):
    def test_the_table_is_computed(self):
        told = subprocess.run([sys.executable, ROOT / "bench/parallel_plans/gpt2_xl.py"], capture_output=True, text=True, check=True).stdout
        table = [line for line in told.splitlines() if line.startswith("|")]
        self.assertEqual(len(table), 6)
        self.assertIn("\n".join(table), TEXT)
        self.assertIn(re.match(r"GPT-2 XL: ([\d,]+) parameters", told).group(1), TEXT)

    def test_the_schedule_runs(self):
        """A forward pass takes 1, a backward pass 2; each waits for its stage, and for the one that it gets its operand from."""
        stages = [(re.findall(r"([FB])(\d)", order), int(most)) for order, most in re.findall(r"^    stage \d   ((?:[FB]\d ?)+) +(\d)", TEXT, re.M)]
        self.assertEqual(len(stages), 4)
        done, free, at = {}, [0] * 4, [0] * 4
        while any(at[s] < len(order) for s, (order, _) in enumerate(stages)):
            before = list(at)
            for s, (order, _) in enumerate(stages):
                if at[s] == len(order):
                    continue
                kind, batch = order[at[s]]
                wanted = [("F", batch, s - 1)] if kind == "F" and s > 0 else [("F", batch, s)] if kind == "B" else []
                wanted += [("B", batch, s + 1)] if kind == "B" and s < 3 else []
                if all(each in done for each in wanted):
                    free[s] = max([free[s], *(done[each] for each in wanted)]) + (1 if kind == "F" else 2)
                    done[kind, batch, s] = free[s]
                    at[s] += 1
            self.assertNotEqual(at, before, "every stage waits for another")
        self.assertEqual(max(free), (8 + 4 - 1) * 3)
        for order, most in stages:
            in_flight = [sum(kind == "F" for kind, _ in order[:i + 1]) - sum(kind == "B" for kind, _ in order[:i]) for i in range(len(order))]
            self.assertEqual(max(in_flight), most)
            self.assertEqual([batch for kind, batch in order if kind == "B"], list("01234567"), "the order in which gradients are added")
