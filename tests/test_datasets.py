"""Tests of bbl.datasets: the shipped tables against figures that are known from elsewhere."""

from importlib.resources import files

import pandas as pd
import pytest

from bbl.datasets import load_genetic_code, load_titanic


def test_titanic_has_r_levels_in_r_order():
    titanic = load_titanic()
    assert list(titanic.columns) == ["Class", "Sex", "Age", "Survived", "Freq"]
    levels = {name: list(titanic[name].cat.categories) for name in titanic.columns[:4]}
    assert levels == {
        "Class": ["1st", "2nd", "3rd", "Crew"],
        "Sex": ["Male", "Female"],
        "Age": ["Child", "Adult"],
        "Survived": ["No", "Yes"],
    }
    assert not any(titanic[name].cat.ordered for name in levels)
    assert titanic["Freq"].dtype == "int64"
    # R's row order: the first factor runs fastest
    codes = titanic[list(levels)].apply(lambda column: column.cat.codes)
    assert list(codes @ [1, 4, 8, 16]) == list(range(32))


@pytest.mark.parametrize(
    ("column", "totals"),
    [
        ("Class", {"1st": 325, "2nd": 285, "3rd": 706, "Crew": 885}),
        ("Sex", {"Male": 1731, "Female": 470}),
        ("Age", {"Child": 109, "Adult": 2092}),
        ("Survived", {"No": 1490, "Yes": 711}),
    ],
)
def test_titanic_margins_are_the_published_ones(column, totals):
    titanic = load_titanic()
    assert titanic.groupby(column, observed=True)["Freq"].sum().to_dict() == totals


def test_titanic_survivors_by_sex_and_class():
    titanic = load_titanic()
    alive = titanic[titanic["Survived"] == "Yes"].groupby(["Sex", "Class"], observed=True)["Freq"].sum()
    assert alive["Female"].to_dict() == {"1st": 141, "2nd": 93, "3rd": 90, "Crew": 20}
    assert alive["Male"].to_dict() == {"1st": 62, "2nd": 25, "3rd": 88, "Crew": 192}


def test_genetic_code_counts_per_amino_acid():
    code = load_genetic_code()
    assert list(code.columns) == ["b1", "b2", "b3", "aa"]
    codons = code["b1"] + code["b2"] + code["b3"]
    assert codons.is_unique and len(codons) == 64 and set("".join(codons)) == set("acgt")
    degeneracy = code["aa"].value_counts().to_dict()
    expected = {6: "LRS", 4: "AGPTV", 3: "I*", 2: "CDEFHKNQY", 1: "MW"}
    assert degeneracy == {aa: count for count, letters in expected.items() for aa in letters}
    assert (code["aa"] != "*").sum() == 61


@pytest.mark.parametrize(
    ("codon", "aa"), [("atg", "M"), ("tgg", "W"), ("taa", "*"), ("tag", "*"), ("tga", "*"), ("gat", "D"), ("aaa", "K")]
)
def test_genetic_code_of_known_codons(codon, aa):
    code = load_genetic_code().set_index(["b1", "b2", "b3"])["aa"]
    assert code[tuple(codon)] == aa


def test_each_call_returns_a_fresh_table():
    first = load_titanic()
    first["Freq"] = -1
    assert (load_titanic()["Freq"] >= 0).all()


def test_every_data_file_is_described():
    folder = files("bbl.data")
    readme = folder.joinpath("README.md").read_text(encoding="utf-8")
    tables = [file for file in folder.iterdir() if file.name.endswith(".csv")]
    assert len(tables) >= 2
    for file in tables:
        section = readme.split(f"## {file.name}\n")[1].split("\n## ")[0]
        assert "Source:" in section and "Licence:" in section
        with file.open(encoding="utf-8") as stream:
            columns = pd.read_csv(stream, nrows=0).columns
        assert all(f"`{name}`" in section for name in columns)
