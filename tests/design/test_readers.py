"""Readers: FASTA files, frequency tables, constant columns."""

import io

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from bbl.design.readers import freq2raw, readFasta, removeConst
from bbl.errors import BBLError, BBLTypeError, DataError, DataWarning


def rows(frame):
    return ["".join(row) for row in frame.to_numpy()]


def test_fasta_joins_lines_and_keeps_case_if_asked():
    text = ">one first\nACg\nt\n\n>two\r\nac\r\n GT\n>three\nA C\tGT"
    frame = readFasta(io.StringIO(text), fold_case=False)
    assert rows(frame) == ["ACgt", "acGT", "ACGT"]
    assert frame.columns.tolist() == ["1", "2", "3", "4"] and frame.index.tolist() == [0, 1, 2]
    assert readFasta(io.StringIO(text), rownames=True, fold_case=False).index.tolist() == [
        "one first",
        "two",
        "three",
    ]
    marked = io.BytesIO(b"\xef\xbb\xbf" + text.encode())
    assert rows(readFasta(marked, fold_case=False)) == rows(frame)


def cells(frame):
    """Return the letters as lists, with None where they are missing."""
    return [[None if pd.isna(x) else x for x in row] for row in frame.to_numpy().tolist()]


def fasta(*sequences):
    return io.StringIO("".join(f">{k}\n{text}\n" for k, text in enumerate(sequences)))


def test_one_sequence_in_lower_case_makes_no_fifth_letter():
    rng = np.random.default_rng(0)
    sequences = ["".join(row) for row in rng.choice(list("ACGT"), (300, 8))]
    upper = readFasta(fasta(*sequences))
    with pytest.warns(DataWarning, match=r"of 300 sequences, 1 with lower-case letters") as caught:
        folded = readFasta(fasta(*sequences[:-1], sequences[-1].lower()))
    pd.testing.assert_frame_equal(folded, upper)
    assert caught[0].filename == __file__
    kept = readFasta(fasta(*sequences[:-1], sequences[-1].lower()), fold_case=False)
    assert set(kept.iloc[-1]) <= set("acgt")


def test_gaps_and_unknown_letters():
    with pytest.warns(DataWarning) as caught:
        frame = readFasta(fasta("AC.T", "A-Nt", "..GT"))
    assert cells(frame) == [
        ["A", "C", "-", "T"],
        ["A", "-", None, "T"],
        ["-", "-", "G", "T"],
    ]
    said = str(caught[0].message)
    assert "3 '.' read as '-'" in said and "1 'N' read as missing" in said
    assert "1 with lower-case letters" in said
    # N is asparagine among amino acids, and X is unknown
    with pytest.warns(DataWarning, match="of 2 sequences, 1 'X' read as missing"):
        frame = readFasta(fasta("MNX-", "MNK-"))
    assert cells(frame) == [["M", "N", None, "-"], ["M", "N", "K", "-"]]
    # IUPAC's other letters for several bases
    with pytest.warns(DataWarning, match="1 'N', 1 'R' read as missing"):
        frame = readFasta(fasta("ACGTACGTACGTACGTACGR", "ACGTACGTACGTACGTACGN"))
    assert frame["20"].isna().all()
    # all of it can be turned off, or told otherwise
    as_written = readFasta(fasta("ac.N", "A-NT"), fold_case=False, gaps="", unknown="")
    assert rows(as_written) == ["ac.N", "A-NT"]
    with pytest.warns(DataWarning, match=r"1 '~' read as '-' \(gaps='~'\), 1 'R' read as missing"):
        frame = readFasta(fasta("A~RN"), gaps="~", unknown="R")
    assert cells(frame) == [["A", "-", None, "N"]]
    assert rows(readFasta(fasta("AC-T", "AC-T"))) == ["AC-T", "AC-T"]  # nothing to say


def test_characters_are_checked():
    with pytest.raises(BBLTypeError, match="gaps must be text") as caught:
        readFasta(fasta("AC"), gaps=None)
    assert caught.value.argument == "gaps"
    with pytest.raises(DataError, match="unknown='N ' contains a space"):
        readFasta(fasta("AC"), unknown="N ")


