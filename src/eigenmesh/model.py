"""The model file: a fitted model as one .npz file without pickle, with a version and a digest."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from html import escape
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints

import numpy as np

from eigenmesh.atomic_write import save_arrays
from eigenmesh.errors import InputError, UnreadableFileError
from eigenmesh.words import html_paragraphs, html_table

FORMAT_VERSION = 1
# How files of models end, and what is added to a name without a suffix.
SUFFIX, FULL_SUFFIX = ".npz", ".eigenmesh.npz"

# Shape of each array: K components, d features; the first axis of node_components is free.
_SHAPES = {
    "components": ("K", "d"),
    **dict.fromkeys(("explained_variance", "explained_variance_ratio", "singular_values"), ("K",)),
    **dict.fromkeys(("mean", "scale"), ("d",)),
    "node_components": ("any", "K", "d"),
    "scores": ("any", "K"),
}
_REQUIRED = ("components", "explained_variance", "explained_variance_ratio", "singular_values", "mean")
# Loadings of a component that a notebook shows.
SHOWN_LOADINGS = 3
_HINT = "Give a file that DecentralizedPCA.save, eigenmesh fit --out or eigenmesh site run has written."
_DAMAGED = "Copy it again from where it was written, or fit again."


@dataclass(frozen=True, eq=False)
class Model:
    """A fitted model as plain arrays and values, checked on creation.

    Attributes
    ----------
    components : array of shape (K, d)
        Principal axes.
    explained_variance, explained_variance_ratio, singular_values : array of shape (K,)
        As scikit-learn's PCA defines them.
    mean : array of shape (d,)
        Pooled mean.
    scale : array of shape (d,) or None
        What each feature was divided by, if features were scaled.
    noise_variance : float or None
        Mean of the variances beyond K. None if unknown.
    n_samples : int, float or None
        Pooled number of samples, or the sum of their weights. None if unknown.
    node_components : array of shape (nodes, K, d) or None
        The estimate of each node that the writer held.
    scores : array of shape (N, K) or None
        Those of the fitted samples, if the columns were split over the nodes.
    all_features : int or None
        Number of columns of all nodes, if columns were split. The model may have those of one node only.
    feature_names, node_names : tuple of str or None
        Names of the d features and of all nodes.
    run_id : str or None
        The run of peers that produced it.
    whole : bool
        False if sites were lost during the run, so that their samples are not in the model.
    converged : bool
        Whether the error bound reached ``tol``.
    tol, error_bound : float or None
        The requested bound on sin(angle to the true components), and the bound that was reached.
    spe_mean, spe_variance : float or None
        Those of the squared prediction error of samples before they were fitted, in a stream.
    whiten, missing : bool, str
        Settings of ``transform``.
    read_with : str or None
        How the samples of the fit were read, as JSON: categories, ids, and other options that say what features are.
    """

    components: np.ndarray = field(repr=False)
    explained_variance: np.ndarray
    explained_variance_ratio: np.ndarray = field(repr=False)
    singular_values: np.ndarray = field(repr=False)
    mean: np.ndarray = field(repr=False)
    scale: np.ndarray | None = field(default=None, repr=False)
    noise_variance: float | None = None
    n_samples: int | float | None = None
    node_components: np.ndarray | None = field(default=None, repr=False)
    scores: np.ndarray | None = field(default=None, repr=False)
    all_features: int | None = None
    feature_names: tuple[str, ...] | None = field(default=None, repr=False)
    node_names: tuple[str, ...] | None = None
    run_id: str | None = None
    whole: bool = True
    converged: bool = True
    tol: float | None = None
    error_bound: float | None = None
    spe_mean: float | None = None
    spe_variance: float | None = None
    whiten: bool = False
    missing: str = "error"
    read_with: str | None = None

    def __post_init__(self) -> None:
        if np.ndim(self.components) != 2:
            raise InputError(f"components have shape {np.shape(self.components)}; they must be (K, d).")
        sizes = dict(zip("Kd", np.shape(self.components), strict=True))
        for name, letters in _SHAPES.items():
            array = getattr(self, name)
            if array is not None:
                _require_array(name, array, tuple(sizes.get(letter) for letter in letters))
        if self.feature_names is not None and len(self.feature_names) != sizes["d"]:
            raise InputError(f"there are {len(self.feature_names)} feature_names for {sizes['d']} features.")
        if self.scale is not None and not (self.scale > 0).all():
            raise InputError(f"scale is {self.scale.min():g} for a feature; it must be positive.")
        if self.noise_variance is not None and not 0 <= self.noise_variance < np.inf:
            raise InputError(f"noise_variance = {self.noise_variance:g} must be finite and not negative.")
        if self.n_samples is not None and self.n_samples < 1:
            raise InputError(f"n_samples = {self.n_samples:g} must be at least 1.")
        if self.read_with is not None and not _is_object(self.read_with):
            raise InputError(f"read_with = {self.read_with:.40} must be a JSON object.")
        if self.missing not in ("error", "mean"):
            raise InputError(f'missing = {self.missing!r} must be "error" or "mean".')

    def _repr_html_(self) -> str:
        """Components with their largest loadings, and what the model is from, for notebooks."""
        K, d = self.components.shape
        many = "" if self.n_samples is None else f" of {self.n_samples:,} samples"
        sites = "" if self.node_names is None else f" at {len(self.node_names):,} nodes"
        title = f"{K:,} components of {d:,} features{many}{sites}"
        names = self.feature_names or tuple(f"x{feature}" for feature in range(d))
        rows = [
            [str(k), f"{value:.6g}", f"{share:.2%}", ", ".join(f"{names[at]} {component[at]:+.3f}" for at in largest)]
            for k, (value, share, component, largest) in enumerate(
                zip(
                    self.explained_variance,
                    self.explained_variance_ratio,
                    self.components,
                    np.argsort(-np.abs(self.components), axis=1, kind="stable")[:, :SHOWN_LOADINGS],
                    strict=True,
                ),
                1,
            )
        ]
        words = [f"Missing entries: {self.missing}. Scores whitened: {'yes' if self.whiten else 'no'}."]
        if self.error_bound is not None:
            words.append(f"The sine of the angle of every component to the true one is at most {self.error_bound:.1e}.")
        if self.read_with is not None:
            said = "; ".join(f"{name} = {value}" for name, value in json.loads(self.read_with).items())
            words.append(f"Tables are read with {said}.")
        found = html_table(["component", "variance", "share", "largest loadings"], rows)
        warned = [f"Warning: {warning}." for warning in self.warnings]
        return f"<div><p><b>{escape(title)}</b></p>{found}{html_paragraphs([*words, *warned])}</div>"

    @property
    def warnings(self) -> tuple[str, ...]:
        """Limitations of the model, one sentence each."""
        found = []
        if not self.whole:
            remaining = f" ({', '.join(self.node_names)})" if self.node_names else ""
            found.append(f"sites were lost during the run, so it describes the remaining sites only{remaining}")
        if self.all_features is not None and self.all_features > self.components.shape[1]:
            part = f"{self.components.shape[1]:,} of {self.all_features:,} columns"
            found.append(f"it has loadings of {part}: scores of new samples are sums over sites, of which it has one")
        if not self.converged:
            bound = "" if self.error_bound is None else f"; its error bound is {self.error_bound:.2g}"
            asked = "" if self.tol is None else f" {self.tol:g}"
            found.append(f"the run ended before it reached the tolerance{asked}{bound}")
        return tuple(found)


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def _kinds(annotation: Any) -> tuple[Any, ...]:
    """The types that a field may have, apart from None."""
    return tuple(kind for kind in get_args(annotation) if kind is not NoneType) or (annotation,)


# An integral ``n_samples`` stays one: it is a float only if the weights of the samples add up to no whole number.
_KINDS = {name: _kinds(annotation) for name, annotation in get_type_hints(Model).items()}
_NAMES = (tuple[str, ...],)


def model_file(path: str | os.PathLike[str]) -> Path:
    """The file of a model with this name: without a suffix, it gets one; any other than .npz is refused."""
    path = Path(path)
    if path.suffix.lower() == SUFFIX:
        return path
    named = path.with_name(f"{path.name}{FULL_SUFFIX}")
    if path.suffix:
        raise InputError(f"{path} must end in {SUFFIX}, as a model does; call it {named}.")
    return named


def write_model(path: str | os.PathLike[str], model: Model) -> None:
    """Write a model to a file, completely or not at all.

    Parameters
    ----------
    path : path
        The file, which is replaced if it exists.
    model : Model
        What to write.
    """
    values = {one.name: getattr(model, one.name) for one in fields(model)}
    arrays = {name: _encoded(name, value) for name, value in values.items() if value is not None}
    arrays["format_version"] = np.asarray(FORMAT_VERSION)
    save_arrays(path, {**arrays, "digest": np.asarray(digest_of(arrays))})


def is_model(names: Iterable[str]) -> bool:
    """Whether an archive with arrays of these names is a saved model, rather than samples."""
    return set(_REQUIRED) <= set(names)


def read_model(path: str | os.PathLike[str]) -> Model:
    """Read a model. A damaged or edited file is refused.

    Parameters
    ----------
    path : path
        A file that ``write_model`` has written; its suffix may be left out if that is the usual one.

    Returns
    -------
    Model
        The model.
    """
    path = Path(path)
    if not path.is_file() and not path.suffix:
        path = model_file(path)
    if not path.is_file():
        raise UnreadableFileError(f"{path} does not exist or is not a file. {_HINT}")
    arrays = _arrays(path)
    _require_intact(path, arrays)
    try:
        return Model(**{name: _decoded(name, array) for name, array in arrays.items()})
    except (InputError, TypeError) as error:
        raise UnreadableFileError(f"{path} is not a usable model: {error} {_DAMAGED}") from error


def _arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except Exception as error:  # a broken archive makes NumPy and zipfile raise a dozen kinds
        # NumPy takes any other file for a pickle, and its message says how to load it in spite of the danger.
        why = (error or type(error).__name__) if zipfile.is_zipfile(path) else "it is not a zip file"
        found = f"cannot be read as .npz ({why})"
        raise UnreadableFileError(f"{path} {found}: it is damaged, or not a model. {_HINT}") from error


def digest_of(arrays: dict[str, np.ndarray]) -> str:
    """SHA-256 over name, dtype, shape and little-endian C-order bytes of each array, in the order of their names."""
    running = hashlib.sha256()
    for name in sorted(arrays):
        canonical = arrays[name].astype(arrays[name].dtype.newbyteorder("<"), order="C", copy=False)
        # The header is one line of JSON, so it cannot be confused with the data that follow it.
        running.update(json.dumps([name, canonical.dtype.str, canonical.shape]).encode() + b"\n")
        running.update(canonical.tobytes())
    return running.hexdigest()


def _require_intact(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Check the version and the digest, and remove both."""
    lacking = [name for name in _REQUIRED if name not in arrays]
    if lacking and "digest" not in arrays:
        raise UnreadableFileError(f"{path} is not a model: it has no {', no '.join(lacking)}. {_HINT}")
    version, digest = arrays.pop("format_version", None), arrays.pop("digest", None)
    if version is None or version.shape or version.dtype.kind != "i" or digest is None:
        raise UnreadableFileError(f"{path} is damaged: it lacks a format version or a digest. {_DAMAGED}")
    if version > FORMAT_VERSION:
        newer = f"format {version}; this version reads up to {FORMAT_VERSION}"
        raise UnreadableFileError(f"{path} was written by a newer eigenmesh ({newer}); upgrade eigenmesh.")
    if digest_of({**arrays, "format_version": version}) != str(digest):
        raise UnreadableFileError(f"{path} is damaged or was edited: its digest does not match. {_DAMAGED}")


