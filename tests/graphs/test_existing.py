import networkx as nx
import numpy as np
import pytest

from eigenmesh import DecentralizedPCA
from eigenmesh.errors import GraphError, UnreadableFileError
from eigenmesh.graphs import from_edge_list, from_networkx, metropolis
from eigenmesh.graphs.topologies import require_connected


def names(graph):
    return [graph.nodes[node]["name"] for node in graph]


def written(tmp_path, text):
    file = tmp_path / "links.txt"
    file.write_text(text, encoding="utf-8")
    return file


def test_networkx_graphs_are_numbered_in_their_order():
    given = nx.Graph([("Bern", "Rome"), ("Rome", "Oslo")])
    given.nodes["Oslo"]["people"] = 700_000
    graph = from_networkx(given)
    assert list(graph) == [0, 1, 2]
    assert names(graph) == ["Bern", "Rome", "Oslo"]
    assert sorted(graph.edges) == [(0, 1), (1, 2)]
    assert graph.nodes[2]["people"] == 700_000
    assert list(given) == ["Bern", "Rome", "Oslo"]
    assert "name" not in given.nodes["Bern"]


@pytest.mark.parametrize("links", [[(2, 0), (0, 1)], [(30, 10), (10, 20)], [(np.int64(2), 0), (0, 1)]])
def test_numbers_are_taken_in_their_order_whenever_they_were_added(links):
    graph = from_networkx(nx.DiGraph(links))
    assert names(graph) == sorted(nx.Graph(links))
    assert sorted(graph.edges) == [(0, 1), (2, 0)]
    assert list(graph) == [0, 1, 2]


@pytest.mark.parametrize("keys", [None, [10, 20, 30], ["10", "20", "30"]])
def test_parts_are_at_the_nodes_with_their_numbers(keys):
    parts = [np.random.default_rng(node).standard_normal((10, 3)) for node in range(3)]
    given = parts if keys is None else dict(zip(keys, parts, strict=True))
    pca = DecentralizedPCA(1, topology=nx.Graph([(30, 10), (10, 20)])).fit(given)
    # The first part is in the middle.
    assert sorted(pca.weights_.graph.edges) == [(0, 1), (0, 2)]


def test_subgraph_views_become_graphs_of_their_own():
    graph = from_networkx(nx.path_graph(9).subgraph([4, 5, 6]))
    assert sorted(graph.edges) == [(0, 1), (1, 2)]
    assert names(graph) == [4, 5, 6]
    assert not nx.is_frozen(graph)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (nx.MultiDiGraph([(0, 1), (0, 1)]), r"multigraph.*networkx.DiGraph\(graph\)"),
        (nx.MultiGraph([(0, 1), (0, 1)]), r"multigraph.*networkx.Graph\(graph\)"),
        (nx.Graph(), "0 nodes; give at least 1"),
        (nx.Graph([(0, 1), (1, 1)]), r"1 nodes are linked to themselves \(1\).*selfloop_edges"),
        ([(0, 1)], "the graph is a list; give a networkx.Graph"),
    ],
)
@pytest.mark.parametrize("take", [from_networkx, require_connected, metropolis])
def test_graphs_that_are_not_simple_are_refused(take, given, message):
    with pytest.raises(GraphError, match=message):
        take(given)


def test_connected_graphs_pass():
    require_connected(nx.path_graph(1))
    require_connected(nx.path_graph(5))


def test_disconnected_graphs_name_the_components_and_the_isolated():
    graph = nx.path_graph(4)
    graph.add_nodes_from(range(4, 11))
    with pytest.raises(
        GraphError, match=r"8 components, 1 is needed \(without any link: 4, 5, 6, 7, 8 and 2 more\); add links"
    ):
        require_connected(graph)
    with pytest.raises(GraphError, match=r"2 components, 1 is needed \(the smallest has: 3, 4\)"):
        require_connected(nx.Graph([(0, 1), (1, 2), (3, 4)]))
    named = nx.Graph([("Bern", "Rome")])
    named.add_node("Oslo")
    with pytest.raises(GraphError, match="without any link: Oslo"):
        require_connected(from_networkx(named))


def test_edge_lists_take_spaces_commas_and_comments(tmp_path):
    text = "# roads\nBern Rome\n\n Rome,Oslo # north\nOslo\t,  Bern\nRome Bern\n"
    graph = from_edge_list(written(tmp_path, text))
    assert names(graph) == ["Bern", "Rome", "Oslo"]
    assert sorted(graph.edges) == [(0, 1), (0, 2), (1, 2)]


def test_edge_lists_of_numbers_keep_their_order(tmp_path):
    graph = from_edge_list(str(written(tmp_path, "10 2\n1 10\n")))
    assert names(graph) == ["1", "2", "10"]
    assert sorted(graph.edges) == [(0, 2), (1, 2)]


def test_edge_lists_round_trip(tmp_path):
    given = nx.random_regular_graph(3, 20, seed=1)
    file = tmp_path / "graph.edges"
    nx.write_edgelist(given, file, data=False)
    assert {frozenset(link) for link in from_edge_list(file).edges} == {frozenset(link) for link in given.edges}


def test_edge_lists_may_start_with_a_byte_order_mark(tmp_path):
    file = tmp_path / "links.csv"
    file.write_bytes(b"\xef\xbb\xbf0,1\r\n1,2\r\n")
    assert names(from_edge_list(file)) == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a b\nc\n", r"links\.txt, line 2: 'c' is not a link; write two names"),
        ("a b 0.5\n", "line 1: 'a b 0.5' is not a link"),
        ("# all\n\na,\n", "line 3: 'a,' is not a link"),
        ("a,,b\n", "line 1: 'a,,b' is not a link"),
        ("a b\nb b\n", "line 2: 'b b' links a node to itself; remove the line"),
        ("", "has no links"),
        ("# nothing\n", "has no links"),
    ],
)
def test_malformed_edge_lists_name_the_line(tmp_path, text, message):
    with pytest.raises(GraphError, match=message):
        from_edge_list(written(tmp_path, text))


def test_unreadable_edge_lists_name_the_file(tmp_path):
    with pytest.raises(UnreadableFileError, match=r"gone\.txt cannot be read: No such file"):
        from_edge_list(tmp_path / "gone.txt")
    with pytest.raises(UnreadableFileError, match="cannot be read"):
        from_edge_list(tmp_path)
    binary = tmp_path / "links.bin"
    binary.write_bytes(b"a b\n\xff\xfe\x00")
    with pytest.raises(UnreadableFileError, match=r"links\.bin is not UTF-8 text \(byte 4\)"):
        from_edge_list(binary)
