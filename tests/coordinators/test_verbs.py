"""What sites answer: sums against NumPy, messages byte by byte, and everything that is refused."""

import json
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from eigenmesh import DecentralizedPCA
from eigenmesh.coordinators import Coordinator, verbs
from eigenmesh.errors import DataError, InputError, TransportError
from engine_rows import Here
from problems import angles, truth

VECTORS = json.loads((Path(__file__).parent / "vectors.json").read_text(encoding="utf-8"))
ABOUT = np.array([[1.0, -2.0, 0.5]])


def rows(n=50, seed=0):
    return np.random.default_rng(seed).standard_normal((n, 3)) * [1, 2, 3] + [4, 0, -1]


def asked(verb, Y, *arrays, weights=None, **head):
    message = verbs.encode({"verb": verb, "n_features": 3, "fills": False, **head}, *arrays)
    found, answered = verbs.decode(verbs.answer(message, Y, "oslo", weights=weights))
    assert "error" not in found, found
    return answered


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array, sparse.csc_array, np.float32], ids=lambda m: m.__name__)
class TestSums:
    def test_sums(self, make):
        Y = np.where(np.abs(rows()) > 1, rows(), 0.0)
        for about in ([], [ABOUT], [ABOUT, ABOUT * 1e-3]):
            centre = [np.vstack(about)] if about else []
            total, facts = asked("sums", make(Y), *centre)
            A = make(Y).astype(float) - sum(about, np.zeros((1, 3)))
            np.testing.assert_allclose(total, [50, *A.sum(axis=0), *(np.asarray(A) ** 2).sum(axis=0)], rtol=1e-12)
            assert facts[2] == sparse.issparse(make(Y))

    def test_triangle_product_and_beyond(self, make):
        Y = np.where(np.abs(rows(400)) > 6, rows(400), 0.0)
        A, B = np.asarray(make(Y).astype(float) - ABOUT), np.random.default_rng(1).standard_normal((3, 2))
        sums, packed = asked("triangle", make(Y), ABOUT)
        np.testing.assert_allclose(sums, [400, *A.sum(axis=0)], rtol=1e-12)
        np.testing.assert_allclose(packed, (A.T @ A)[np.triu_indices(3)], rtol=1e-12)
        np.testing.assert_allclose(*asked("product", make(Y), ABOUT, B), A.T @ A @ B, rtol=1e-12)
        U, factor = np.linalg.qr(B)[0], np.array([1.0, 0.5, 2.0])
        rest = A * factor @ (np.eye(3) - U @ U.T)
        np.testing.assert_allclose(*asked("beyond", make(Y), ABOUT, U, factor), [(rest**2).sum()], rtol=1e-12)

    @pytest.mark.parametrize("fills", [False, True])
    def test_a_row_counts_as_often_as_its_weight_says(self, make, fills):
        Y, counts = np.where(np.abs(rows()) > 5, rows(), 0.0), np.arange(50) % 4
        Y[3, 1] = np.nan if fills else 7.0
        Y[4] = np.nan  # of weight 0
        repeated, B = np.repeat(Y, counts, axis=0), np.random.default_rng(1).standard_normal((3, 2))
        U = np.linalg.qr(B)[0]
        for verb, arrays in {
            "sums": [],
            "triangle": [ABOUT],
            "product": [ABOUT, B],
            "beyond": [ABOUT, U, ABOUT[0]],
        }.items():
            found = asked(verb, make(Y), *arrays, weights=counts, fills=fills)
            np.testing.assert_allclose(
                found[0], asked(verb, make(repeated), *arrays, fills=fills)[0], rtol=1e-12, atol=1e-12
            )

    def test_missing_entries_are_the_centre(self, make):
        Y = np.where(np.abs(rows()) > 1, rows(), 0.0)
        Y[3, 1] = Y[7, 1] = np.nan
        A = np.where(np.isnan(Y), 0.0, make(np.nan_to_num(Y)).astype(float) - ABOUT)
        total, _ = asked("sums", make(Y), ABOUT, fills=True)
        np.testing.assert_allclose(total, [50, *A.sum(axis=0), *(A**2).sum(axis=0), 50, 48, 50], rtol=1e-12)
        np.testing.assert_allclose(*asked("product", make(Y), ABOUT, np.eye(3), fills=True), A.T @ A, rtol=1e-12)
        _, packed = asked("triangle", make(Y), ABOUT, fills=True)
        np.testing.assert_allclose(packed, (A.T @ A)[np.triu_indices(3)], rtol=1e-12)


