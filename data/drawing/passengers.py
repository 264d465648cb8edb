"""Writes the shipped table of the Titanic's passengers (data/titanic_passengers.csv) from OpenML's
data set 40945, of which scikit-learn 1.9.1 contains a copy for its tests.

Run as ``python data/drawing/passengers.py FILE``, where FILE is the ARFF file, gzipped or not. Not
installed.
"""

import argparse
import csv
import gzip
from pathlib import Path

CLASSES = {"1": "1st", "2": "2nd", "3": "3rd"}
COLUMNS = ["Class", "Sex", "Age", "Survived"]


def rows(path: Path) -> list[list[str]]:
    """Return class, sex, age (empty if unknown) and survival of each passenger."""
    content = path.read_bytes()
    text = (gzip.decompress(content) if path.name.endswith(".gz") else content).decode()
    header, body = text.split("@data\n")
    names = [line.split("'")[1] for line in header.splitlines() if line.startswith("@attribute")]
    found = []
    for values in csv.reader(body.strip().splitlines()):
        passenger = dict(zip(names, values, strict=True))
        age = passenger["age"].replace("?", "")
        survived = {"0": "No", "1": "Yes"}[passenger["survived"]]
        found.append([CLASSES[passenger["pclass"]], passenger["sex"].capitalize(), age, survived])
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    passengers = rows(parser.parse_args().file)
    target = Path(__file__).resolve().parents[1] / "titanic_passengers.csv"
    with target.open("w", newline="") as stream:
        csv.writer(stream, lineterminator="\n").writerows([COLUMNS, *passengers])
    print(f"{target}: {len(passengers)} passengers")
