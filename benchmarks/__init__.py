"""Benchmarks of speed and of accuracy, and studies of what the package promises; see README.md."""

from pathlib import Path

# ``python -m benchmarks.run`` and ``python -m benchmarks.coverage`` find their files one folder
# down
__path__ += [str(Path(__file__).parent / folder) for folder in ("speed", "studies")]