def _encoded(name: str, value: Any) -> np.ndarray:
    """A field of a model as an array that needs no pickle."""
    kinds = _KINDS[name]
    if kinds == _NAMES:
        return np.asarray(list(value), dtype=np.str_)
    # NumPy's own numbers are written as those of Python that they stand for.
    return np.asarray(value if isinstance(value, kinds) else kinds[0](value))


def _decoded(name: str, array: np.ndarray) -> Any:
    """The field of a model from its array in the file."""
    kinds = _KINDS.get(name, ())
    if kinds == _NAMES:
        if array.ndim != 1 or array.dtype.kind != "U":
            raise InputError(f"{name} must be a list of text, but it has shape {array.shape} and dtype {array.dtype}.")
        return tuple(array.tolist())
    value = array.item() if array.ndim == 0 and np.ndarray not in kinds else array
    if not isinstance(value, kinds):
        wanted = ", ".join(kind.__name__ for kind in kinds) or "left out"
        raise InputError(f"{name} must be {wanted}; it has shape {array.shape} and dtype {array.dtype}.")
    return value


def _require_array(name: str, array: np.ndarray, shape: tuple[int | None, ...]) -> None:
    if array.ndim != len(shape) or any(size not in (None, n) for size, n in zip(shape, array.shape, strict=True)):
        due = ", ".join("any" if size is None else str(size) for size in shape)
        raise InputError(f"{name} has shape {array.shape}; it must be ({due}{',' if len(shape) == 1 else ''}).")
    if array.dtype.kind != "f" or not np.isfinite(array).all():
        raise InputError(f"{name} must be finite numbers, without NaN.")
