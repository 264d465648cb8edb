"""Faults of the machine, real ones, while data are read in batches: a full disk, Ctrl-C, memory
that runs out.
"""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bbl
from bbl import parallel
from bbl.boltzmann import estimate as estimate_module
from bbl.design.design import Design
from bbl.engines.pseudo import blocks as pseudo_blocks
from bbl.memory import MemoryLimitError
from bbl.rows import sample as sample_module
from bbl.rows.sample import Sample
from tests import lazydata

COMMON = """
import gc, json, os, sys
import numpy as np, pandas as pd, pyarrow as pa
import bbl
rng = np.random.default_rng(0)
y = rng.integers(2, size=30_000)
table = pd.DataFrame({"y": np.where(y, "yes", "no")})
for i in range(12):
    table[f"x{i}"] = np.where(rng.random(len(y)) < 0.2, y + 1, rng.integers(4, size=len(y)))

def left():
    gc.collect()
    links = []
    for number in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else ():
        try:
            links.append(os.readlink("/proc/self/fd/" + number))
        except OSError:
            pass
    folder = os.environ["TMPDIR"]
    return os.listdir(folder) + [link for link in links if link.startswith(folder)]
"""
FULL = """
import resource
fit = bbl.bbl("y ~ .", table.head(100), method="naive")
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
reader = pa.RecordBatchReader.from_batches(pa.Schema.from_pandas(table, preserve_index=False),
                                           pa.Table.from_pandas(table, preserve_index=False).to_batches(2000))
halves = lambda: iter([table[:15_000], table[15_000:]])
for call in (lambda: bbl.bbl("y ~ .^2", halves, method="pseudo", verbose=0),
             lambda: bbl.bbl("y ~ .", reader, method="naive", verbose=0),
             lambda: fit.predict_batches(halves, to=os.path.join(os.environ["TMPDIR"], "out.parquet"))):
    try:
        call()
    except bbl.errors.DataError as error:
        print(json.dumps([str(error), None]))
    print(json.dumps(["left", left()]))
"""  # noqa: E501
INTERRUPTED = """
from bbl.engines.pseudo import blocks as pseudo_blocks
reads = []
def halves():
    reads.append(1)
    for part in (table[:15_000], table[15_000:]):
        yield part
        if len(reads) % 3 == 0:  # the names, the first pass, the second
            print("now", flush=True)
            while True:
                sum(range(1000))
pseudo_blocks.MIN_SAMPLE, pseudo_blocks.ROWS_PER_COLUMN, pseudo_blocks.FULL_FIT_FACTOR = 1500, 1, 2
own, passes = pseudo_blocks.Corrected._evaluate, []
def told(self, *arguments):
    passes.append(1)
    if len(passes) == 2:
        print("now", flush=True)
    return own(self, *arguments)
pseudo_blocks.Corrected._evaluate = told
def fits():
    while True:
        bbl.bbl("y ~ .^2", lambda: iter([table]), lambda_=1e-6, verbose=0, n_jobs=1)
for call in (lambda: bbl.bbl("y ~ .^2", halves, method="mf", verbose=0), fits):
    heard = None
    try:
        call()
    except KeyboardInterrupt:
        heard = "KeyboardInterrupt"
    print(json.dumps([heard, left()]), flush=True)
"""


