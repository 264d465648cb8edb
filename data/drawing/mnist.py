"""Draws the shipped MNIST subsample (data/mnist.csv.gz) from the four original files.

Run as ``python data/drawing/mnist.py FOLDER``, where FOLDER holds the idx files, gzipped or not.
Not installed.
"""

import argparse
import gzip
from pathlib import Path

import numpy as np

SEED = 20220114
THRESHOLD = 127
PARTS = {"train": ("train", 1000), "test": ("t10k", 500)}


def read_idx(folder: Path, name: str, header: int) -> np.ndarray:
    """Return the bytes of an idx file after its header of 8 (labels) or 16 (images) bytes."""
    packed = folder / f"{name}.gz"
    content = (
        gzip.decompress(packed.read_bytes()) if packed.exists() else (folder / name).read_bytes()
    )
    return np.frombuffer(content, dtype=np.uint8, offset=header)


def draw(folder: Path) -> str:
    """Return the text of the file: one line per image, in random order, its pixels as 98 packed
    bytes in hex.
    """
    rng = np.random.default_rng(SEED)
    lines = ["part,row,y,pixels"]
    for subset, (prefix, size) in PARTS.items():
        labels = read_idx(folder, f"{prefix}-labels-idx1-ubyte", 8)
        images = read_idx(folder, f"{prefix}-images-idx3-ubyte", 16).reshape(len(labels), 784)
        rows = rng.choice(len(labels), size, replace=False)
        bits = np.packbits(images[rows] > THRESHOLD, axis=1)
        lines += [
            f"{subset},{row},{labels[row]},{b.tobytes().hex()}"
            for row, b in zip(rows, bits, strict=True)
        ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    text = draw(parser.parse_args().folder)
    target = Path(__file__).resolve().parents[1] / "mnist.csv.gz"
    target.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    print(f"{target}: {target.stat().st_size / 1000:.0f} kB")