def read_by_hand(text):
    """A message as the page describes it, without the module that wrote it."""
    raw = bytes.fromhex(text)
    (length,) = struct.unpack("<I", raw[:4])
    head, at, arrays = json.loads(raw[4 : 4 + length]), 4 + length, []
    for array in head["arrays"]:
        size = int(np.prod(array["shape"]))
        arrays.append(list(struct.unpack(f"<{size}d", raw[at : at + 8 * size])))
        at += 8 * size
    assert at == len(raw)
    assert (4 + length) % 8 == 0
    return head, arrays


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: case["verb"])
def test_vectors(case):
    Y, message = np.array(VECTORS["rows"]), bytes.fromhex(case["message"])
    answers = [verbs.answer(message, Y, "oslo"), verbs.answer(message, Y[:1], "bergen")]
    for made, known in ((answers[0], case["answer"]), (verbs.add(answers), case["sum"])):
        (head, arrays), (true_head, true_arrays) = read_by_hand(made.hex()), read_by_hand(known)
        assert head == true_head
        for array, true in zip(arrays, true_arrays, strict=True):
            np.testing.assert_allclose(array, true, rtol=1e-14)


class TestRefused:
    @given(st.binary(max_size=200))
    def test_any_bytes(self, sent):
        head, arrays = verbs.decode(verbs.answer(sent, rows(), "oslo"))
        assert head["error"] == "BadMessageError"
        assert arrays == []

    @given(st.integers(0, 200), st.integers(0, 255))
    def test_a_changed_byte_is_refused_or_answered(self, at, value):
        message = bytearray(verbs.encode({"verb": "product", "n_features": 3, "fills": False}, ABOUT, np.eye(3)))
        message[at % len(message)] = value
        head, _ = verbs.decode(verbs.answer(bytes(message), rows(), "oslo"))
        assert head["site"] == "oslo"

    @pytest.mark.parametrize(
        ("head", "arrays", "said"),
        [
            ({"verb": "__import__"}, [], "unknown verb '__import__'; there are: sums, triangle, product, beyond"),
            ({"verb": "sums", "n_features": 4}, [], "3 columns, and 4 were asked for"),
            ({"verb": "sums"}, [np.ones((1, 4))], r"array 0 of the message has shape \(1, 4\) for 3 columns"),
            ({"verb": "product"}, [ABOUT, np.full((3, 1), np.nan)], "array 1 of the message"),
            ({"verb": "product"}, [ABOUT], "missing 1 required"),
        ],
    )
    def test_messages(self, head, arrays, said):
        import re

        told, _ = verbs.decode(verbs.answer(verbs.encode(head, *arrays), rows(), "oslo"))
        assert re.search(said, told["text"])
        assert told["site"] == "oslo"

    def test_sizes_are_compared_before_memory_is_taken(self):
        raw = json.dumps({"format": 1, "arrays": [{"dtype": "<f8", "shape": [2**40, 2**40]}]}).encode()
        with pytest.raises(verbs.BadMessageError, match="ends within an array"):
            verbs.decode(struct.pack("<I", len(raw)) + raw)
        raw = raw.replace(b"<f8", b"|O8")
        with pytest.raises(verbs.BadMessageError, match=r"of type '<f8'; got '|O8'"):
            verbs.decode(struct.pack("<I", len(raw)) + raw)


class Changed(Here):
    """A site that changes its answers after the first."""

    def __init__(self, parts, change):
        super().__init__(parts)
        self.change, self.asked = change, 0

    def ask(self, message):
        self.asked += 1
        return super().ask(message) if self.asked == 1 else self.change(self, message)


def fewer(self, message):
    return Here(self.parts[1:]).ask(message)


def another_row(self, message):
    return Here([self.parts[0][1:], *self.parts[1:]]).ask(message)


def other_shapes(self, message):
    head, arrays = verbs.decode(super(Changed, self).ask(message))
    return verbs.encode(head, *(array[..., :1] for array in arrays))


def not_a_number(self, message):
    head, arrays = verbs.decode(super(Changed, self).ask(message))
    return verbs.encode(head, *(array * np.nan for array in arrays))


def raising(self, message):
    return verbs.encode({"error": "MemoryError", "text": "too large", "site": "oslo"})


