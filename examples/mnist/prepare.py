"""Turns MNIST's own files into arrays: the first 8,000 of its 10,000 test images into train.npz, the rest into test.npz. Needs numpy.

    python3 examples/mnist/prepare.py t10k-images-idx3-ubyte.gz t10k-labels-idx1-ubyte.gz FOLDER

`image` is f32[rows, 1, 28, 28] from 0 to 1, `label` i64[rows].
"""
import gzip
import pathlib
import sys

import numpy


def read(path, header):
    with gzip.open(path) as file:
        return numpy.frombuffer(file.read(), numpy.uint8, offset=header)


if __name__ == "__main__":
    image = (read(sys.argv[1], 16).reshape(-1, 1, 28, 28) / numpy.float32(255)).astype(numpy.float32)
    label = read(sys.argv[2], 8).astype(numpy.int64)
    folder = pathlib.Path(sys.argv[3])
    folder.mkdir(parents=True, exist_ok=True)
    numpy.savez(folder / "train.npz", image=image[:8000], label=label[:8000])
    numpy.savez(folder / "test.npz", image=image[8000:], label=label[8000:])
