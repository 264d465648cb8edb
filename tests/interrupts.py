"""Ctrl-C, tried in a process of its own: how late calls hear it, and how much work goes on behind
them.
"""

import json
import subprocess
import sys

SCRIPT = """
import json, os, signal, sys, threading, time
import numpy as np
import pandas as pd
import bbl

setup, calls = json.loads(sys.argv[1])
names = {{**globals()}}
exec(setup, names)
for call in calls:
    code, sent = compile(call, call, "exec"), []

    def interrupt():
        time.sleep({delay})
        sent.append(time.perf_counter())
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    try:
        while True:  # on a fast machine one call is over before the signal comes
            exec(code, names)
    except KeyboardInterrupt:
        late = time.perf_counter() - sent[0]
        started = time.process_time()
        time.sleep({pause})
        behind = time.process_time() - started
        bbl.bbl("y ~ x", {{"y": [0, 0, 1, 1] * 2, "x": [0, 1, 1, 1] * 2}}, verbose=0)  # the next call works
        print(json.dumps([call, late, behind]), flush=True)
"""  # noqa: E501
DELAY, PAUSE = 0.25, 0.4  # seconds before the signal, and in which nothing should go on


def unheard(setup: str, calls: list[str], latest: float = 1.0) -> list:
    """Interrupt `calls`, one after the other, after a `setup`; return those that were late, or went
    on.
    """
    code = SCRIPT.format(delay=DELAY, pause=PAUSE)
    command = [sys.executable, "-c", code, json.dumps([setup, calls])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0 and [call for call, *_ in found] == calls, done.stdout + done.stderr
    return [row for row in found if row[1] > latest or row[2] > 0.7 * PAUSE]
