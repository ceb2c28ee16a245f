#!/usr/bin/env python3
"""make_images.py FOLDER [COUNT]: JPEGs of 500x375, quality 90, 4:2:0, in four class folders, the same on every machine.

No photographs are at hand, so they are made to cost a decoder what photographs do: fields of 1/f noise whose colours go together,
shapes with sharp edges over them, and fine grain. A photograph of this size and quality has 50 to 120 KB; so have these.
"""

import pathlib
import sys

import numpy as np
from PIL import Image, ImageDraw

WIDTH, HEIGHT = 500, 375


def field(random, roughness):
    """[HEIGHT, WIDTH], 1/f^roughness noise of mean 0 and deviation 1."""
    fy, fx = np.fft.fftfreq(HEIGHT)[:, None], np.fft.rfftfreq(WIDTH)[None]
    spectrum = random.normal(size=(HEIGHT, fx.size)) + 1j * random.normal(size=(HEIGHT, fx.size))
    spectrum /= np.maximum(np.hypot(fy, fx), 1 / WIDTH) ** roughness
    values = np.fft.irfft2(spectrum, (HEIGHT, WIDTH))
    return (values - values.mean()) / values.std()


def picture(random):
    light = field(random, random.uniform(1.1, 1.6))
    layers = [128 + 45 * light + 18 * field(random, 1.8) for _ in range(3)]
    image = Image.fromarray(np.clip(np.stack(layers, -1), 0, 255).astype(np.uint8))
    shapes = image.copy()
    draw = ImageDraw.Draw(shapes)
    for _ in range(random.integers(4, 12)):
        x, y = random.integers(-50, WIDTH), random.integers(-50, HEIGHT)
        w, h = random.integers(20, 200, 2)
        colour = tuple(int(v) for v in random.integers(0, 256, 3))
        (draw.ellipse if random.random() < 0.5 else draw.rectangle)((int(x), int(y), int(x + w), int(y + h)), fill=colour)
    pixels = np.asarray(Image.blend(image, shapes, 0.5), np.float64) + random.normal(0, 3, (HEIGHT, WIDTH, 1))
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def main():
    folder, count = pathlib.Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 400
    random = np.random.default_rng(0)
    total = 0
    for i in range(count):
        path = folder / f"class{i % 4}" / f"{i:04}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        picture(random).save(path, quality=90)
        total += path.stat().st_size
    print(f"{count} images of {WIDTH}x{HEIGHT}, {total / count / 1000:.0f} KB on average")


main()
