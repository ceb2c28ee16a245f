"""The trainings of examples/ run, a few steps of them; big_recipes.py asks what they come to."""
import unittest

import recipes


class Recipes(unittest.TestCase):
    def test_char_gpt(self):
        loss, text = recipes.char_gpt(self, STEPS=50)
        self.assertLess(loss, 3.2)  # 65 characters at random have 4.17
        self.assertGreater(len(text), 250)

    def test_mnist(self):
        self.assertGreater(recipes.mnist(self, EPOCHS=2), 90)

    def test_photos(self):
        of_the_folder, of_others = recipes.photos(self)
        self.assertGreater(of_the_folder, 97)
        self.assertGreater(of_others, 97)
