"""Tables and the plot of the accuracy benchmark."""
from pathlib import Path


def write(frame, out: Path) -> None:
    pass
