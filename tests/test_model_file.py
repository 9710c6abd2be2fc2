"""The model file: what is written is read back, damage is found out, and a loaded model gives the same answers."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields, replace

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline

from eigenmesh import DecentralizedPCA, load_model
from eigenmesh.data.datasets import gaussian, geometric_spectrum
from eigenmesh.errors import InputError, UnknownNameError, UnreadableFileError
from eigenmesh.model import FORMAT_VERSION, Model, digest_of, read_model, write_model

SAMPLES = gaussian(geometric_spectrum(6, 2, 0.5, 0.6), 120, seed=3, mean=np.arange(6.0))


def make_model(dtype=np.float64) -> Model:
    """A model with a value in every field, none of them the default."""
    rng = np.random.default_rng(0)
    components = np.linalg.qr(rng.standard_normal((6, 3)))[0].T.astype(dtype)
    return Model(
        components=components,
        explained_variance=np.array([4.0, 2.0, 1.0], dtype=dtype),
        explained_variance_ratio=np.array([0.4, 0.2, 0.1], dtype=dtype),
        singular_values=np.array([20.0, 14.0, 10.0], dtype=dtype),
        mean=np.arange(6.0),
        scale=np.linspace(1, 2, 6),
        noise_variance=0.75,
        n_samples=101,
        node_components=np.stack([components, components]),
        feature_names=("a", "b", "c", "länge", "größe in m", "f"),
        node_names=("oslo", "bergen"),
        run_id="00ff",
        whole=False,
        converged=False,
        tol=1e-6,
        error_bound=0.25,
        whiten=True,
        missing="mean",
    )


def assert_same(found: Model, expected: Model) -> None:
    for one in fields(Model):
        ours, theirs = getattr(found, one.name), getattr(expected, one.name)
        assert type(ours) is type(theirs), one.name
        if isinstance(theirs, np.ndarray):
            assert ours.dtype == theirs.dtype, one.name
            assert np.array_equal(ours, theirs), one.name
        else:
            assert ours == theirs, one.name


def arrays_of(path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as archive:
        return dict(archive)


def forge(path, changes) -> None:
    """Write other arrays into a file, with a digest that fits them."""
    arrays = {**arrays_of(path), **changes}
    del arrays["digest"]
    arrays = {name: np.asarray(array) for name, array in arrays.items()}
    np.savez(path, **arrays, digest=np.asarray(digest_of(arrays)))


def assert_refused(path, *fragments: str) -> None:
    with pytest.raises(UnreadableFileError) as caught:
        read_model(path)
    message = str(caught.value)
    for fragment in (str(path), *fragments):
        assert fragment in message
    assert "again" in message or "Give a file" in message  # the fix


@pytest.fixture
def path(tmp_path):
    """A file with every field."""
    write_model(tmp_path / "model.npz", make_model())
    return tmp_path / "model.npz"


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_field_comes_back(tmp_path, dtype):
    model = make_model(dtype)
    write_model(tmp_path / "model.npz", model)
    assert_same(read_model(tmp_path / "model.npz"), model)
    assert [file.name for file in tmp_path.iterdir()] == ["model.npz"]


def test_what_may_be_absent_comes_back_absent(tmp_path):
    full = make_model()
    model = Model(
        full.components, full.explained_variance, full.explained_variance_ratio, full.singular_values, full.mean
    )
    write_model(tmp_path / "model.npz", model)
    assert_same(read_model(str(tmp_path / "model.npz")), model)
    assert model.warnings == ()


def test_numbers_of_any_kind_are_written_as_what_they_stand_for(tmp_path):
    model = replace(make_model(), noise_variance=0, tol=np.float32(0.5), n_samples=np.int32(9), whole=np.True_)
    write_model(tmp_path / "model.npz", model)
    found = read_model(tmp_path / "model.npz")
    assert (found.noise_variance, found.tol, found.n_samples, found.whole) == (0.0, 0.5, 9, True)


def test_the_digest_does_not_depend_on_byte_order_or_memory_layout(tmp_path, path):
    swapped = replace(
        make_model(), components=np.asfortranarray(make_model().components), mean=make_model().mean.astype(">f8")
    )
    write_model(tmp_path / "other.npz", swapped)
    assert str(arrays_of(tmp_path / "other.npz")["digest"]) == str(arrays_of(path)["digest"])
    assert np.array_equal(read_model(tmp_path / "other.npz").mean, make_model().mean)


def test_a_flipped_byte_is_refused_or_changes_nothing(path):
    whole, expected, refused = path.read_bytes(), make_model(), 0
    # Every third byte of the table of contents, each time another bit, and some of each array.
    contents = whole.index(b"PK\x01\x02")
    places = [*range(0, contents, 61), *range(contents, len(whole), 3)]
    for place in places:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        try:
            found = read_model(path)
        except UnreadableFileError as error:
            assert str(path) in str(error)  # noqa: PT017
            refused += 1
        else:
            # Dates and the like in the archive, which mean nothing.
            assert_same(found, expected)
    assert refused > len(places) / 3


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.9, 0.999])
def test_a_truncated_file_is_refused(path, share):
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    assert_refused(path, "cannot be read as .npz")


def test_a_file_that_lost_an_array_is_refused(path):
    whole = arrays_of(path)
    for name in whole:
        np.savez(path, **{other: array for other, array in whole.items() if other != name})
        assert_refused(path, "damaged")
    np.savez(path, **{name: array for name, array in whole.items() if name not in ("format_version", "digest")})
    assert_refused(path, "lacks a format version or a digest")


def test_a_file_that_gained_an_array_is_refused(path):
    np.savez(path, **arrays_of(path), more=np.zeros(3))
    assert_refused(path, "digest does not match")


def test_an_edited_array_is_refused(path):
    whole = arrays_of(path)
    for name in set(whole) - {"digest", "format_version"}:
        array = whole[name].copy()
        if array.dtype.kind == "f":
            array.flat[0] = np.nextafter(array.flat[0], np.inf)
        elif array.dtype.kind == "U":
            array.flat[0] = "b" if array.flat[0] == "a" else "a"
        else:
            array = array + 1 if array.dtype.kind == "i" else ~array
        np.savez(path, **{**whole, name: array})
        assert_refused(path, "damaged or was edited", "digest does not match")
    # The same bytes under another type or shape are another model.
    for changed in (whole["mean"].view(np.int64), whole["mean"][np.newaxis]):
        np.savez(path, **{**whole, "mean": changed})
        assert_refused(path, "digest does not match")


def test_a_newer_file_asks_for_a_newer_eigenmesh(path):
    np.savez(path, **{**arrays_of(path), "format_version": np.asarray(FORMAT_VERSION + 1), "tensor": np.zeros(2)})
    with pytest.raises(UnreadableFileError, match=r"model\.npz was written by a newer eigenmesh .*; upgrade eigenmesh"):
        read_model(path)


def test_what_is_no_model_is_refused(tmp_path):
    assert_refused(tmp_path / "none.npz", "does not exist")
    assert_refused(tmp_path, "not a file")
    (tmp_path / "text.npz").write_text("a,b\n1,2\n")
    assert_refused(tmp_path / "text.npz", "cannot be read")
    np.save(tmp_path / "x.npy", SAMPLES)
    assert_refused(tmp_path / "x.npy", "cannot be read")
    np.savez(tmp_path / "data.npz", X=SAMPLES)
    assert_refused(tmp_path / "data.npz", "not a model", "no components")
    np.savez(tmp_path / "pickle.npz", components=np.array([None]))
    assert_refused(tmp_path / "pickle.npz", "cannot be read")


WRONG = [
    ({"components": np.ones(6)}, r"components have shape \(6,\); they must be \(K, d\)"),
    ({"mean": np.zeros(5)}, r"mean has shape \(5,\); it must be \(6,\)"),
    ({"explained_variance": np.ones((3, 1))}, r"explained_variance has shape \(3, 1\); it must be \(3,\)"),
    ({"node_components": np.ones((2, 3, 5))}, r"node_components has shape \(2, 3, 5\); it must be \(any, 3, 6\)"),
    ({"mean": np.full(6, np.nan)}, "mean must be finite numbers"),
    ({"components": np.ones((3, 6), dtype=int)}, "components must be finite numbers"),
    ({"scale": np.zeros(6)}, "scale is 0 for a feature; it must be positive"),
    ({"feature_names": ("a",)}, "1 feature_names for 6 features"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG)
def test_a_model_that_cannot_be_used_is_not_made_and_not_read(path, changes, message):
    with pytest.raises(InputError, match=message):
        replace(make_model(), **changes)
    forge(path, changes)
    with pytest.raises(UnreadableFileError, match=message):
        read_model(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"noise_variance": np.nan}, "noise_variance = nan must be finite"),
        ({"noise_variance": -1.0}, "noise_variance = -1 must"),
        ({"n_samples": 0}, "n_samples = 0 must be at least 1"),
        ({"missing": "drop"}, "missing = 'drop'"),
    ],
)
def test_wrong_numbers_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        replace(make_model(), **changes)


@pytest.mark.parametrize("changes", [{"whole": np.array([1.0])}, {"run_id": np.array(3)}, {"node_names": np.array(1)}])
def test_values_of_another_type_are_refused(path, changes):
    forge(path, changes)
    assert_refused(path, next(iter(changes)), "must be")


def test_a_model_without_a_noise_variance_projects_and_has_no_likelihood(path):
    expected = replace(
        make_model(), noise_variance=None, n_samples=None, tol=None, error_bound=None, whiten=False, missing="error"
    )
    write_model(path, expected)
    assert_same(read_model(path), expected)
    saved = load_model(path)
    frame = pd.DataFrame(SAMPLES, columns=list(expected.feature_names))
    by_hand = (SAMPLES - expected.mean) / expected.scale @ expected.components.T
    assert np.allclose(saved.transform(frame), by_hand, rtol=1e-12)
    for use in (saved.get_covariance, saved.get_precision, lambda: saved.score(frame)):
        with pytest.raises(InputError, match=r"no noise variance; fit again"):
            use()


@pytest.mark.parametrize("whiten", [False, True])
@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_loaded_model_gives_the_answers_of_the_estimator(tmp_path, whiten, scale, dtype):
    X = SAMPLES.astype(dtype)
    pca = DecentralizedPCA(3, n_nodes=4, whiten=whiten, scale=scale, missing="mean", tol=1e-3).fit(X)
    pca.save(tmp_path / "model.npz")
    saved = load_model(tmp_path / "model.npz")
    holes = X.copy()
    holes[5, 2] = np.nan
    scores = pca.transform(X)
    for ours, theirs in (
        (saved.transform(X), scores),
        (saved.transform(holes), pca.transform(holes)),
        (saved.inverse_transform(scores), pca.inverse_transform(scores)),
        (saved.score_samples(X), pca.score_samples(X)),
        (saved.score(X), pca.score(X)),
        (saved.get_covariance(), pca.get_covariance()),
        (saved.get_precision(), pca.get_precision()),
    ):
        assert np.array_equal(ours, theirs)
        assert np.asarray(ours).dtype == np.asarray(theirs).dtype
    for name in ("explained_variance_", "explained_variance_ratio_", "singular_values_", "noise_variance_"):
        assert np.array_equal(getattr(saved, name), getattr(pca, name))
    assert (saved.n_samples_, saved.n_components_, saved.n_features_in_) == (120, 3, 6)
    assert saved.model_.node_components.shape == (4, 3, 6)
    assert saved.model_.error_bound == pca.certificate_.error_bound <= saved.model_.tol == 1e-3
    assert saved.warnings_ == ()


def test_whiten_and_missing_can_be_chosen_anew(tmp_path):
    pca = DecentralizedPCA(2, n_nodes=3, whiten=True).fit(SAMPLES)
    pca.save(tmp_path / "model.npz")
    plain = load_model(tmp_path / "model.npz", whiten=False, missing="mean")
    assert np.array_equal(plain.transform(SAMPLES), pca.set_params(whiten=False).transform(SAMPLES))
    assert plain.missing == "mean"
    pca.set_params(missing="mean").save(tmp_path / "changed.npz")
    assert (load_model(tmp_path / "changed.npz").whiten, load_model(tmp_path / "changed.npz").missing) == (
        False,
        "mean",
    )
    with pytest.raises(UnknownNameError, match="'drop'"):
        load_model(tmp_path / "model.npz", missing="drop")
    with pytest.raises(InputError, match="whiten = 'no' must be True or False"):
        load_model(tmp_path / "model.npz", whiten="no")


def test_a_loaded_model_in_pipelines_and_on_the_screen(tmp_path):
    frame = pd.DataFrame(SAMPLES, columns=list("abcdef"))
    pca = DecentralizedPCA(2, n_nodes=3).fit(frame)
    pca.save(tmp_path / "model.npz")
    saved = load_model(tmp_path / "model.npz")
    assert list(saved.feature_names_in_) == list("abcdef")
    assert list(saved.get_feature_names_out()) == list(pca.get_feature_names_out()) == _columns(2)
    assert list(saved.set_output(transform="pandas").transform(frame).columns) == _columns(2)
    with pytest.raises(ValueError, match="X lacks column 'a', which the model has; add it"):
        saved.transform(frame.rename(columns={"a": "z"}))
    with pytest.raises(InputError, match="FrozenEstimator"):
        make_pipeline(saved, LinearRegression()).fit(frame, SAMPLES[:, 0])
    assert make_pipeline(FrozenEstimator(saved), LinearRegression()).fit(frame, SAMPLES[:, 0]).predict(frame).shape
    shown = repr(saved)
    assert shown.startswith("SavedModel(n_components=2, n_features=6, n_samples=120, error_bound=")
    assert shown.endswith("whiten=False, missing='error')")


def _columns(k):
    return [f"decentralizedpca{i}" for i in range(k)]


def test_limits_of_a_model_are_said_in_sentences():
    lost, short = make_model().warnings
    assert lost == "sites were lost during the run, so it describes the remaining sites only (oslo, bergen)"
    assert short == "the run ended before it reached the tolerance 1e-06; its error bound is 0.25"
    assert replace(make_model(), whole=True, converged=True).warnings == ()


def test_saving_needs_a_fit_and_a_place(tmp_path):
    with pytest.raises(NotFittedError):
        DecentralizedPCA().save(tmp_path / "model.npz")
    pca = DecentralizedPCA(1, n_nodes=2).fit(SAMPLES)
    with pytest.raises(UnreadableFileError, match="there is no folder"):
        pca.save(tmp_path / "none" / "model.npz")
    assert list(tmp_path.iterdir()) == []


def test_reading_needs_no_scikit_learn(path):
    code = (
        "import sys; from eigenmesh.model import read_model\n"
        f"print(read_model({str(path)!r}).n_samples, 'sklearn' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["101", "False"]