@pytest.mark.parametrize("covariance", ["formed", "matrix-free"])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (fewer, "1 parts have answered, and 2 should have"),
        (another_row, "99 rows have answered, and 100 should have"),
        (other_shapes, "other sizes|not finite numbers of shape"),
        (raising, "oslo could not answer '(triangle|product)': MemoryError: too large"),
        (lambda self, message: b"", "is none: a message has at least 4 bytes"),
        (lambda self, message: verbs.encode({"site": "oslo"}), "is none: it has no number of parts"),
    ],
    ids=["fewer", "rows", "shapes", "raises", "empty", "incomplete"],
)
def test_wrong_answers_end_the_fit(change, said, covariance):
    sites = Changed([rows(), rows(seed=1)], change)
    with pytest.raises(TransportError, match=said):
        DecentralizedPCA(1, covariance=covariance).fit(sites)


def test_an_answer_that_is_not_a_number_ends_the_fit():
    with pytest.raises(TransportError, match="not finite"):
        DecentralizedPCA(1, covariance="matrix-free").fit(Changed([rows(), rows(seed=1)], not_a_number))
    with pytest.raises((DataError, TransportError)):
        DecentralizedPCA(1, covariance="formed").fit(Changed([rows(), rows(seed=1)], not_a_number))


class TestPlanner:
    """One large answer or many small ones, by the seconds that a request takes."""

    class Slow(Here):
        request_s = 5.0

    def test_slow_requests_are_saved(self):
        X = np.random.default_rng(0).standard_normal((60, 1000)) * np.geomspace(3, 1, 1000)
        fast, slow = (DecentralizedPCA(2, tol=1e-8).fit(kind([X[:25], X[25:]])) for kind in (Here, self.Slow))
        assert slow.traffic_.rounds == 2
        assert fast.traffic_.rounds > 5
        assert angles(slow.components_, fast.components_.T).max() < 1e-7

    def test_many_features_are_not_formed_however_slow_requests_are(self):
        X = np.random.default_rng(0).standard_normal((20, 12_000)) * np.geomspace(3, 0.1, 12_000)
        assert DecentralizedPCA(2, tol=1e-6).fit(self.Slow([X[:5], X[5:]])).traffic_.rounds > 3


def test_a_coordinator_that_learns_the_columns_from_the_first_answer():
    class Unknown(Coordinator):
        def ask(self, message):
            parts = zip(("oslo", "bergen"), (rows(), rows(seed=1)), strict=True)
            return verbs.add([verbs.answer(message, Y, site, ("a", "b", "c")) for site, Y in parts])

    pca = DecentralizedPCA(2).fit(Unknown())
    assert tuple(pca.feature_names_in_) == ("a", "b", "c")
    assert pca.n_nodes_ == 2
    assert angles(pca.components_, truth(np.vstack([rows(), rows(seed=1)]))[1][:, :2]).max() < 1e-6


def test_a_site_imports_numpy_and_nothing_else():
    code = (
        "import sys; from eigenmesh.coordinators import verbs; "
        "print(*sorted({m.partition('.')[0] for m in sys.modules} - set(sys.stdlib_module_names)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    found = {name for name in done.stdout.split() if not name.startswith("_")}
    assert {"numpy", "eigenmesh"} <= found
    assert not found & {"scipy", "sklearn", "networkx", "pandas", "typer", "rich", "narwhals", "array_api_compat"}


@pytest.mark.parametrize(
    ("weights", "text"),
    [
        ([1.0, -2.0, 1.0], "row 11 has weight -2; give 0 or a positive number."),
        ([1.0, 1.0, np.nan], "row 12 has weight nan; give 0 or a positive number."),
        ([1.0, 1.0], "2 weights of type float64 for 3 rows."),
        (["a", "b", "c"], "3 weights of type <U1 for 3 rows."),
    ],
)
def test_weights_that_are_none_are_refused(weights, text):
    message = verbs.encode({"verb": "sums", "n_features": 3})
    told, _ = verbs.decode(verbs.answer(message, rows(3), "oslo", first_row=10, weights=np.array(weights)))
    assert (told["error"], told["text"]) == ("BadMessageError", text)


def test_rows_of_weight_0_are_still_counted_as_rows_and_numbered():
    Y, weights = rows(5), np.array([0, 1, 0, 2, 1])
    message = verbs.encode({"verb": "sums", "n_features": 3})
    assert verbs.decode(verbs.answer(message, Y, weights=weights))[0]["rows"] == 5
    Y[3, 2] = np.inf
    told, _ = verbs.decode(verbs.answer(message, Y, weights=weights))
    assert (told["row"], told["column"], told["value"]) == (3, 2, "inf")


def test_sites_behind_a_coordinator_have_their_own_weights():
    with pytest.raises(InputError, match="rows of local sites have their weights there; leave out sample_weight"):
        DecentralizedPCA(1).fit(Here([rows()]), sample_weight=np.ones(50))
