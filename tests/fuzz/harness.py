"""What the fuzz targets share: values drawn from the bytes of an input, and which errors are
refusals.
"""

import numpy as np

from bbl.errors import BBLError

ODD = (
    0,
    1,
    2,
    3,
    -1,
    255,
    256,
    65535,
    65536,
    2**31 - 1,
    2**31,
    2**32,
    2**32 + 2,
    2**63 - 1,
    -(2**63),
)


class Source:
    """Values drawn from the bytes of one input; past its end all bytes are 0."""

    def __init__(self, data: bytes):
        self.data = data

    def take(self, n: int) -> bytes:
        part, self.data = self.data[:n], self.data[n:]
        return part.ljust(n, b"\0")

    def integer(self, low: int, high: int) -> int:
        """Return a number in low..high, from one byte if the span allows."""
        span = high - low + 1
        return low + int.from_bytes(self.take(1 if span <= 256 else 8), "little") % span

    def pick(self, options):
        return options[self.integer(0, len(options) - 1)]

    def maybe(self, one_in: int) -> bool:
        """Return True for one byte in `one_in`, never past the end."""
        return self.integer(0, 255) % one_in == one_in - 1

    def array(self, dtype, *shape: int) -> np.ndarray:
        """Return an array of any bytes, or of small numbers."""
        dtype = np.dtype(dtype)
        count = int(np.prod(shape))
        if self.maybe(4):
            raw = np.frombuffer(self.take(count * dtype.itemsize), dtype)
        else:
            raw = np.frombuffer(self.take(count), np.int8)
            raw = raw / 16 if dtype.kind == "f" else raw
        array = raw.astype(dtype).reshape(shape)
        # no signalling nan
        return np.where(np.isnan(array), dtype.type("nan"), array) if dtype.kind == "f" else array


def accepts(target, data: bytes) -> bool:
    """Return whether `target` used the input; an error of the package is a refusal, any other goes
    up.
    """
    try:
        target(Source(data))
    except BBLError:
        return False
    return True
