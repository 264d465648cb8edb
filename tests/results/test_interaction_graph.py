"""Interactions of machines as graphs: the pairs of interactions() with their strengths, in
networkx, GraphML, DOT.
"""

import re
import warnings

import networkx
import pytest

import bbl

TITANIC = bbl.datasets.load_titanic()


def edges(graph):
    return {
        (a, b, key): strength for a, b, key, strength in graph.edges(keys=True, data="strength")
    }


@pytest.mark.parametrize(
    "formula", ["Survived ~ Class * Sex + Sex * Age", "~ Class * Sex + Survived"]
)
def test_edges_are_the_interactions(formula):
    fit = bbl.bbl(formula, TITANIC, "Freq")
    table = fit.interactions()
    wanted = {
        (row.predictor, row.predictor2, row.group): row.strength for row in table.itertuples()
    }
    graph = fit.to_networkx()
    assert list(graph.nodes) == list(fit.labels.names)
    assert edges(graph) == pytest.approx(wanted)


def test_graphml_keeps_groups_and_strengths(tmp_path):
    graph = bbl.bbl("Survived ~ .^2", TITANIC, "Freq", lambda_=0.01, verbose=0).to_networkx()
    networkx.write_graphml(graph, tmp_path / "fit.graphml")
    assert edges(networkx.read_graphml(tmp_path / "fit.graphml", force_multigraph=True)) == edges(
        graph
    )


def test_edges_of_a_graphml_file_have_names_of_their_own(tmp_path):
    graph = bbl.bbl("Survived ~ .^2", TITANIC, "Freq", lambda_=0.01, verbose=0).to_networkx()
    networkx.write_graphml(graph, tmp_path / "fit.graphml", edge_id_from_attribute="edge")
    names = re.findall(
        r'<edge [^>]*id="(\w+)"', (tmp_path / "fit.graphml").read_text(encoding="utf-8")
    )
    assert len(set(names)) == len(names) == graph.number_of_edges() == 6


def test_pairs_without_coupling_have_no_edge():
    fit = bbl.bbl("Survived ~ Class + Sex", TITANIC, "Freq")
    assert not fit.to_networkx().edges
    assert fit.to_dot() == 'graph {\n  "Class";\n  "Sex";\n}'


def test_dot_names_the_group_and_quotes_names():
    data = TITANIC.rename(columns={"Sex": 'Se"x'})
    text = bbl.bbl('Survived ~ Class * `Se"x`', data, "Freq").to_dot()
    assert '"Class" -- "Se\\"x" [label="Yes: ' in text


def test_terms_of_three_add_to_their_pairs():
    fit = bbl.bbl("~ Class * Sex * Survived", TITANIC, "Freq", lambda_=0.01, verbose=0)
    pairs = fit.interactions(order=2)
    strengths = sorted(strength for *_, strength in fit.to_networkx().edges(data="strength"))
    assert strengths == pytest.approx(sorted(pairs["strength"]))


def test_rounding_errors_of_couplings_are_not_edges():
    rows = {"y": list("abc"), "u": list("qpq"), "v": list("qpp"), "w": [28, 88, 199]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bbl.DataWarning)
        fit = bbl.bbl("y ~ u * v", rows, "w", prior_count=1.0)
    assert set(fit.interactions()["strength"]) == {0.0}
    assert fit.to_dot() == 'graph {\n  "u";\n  "v";\n}'
