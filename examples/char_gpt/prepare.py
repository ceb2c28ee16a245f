"""Cuts a text into windows for char_gpt.onnx: the first nine tenths of it into train.npz, the rest into test.npz, and writes vocab.json,
its distinct characters in order (docs/generate.md). Needs numpy.

    python3 examples/char_gpt/prepare.py input.txt FOLDER

input.txt is tiny Shakespeare, https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt, or any other
text with at most 65 different characters. `tokens` and `label`, which is what follows each token, are i64[windows, 64].
"""
import json
import pathlib
import sys

import numpy

LENGTH = 64


def windows(ids):
    rows = (len(ids) - 1) // LENGTH
    return {"tokens": ids[: rows * LENGTH].reshape(rows, LENGTH), "label": ids[1 : rows * LENGTH + 1].reshape(rows, LENGTH)}


if __name__ == "__main__":
    text = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")
    folder = pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    characters = sorted(set(text))
    if len(characters) > 65:
        sys.exit(f"{sys.argv[1]} has {len(characters)} different characters, char_gpt.onnx knows 65")
    number = {character: i for i, character in enumerate(characters)}
    ids = numpy.array([number[character] for character in text], dtype=numpy.int64)
    cut = len(ids) * 9 // 10
    numpy.savez(folder / "train.npz", **windows(ids[:cut]))
    numpy.savez(folder / "test.npz", **windows(ids[cut:]))
    (folder / "vocab.json").write_text(json.dumps({"kind": "characters", "tokens": characters}))
    print(f"{folder}: {len(ids)} characters, {len(characters)} different")