def test_a_byte_order_mark_is_no_content(tmp_path):
    path = tmp_path / "marked.fasta"
    path.write_bytes(b"\xef\xbb\xbf>one\nACGT\n")
    with open(path, encoding="utf-8") as text, open(path, "rb") as binary:
        for file in (path, text, binary, io.StringIO("\ufeff>one\nACGT\n")):
            assert readFasta(file, rownames=True).index.tolist() == ["one"]


def test_a_handle_of_another_encoding_is_refused_in_words(tmp_path):
    path = tmp_path / "latin.fasta"
    path.write_bytes(b">\xe9\nACGT\n")
    with (
        open(path, encoding="ascii") as handle,
        pytest.raises(DataError, match="decoded as ascii"),
    ):
        readFasta(handle)


def test_fasta_cuts_and_skips_with_a_warning():
    text = ">0\n>1\nACG\n>2\nAC\n>3\n\n>4\nACGTT\n>5\nTTT\n>6\nA\n>7\nGGGG\n"
    with pytest.warns(DataWarning) as caught:
        frame = readFasta(io.StringIO(text), rownames=True)
    (warning,) = caught
    assert (
        "of 8 sequences, 2 longer than the first (3) and truncated, 2 shorter and skipped, 2 empty"
        in str(warning.message)
    )
    assert warning.filename == __file__
    assert frame.index.tolist() == ["1", "4", "5", "7"] and rows(frame) == [
        "ACG",
        "ACG",
        "TTT",
        "GGG",
    ]
    with pytest.warns(DataWarning, match="of 2 sequences, 1 shorter and skipped.$"):
        readFasta(io.StringIO(">1\nACG\n>2\nAC\n"))


def test_fasta_paths(tmp_path):
    path = tmp_path / "x.fasta"
    path.write_text(">a\nAC\n>b\nGT\n")
    assert rows(readFasta(path)) == rows(readFasta(str(path))) == ["AC", "GT"]
    with open(path) as handle:
        assert rows(readFasta(handle)) == ["AC", "GT"]
    with pytest.raises(FileNotFoundError):
        readFasta(tmp_path / "none.fasta")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n",
        ">a\n>b\n",
        "ACGT\n",
        "a,b\n1,2\n",
        ">a\nA\0C\n",
        b"\xff\xfe\x00",
        b"\x1f\x8b\x08\x00",
    ],
)
def test_no_fasta(text):
    with pytest.raises(DataError, match="Use an? .*FASTA file"):
        readFasta(io.StringIO(text) if isinstance(text, str) else io.BytesIO(text))


def test_fasta_types():
    for bad in (None, 3, [">a", "AC"]):
        with pytest.raises(BBLTypeError, match="file must be a path or an open file") as caught:
            readFasta(bad)
        assert caught.value.argument == "file"
    with pytest.raises(BBLTypeError, match="rownames must be True or False"):
        readFasta(io.StringIO(">a\nAC\n"), rownames="yes")


def test_motif_of_the_paper(shared):
    path = shared / "data" / "bbl-r" / "MA0014.3.fasta"
    if not path.exists():
        pytest.skip(f"{path} is absent")
    with pytest.warns(
        DataWarning, match=r"of 1412 sequences, 39 shorter and skipped, 425 empty and skipped"
    ):
        frame = readFasta(path)
    assert frame.shape == (948, 12)
    # section 3.6
    assert rows(frame)[:4] == ["GGGCGTGACTTC", "CAGCGTGACGCG", "GCGCGTCACGCT", "CAGCTTGACCAG"]
    assert set(frame.to_numpy().ravel()) == set("ACGT")


def tables():
    columns = {"a": ["x", "y", "z"], "n": [2, 0, 3], "b": [1.5, 2.5, 3.5]}
    yield from (
        columns,
        pd.DataFrame(columns, index=[7, 8, 9]),
        pl.DataFrame(columns),
        pa.table(columns),
    )


@pytest.mark.parametrize("data", list(tables()), ids=lambda data: type(data).__module__)
def test_freq2raw(data):
    by_name = freq2raw(data, "n")
    assert by_name.columns.tolist() == ["a", "b"] and by_name.index.tolist() == [0, 1, 2, 3, 4]
    assert (
        by_name["a"].tolist() == ["x", "x", "z", "z", "z"]
        and by_name["b"].tolist() == [1.5] * 2 + [3.5] * 3
    )
    by_array = freq2raw(data, [2, 0, 3])
    assert by_array.columns.tolist() == ["a", "n", "b"]
    pd.testing.assert_frame_equal(by_array.drop(columns="n"), by_name)


