"""Speed: named problems x named methods, every measurement in a process of its own."""

import tomllib
from pathlib import Path
from typing import Any

SUITES = ("fit", "predict", "gibbs", "latency", "scaling")


def config() -> dict[str, Any]:
    """Return what ``config.toml`` says: the cases of each suite, and the targets."""
    return tomllib.loads((Path(__file__).parent / "config.toml").read_text(encoding="utf-8"))
