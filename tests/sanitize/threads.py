"""The kernels in 2 to 8 Python threads at once (or as many as are asked for): the same bits as one
after the other.
"""

import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import numpy as np
from kernels import jobs, lbfgs, problem, widths

from bbl.parallel import serial_blas

ROWS = 1500  # long enough that threads meet inside the kernels


def main(counts: tuple[int, ...]) -> None:
    work = jobs(ROWS)
    serial = [job() for job in work]
    for n_threads in counts:
        with ThreadPoolExecutor(n_threads) as pool:
            # the same job in neighbouring threads, so that they meet in a kernel, and in the
            # problem that it reads
            twice = [job for job in work for _ in range(2)]
            for found, truth in zip(
                pool.map(lambda job: job(), twice), [r for r in serial for _ in "ab"], strict=True
            ):
                assert all(np.array_equal(a, b) for a, b in zip(found, truth, strict=True))
            for width, precision in product(widths(), ("double", "single")):
                shared = problem(ROWS, np.uint8, width, precision)
                theta = shared.start()
                list(
                    pool.map(
                        lambda task, p=shared, t=theta: lbfgs(p, [task], t), range(shared.n_tasks)
                    )
                )
                assert np.array_equal(theta, lbfgs(shared)[0])


if __name__ == "__main__":
    with serial_blas():  # as all verbs hold it, for the same bits
        main(tuple(map(int, sys.argv[1:])) or (2, 4, 8))