def test_freq2raw_keeps_types():
    data = pd.DataFrame({"a": pd.Categorical(["x", "y"], ["y", "x", "z"], ordered=True), 0: [1, 2]})
    assert freq2raw(data, np.array([1, 2]))["a"].dtype == data["a"].dtype
    assert freq2raw(data, 0).columns.tolist() == ["a"]


@pytest.mark.parametrize(
    ("freq", "error"),
    [
        ("m", DataError),
        ("a", BBLTypeError),
        ([1, 2], DataError),
        ([1, 2, -1], DataError),
        ([1, 2, 0.5], DataError),
    ]
    + [(None, BBLTypeError), (3, BBLTypeError), ([0, 0, 0], DataError), ([1, 1, None], DataError)],
)
def test_freq2raw_bad(freq, error):
    with pytest.raises(error):
        freq2raw({"a": ["x", "y", "z"], "n": [1, 2, 3]}, freq)


def test_freq2raw_refuses_a_series_of_another_index():
    data = pd.DataFrame({"a": ["x", "y", "z"]}, index=[3, 4, 5])
    counts = pd.Series([1, 0, 2], index=data.index)
    assert freq2raw(data, counts)["a"].tolist() == ["x", "z", "z"]
    for other in (counts[::-1], counts.reset_index(drop=True)):
        with pytest.raises(
            DataError,
            match=r"freq is a Series with a different index.*freq\.reindex\(data\.index\)",
        ):
            freq2raw(data, other)
        assert freq2raw(data, other.to_numpy())["a"].tolist()[0] in "xy"


def test_freq2raw_names_its_argument():
    with pytest.raises(DataError, match="freq must .* integers, but row 2 has -1") as caught:
        freq2raw({"a": ["x", "y", "z"]}, [1, 2, -1])
    assert caught.value.argument == "freq"


def test_remove_const():
    data = {
        "y": ["no"] * 3,
        "a": [1, 1, 1],
        "b": [1, 2, 1],
        "c": [None] * 3,
        "d": [1.0, np.nan, 1.0],
        "e": [[1]] * 3,
    }
    assert removeConst(data).columns.tolist() == ["b", "d"]
    assert removeConst(data, "y").columns.tolist() == ["y", "b", "d"]
    # one column is a frame too
    assert isinstance(removeConst({"a": [1, 2], "b": [1, 1]}), pd.DataFrame)
    assert removeConst({"a": [1, 1]}).shape == (2, 0)
    mixed = pd.DataFrame(
        {
            "a": np.array([1, True], dtype=object),
            "l": [[1], [2]],
            "t": pd.to_datetime(["2020", "2021"]),
        }
    )
    assert removeConst(mixed).columns.tolist() == ["a", "l", "t"]
    categories = pd.DataFrame(
        {"a": pd.Categorical(["x", "x"], ["x", "y"]), "b": pd.Categorical(["x", None])},
        index=[5, 6],
    )
    assert removeConst(categories).columns.tolist() == ["b"] and removeConst(
        categories
    ).index.tolist() == [5, 6]
    assert removeConst(pd.DataFrame({"a": []})).columns.tolist() == ["a"]
    with pytest.raises(DataError, match="no column 'z'"):
        removeConst(data, "z")
    with pytest.raises(BBLTypeError, match="data must be"):
        removeConst([1, 2])


def test_remove_const_of_any_table():
    for data in (
        pl.DataFrame({"a": [1, 1], "b": ["x", "y"]}),
        pa.table({"a": [1, 1], "b": ["x", "y"]}),
    ):
        assert removeConst(data).to_dict("list") == {"b": ["x", "y"]}


def test_remove_const_leaves_its_input_alone():
    data = pd.DataFrame({"a": [1, 2], "b": [1, 1]})
    left = removeConst(data)
    left.loc[0, "a"] = 9
    assert data["a"].tolist() == [1, 2]


def test_a_table_that_would_not_fit_into_memory_is_refused():
    with pytest.raises(MemoryError, match="weights") as caught:
        freq2raw({"a": ["x", "y"], "n": [10**12, 10**12]}, "n")
    assert isinstance(caught.value, BBLError)
