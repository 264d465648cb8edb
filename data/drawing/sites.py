"""Draws the shipped sequence sites (data/crp_sites.csv, data/splice_sites.csv.gz) from the wheel of
logomaker 0.8.7.

Get the wheel with ``pip download --no-deps logomaker==0.8.7``, then run ``python
data/drawing/sites.py WHEEL``. Not installed.
"""

import argparse
import gzip
import zipfile
from pathlib import Path

SOURCE = "logomaker/examples/datafiles/"


def source_lines(wheel: zipfile.ZipFile, name: str) -> list[str]:
    """Return the lines of a data file in the wheel, without its comments."""
    text = wheel.read(SOURCE + name).decode("utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def crp_sites(wheel: zipfile.ZipFile) -> str:
    """Return the CRP sites: promoter, position relative to the start of transcription, sequence."""
    lines = source_lines(wheel, "crp_sites.fa")
    table = ["promoter,position,sequence"]
    for head, sequence in zip(lines[::2], lines[1::2], strict=True):
        _, promoter, position = head.removeprefix(">").split("\t")
        table.append(f"{promoter},{position},{sequence}")
    return "\n".join(table) + "\n"


def splice_sites(wheel: zipfile.ZipFile) -> str:
    """Return the distinct 5' splice sites with their counts, in the letters of DNA."""
    rows = [line.split("\t") for line in source_lines(wheel, "ss_sequences.txt")[1:]]
    return "sequence,count\n" + "".join(
        f"{site.replace('U', 'T')},{count}\n" for site, count in sorted(rows)
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path)
    folder = Path(__file__).resolve().parents[1]
    with zipfile.ZipFile(parser.parse_args().wheel) as source:
        (folder / "crp_sites.csv").write_text(crp_sites(source), encoding="utf-8")
        packed = gzip.compress(splice_sites(source).encode(), 9, mtime=0)
    (folder / "splice_sites.csv.gz").write_bytes(packed)
    print(f"wrote crp_sites.csv and splice_sites.csv.gz ({len(packed) / 1000:.0f} kB) to {folder}")