@pytest.fixture(scope="module")
def child(tmp_path_factory):
    """What a process says that is interrupted twice, and then has a full disk; its folder of
    temporary files.
    """
    folder = tmp_path_factory.mktemp("faults")
    environment = os.environ | {"TMPDIR": str(folder), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", COMMON + INTERRUPTED + FULL]
    said = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        for line in process.stdout:
            said.append(line)
            if line == "now\n":
                process.send_signal(signal.SIGINT)
    return said, folder, process.returncode


@pytest.mark.long
def test_a_disk_that_takes_no_more_is_told_in_words_and_nothing_is_left_on_it(child):
    lines, folder, _ = child
    said = [json.loads(line) for line in lines[4:]]
    assert [first for first, _ in said[1::2]] == ["left"] * 3
    assert all(found == [] for _, found in said[1::2])
    codes, reader, predictions = (first for first, _ in said[::2])
    assert (
        "The codes of the rows cannot be written to a temporary file" in codes and "TMPDIR" in codes
    )
    assert "The reader's rows cannot be stored in a temporary file" in reader and "TMPDIR" in reader
    assert "predictions cannot be written to" in predictions and "out.parquet" in predictions
    assert all(
        "File too large" in text and str(folder) in text for text in (codes, reader, predictions)
    )


@pytest.mark.long
def test_control_c_in_the_second_pass_and_in_a_round_stops_and_leaves_no_file(child):
    lines, _, status = child
    assert lines[:4] == ["now\n", '["KeyboardInterrupt", []]\n'] * 2
    assert status == 0


def test_memory_that_runs_out_is_told_for_what(monkeypatch):
    table = lazydata.make_table(200, m=3)

    def none(*_, **__):
        raise MemoryError("Unable to allocate 3 GiB")

    with monkeypatch.context() as m:
        m.setattr(Design, "from_data", none)
        with pytest.raises(
            MemoryLimitError,
            match=r"encoded rows .*\(Unable to allocate 3 GiB\).*pass the path of a Parquet file",
        ):
            bbl.bbl("y ~ .^2", table)
    with monkeypatch.context() as m:
        m.setattr("bbl.api.training_data.encode_source", none)
        with pytest.raises(
            MemoryLimitError,
            match="The formula and the levels of the data needed more memory than is available",
        ):
            bbl.bbl("y ~ .^2", lambda: iter([table]), method="mf")
    with monkeypatch.context() as m:
        m.setattr("bbl.engines.base.Layout", none)
        with pytest.raises(
            MemoryLimitError, match="The list of pairs in the formula .* Use fewer predictors"
        ):
            bbl.bbl("y ~ .^2", table)
    asked = []
    monkeypatch.setattr(
        sample_module, "check_memory", lambda needed, what, _: asked.append((needed, what))
    )
    Sample(np.zeros((50, 9), dtype=np.uint8), np.ones(50)).collapsed([2] * 9)
    assert asked == [(50 * (27 + 40), "Finding duplicates among 50 rows")]


def test_the_progress_bar_tells_the_passes_of_rounds(monkeypatch):
    for name, value in (("MIN_SAMPLE", 1500), ("ROWS_PER_COLUMN", 1), ("FULL_FIT_FACTOR", 2)):
        monkeypatch.setattr(pseudo_blocks, name, value)
    table, notes = lazydata.make_table(9000, m=9), []
    fit = estimate_module.estimate_path

    def watched(data, spec, *, pooled, progress):
        def noted(share=1.0, note=""):
            notes.append((share, note))

        return fit(data, spec, pooled=pooled, progress=noted)

    monkeypatch.setattr("bbl.api.machine.fit.estimate_path", watched)
    found = bbl.bbl("y ~ .^2", lambda: iter([table]), lambda_=0.01, lambdah=0.01, testNull=False)
    passes = [note for share, note in notes if not share]
    assert passes == [f"pass {k}" for k in range(1, len(passes) + 1)]
    assert len(passes) >= sum(int(own.state["streamed"][2]) for own in found.estimate.fits) > 4
    assert sum(share for share, _ in notes) == 2.0


def test_a_note_alone_is_shown_once_the_bar_is():
    shown = []

    class Bar:
        start_t, delay, disable = 0.0, 1.0, False
        set_postfix_str = staticmethod(lambda note, refresh: shown.append(note))
        update = staticmethod(lambda share: shown.append(share))
        refresh = staticmethod(lambda: shown.append("refresh"))

    step = parallel._Steps(Bar())
    step(0.0, "pass 3")
    step()
    assert shown == ["pass 3", 0.0, "refresh", 1.0]


def test_a_column_that_the_first_file_lacks_is_not_left_out_in_silence(tmp_path):
    table = lazydata.make_table(600, m=3)
    first, *names = table.columns[1:]
    table.iloc[:300].drop(columns=first).to_parquet(tmp_path / "a.parquet")
    table.iloc[300:].to_parquet(tmp_path / "b.parquet")
    for files in (tmp_path, [tmp_path / "b.parquet", tmp_path / "a.parquet"]):
        with pytest.raises(
            bbl.errors.DataError,
            match=rf"a.parquet' has no column '{first}', but other files do",
        ):
            bbl.bbl("y ~ .", files, method="naive")
        assert bbl.bbl(f"y ~ {' + '.join(names)}", files, method="naive").labels.names == tuple(
            names
        )


def test_a_column_of_a_later_file_may_be_declared_without_gaps(tmp_path):
    table = lazydata.make_table(600, m=3)
    table.iloc[:300].to_parquet(tmp_path / "a.parquet", index=False)
    later = pa.Table.from_pandas(table.iloc[300:].assign(z=1), preserve_index=False)
    fields = [field.with_nullable(field.name != "z") for field in later.schema]
    pq.write_table(later.cast(pa.schema(fields)), tmp_path / "b.parquet")
    assert bbl.bbl("y ~ x0 + x1", tmp_path, method="naive").labels.names == ("x0", "x1")
    with pytest.raises(bbl.errors.DataError, match=r"a.parquet' has no column 'z'"):
        bbl.bbl("y ~ .", tmp_path, method="naive")
