"""What the trainings of examples/ come to, as their READMEs promise."""
import unittest

import recipes


class Recipes(unittest.TestCase):
    def test_char_gpt(self):
        self.assertLessEqual(recipes.char_gpt(self)[0], 1.9)

    def test_mnist(self):
        self.assertGreaterEqual(recipes.mnist(self), 98.5)
