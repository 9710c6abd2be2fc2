"""What a run gives back."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from eigenmesh.certificate import Certificate
from eigenmesh.errors import UnreadableFileError
from eigenmesh.networks import Traffic
from eigenmesh.stopping import StopReason


class Record(NamedTuple):
    """One line of a run's history.

    Attributes
    ----------
    iteration, rounds, messages, matrices, bytes : cost so far, checks included.
    residual : largest residual over nodes and components; NaN where it was not looked at.
    error : the paper's mean sin^2 error, NaN unless the run was given the truth.
    step_size : the solver's step; NaN for solvers without one.
    """

    iteration: int
    rounds: int
    messages: int
    matrices: int
    bytes: int
    residual: float
    error: float
    step_size: float


@dataclass(frozen=True)
class Result:
    """Components at every node, with their certificate and what they cost.

    Attributes
    ----------
    components : (K, d) the components that all nodes agree on.
    node_components : (nodes, K, d) each node's own estimate, in the same order and signs.
    explained_variance : (K,) eigenvalues of the pooled covariance.
    traffic : everything the run sent, checks and certificates included; what the moments cost comes before it.
    traffic_by_phase : the same split into what it was for.
    """

    solver: str
    components: np.ndarray
    node_components: np.ndarray
    explained_variance: np.ndarray
    certificate: Certificate
    stop_reason: StopReason
    iterations: int
    traffic: Traffic
    traffic_by_phase: dict[str, Traffic]
    history: tuple[Record, ...]
    n_nodes: int
    wall_s: float

    @property
    def converged(self) -> bool:
        """True if the certificate reached the tolerance."""
        return self.stop_reason is StopReason.CONVERGED

    def summary(self) -> dict[str, Any]:
        """Plain numbers and strings for a table or a JSON file."""
        certificate = self.certificate
        return {
            "solver": self.solver,
            "n_components": len(self.explained_variance),
            "nodes": self.n_nodes,
            "converged": self.converged,
            "stop_reason": self.stop_reason.label,
            "advice": self.stop_reason.advice,
            "iterations": self.iterations,
            "rounds": self.traffic.rounds,
            "messages": self.traffic.messages,
            "matrices": self.traffic.matrices,
            "bytes": self.traffic.bytes,
            "rounds_by_phase": {phase: spent.rounds for phase, spent in self.traffic_by_phase.items()},
            "residuals": certificate.residuals.tolist(),
            "gaps": _finite(certificate.gaps),
            "error_bound": certificate.error_bound,
            "error_bounds": certificate.error_bounds.tolist(),
            "clusters": [[k + 1 for k in cluster] for cluster in certificate.clusters],
            "orthonormality": certificate.orthonormality,
            "disagreement": float(certificate.disagreement.max()),
            "warnings": list(certificate.warnings),
            "explained_variance": self.explained_variance.tolist(),
            "wall_s": self.wall_s,
        }


def with_set_up(result: Result, traffic: Traffic) -> Result:
    """The result of a run with the cost of the whole fit: what was sent before the run is put in front."""
    before = traffic - result.traffic
    history = tuple(
        record._replace(**{name: getattr(record, name) + sent for name, sent in vars(before).items()})
        for record in result.history
    )
    phases = {"set-up": before, **result.traffic_by_phase}
    return replace(result, traffic=traffic, traffic_by_phase=phases, history=history)


def _finite(values: np.ndarray) -> list[float | None]:
    """JSON has no infinity: None stands for 'nothing there'."""
    return [float(value) if np.isfinite(value) else None for value in values]


def require_writable(path: str | os.PathLike[str]) -> Path:
    """Raise before any work if a file cannot be written there later."""
    path = Path(path)
    folder = path.parent
    if path.is_dir():
        raise UnreadableFileError(f"cannot write {path}: it is a folder; give a file name.")
    if not folder.is_dir():
        raise UnreadableFileError(f"cannot write {path}: there is no folder {folder}; make it first.")
    try:
        with tempfile.NamedTemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UnreadableFileError(f"cannot write {path}: {error.strerror}; choose another folder.") from error
    if path.exists() and not os.access(path, os.W_OK):
        raise UnreadableFileError(f"cannot write {path}: permission denied; choose another name.")
    return path


def write_atomically(path: Path, write: Any) -> None:
    """Call ``write(file)`` on a temporary file beside ``path``, then move it there: whole or not at all."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    # Opened with the rights that any new file gets, so that the user's mask holds.
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            # On the disk before the old one goes: a power cut must not leave an empty file of that name.
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk, where the system lets one."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            os.fsync(handle)
    finally:
        os.close(handle)


def save_arrays(path: str | os.PathLike[str], arrays: dict[str, Any]) -> None:
    """Write arrays to an .npz file, whole or not at all."""
    write_atomically(Path(path), lambda file: np.savez_compressed(file, **arrays))


def save_json(path: str | os.PathLike[str], content: dict[str, Any]) -> None:
    """Write a JSON file, whole or not at all."""
    text = json.dumps(content, indent=2, allow_nan=False) + "\n"
    write_atomically(Path(path), lambda file: file.write(text.encode()))
