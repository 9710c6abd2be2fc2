"""All errors that eigenmesh raises on purpose.

::

    EigenmeshError
    ├── InputError (ValueError)            an invalid value
    │   ├── DataError                      samples: shape, emptiness, NaN, constant columns
    │   ├── TooFewSamplesError             fewer samples than components; a stream waits for more
    │   ├── GraphError                     networks: not connected, weights not doubly stochastic
    │   ├── UnknownNameError               a name that is not in a list; the message gives the list
    │   └── DisagreementError              a neighbour was set up for another run; has its manifest
    ├── UnreadableFileError (OSError)      a file that is missing, broken or of an unknown kind
    ├── TransportError (ConnectionError)   messages between nodes
    │   ├── DeadlineError (TimeoutError)   a neighbour did not answer in time; the message names it
    │   │   └── LostNeighbourError         neighbours were silent for too long; has their names
    │   ├── AbortedError                   another node failed; the message gives its reason
    │   │   └── ParkedError                a node paused the run; a restart resumes it
    │   ├── MembersChangedError            sites were lost, and the others agreed to continue; has the links
    │   ├── CannotResumeError              this site cannot continue the run; a restart does not help
    │   └── FrameError                     bytes that are not a frame of this run
    └── MissingExtraError (ImportError)    an optional dependency; the message gives the install command

    DataWarning (UserWarning)              samples or nodes that are valid, but probably not intended
"""

import difflib
import importlib
import importlib.util
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, ClassVar

__all__ = [
    "AbortedError",
    "CannotResumeError",
    "DataError",
    "DataWarning",
    "DeadlineError",
    "DisagreementError",
    "EigenmeshError",
    "FrameError",
    "GraphError",
    "InputError",
    "LostNeighbourError",
    "MembersChangedError",
    "MissingExtraError",
    "ParkedError",
    "TooFewSamplesError",
    "TransportError",
    "UnknownNameError",
    "UnreadableFileError",
    "file_errors",
    "import_extra",
    "require_extra",
    "warn_user",
]


class EigenmeshError(Exception):
    """Base of every error raised on purpose.

    ``exit_status`` is that of a command that it ends. ``told`` is what other sites may know of it: the message itself
    may reveal data or paths.
    """

    exit_status: ClassVar[int] = 2
    told: ClassVar[str] = "it has failed"


class InputError(EigenmeshError, ValueError):
    """An invalid value."""

    told = "its settings do not fit"


class DataError(InputError):
    """Invalid samples."""

    told = "its data cannot be used"


class MissingEntriesError(DataError):
    """Samples with missing or infinite entries."""

    told = "its data have missing entries"


class RangeError(DataError):
    """Values are beyond the range that was agreed for their column."""

    told = "its data are beyond the range that was agreed"


class TooFewSamplesError(InputError):
    """Too few samples for the requested components."""

    told = "there are too few samples"


class GraphError(InputError):
    """A graph or a weight matrix that cannot be used for averaging."""


class UnknownNameError(InputError):
    """An unknown name."""

    def __init__(self, kind: str, name: object, known: Iterable[str]) -> None:
        known = sorted(known)
        close = difflib.get_close_matches(str(name).lower(), known, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        super().__init__(f"unknown {kind} {name!r}; there are: {', '.join(known)}.{hint}")


class DisagreementError(InputError):
    """A neighbour that was set up for another run: its name, and its ``manifest``."""

    def __init__(self, message: str, neighbour: str, manifest: str) -> None:
        super().__init__(message)
        self.neighbour, self.manifest = neighbour, manifest


class UnreadableFileError(EigenmeshError, OSError):
    """A file that is missing, broken or of a kind that eigenmesh does not read."""

    told = "a file of it cannot be read or written"


class TransportError(EigenmeshError, ConnectionError):
    """Messages between nodes that did not arrive."""


class DeadlineError(TransportError, TimeoutError):
    """A neighbour that did not answer in time."""


class LostNeighbourError(DeadlineError):
    """Neighbours that have been silent for too long; ``neighbours`` has their names."""

    def __init__(self, message: str, neighbours: Iterable[str]) -> None:
        super().__init__(message)
        self.neighbours = tuple(neighbours)


class AbortedError(TransportError):
    """A run that another node ended, with that node's reason."""


class ParkedError(AbortedError):
    """A run that a node paused; a restart resumes it."""


class MembersChangedError(TransportError):
    """Sites were lost, and the others have agreed to continue without them; the computation starts again."""

    def __init__(self, message: str, lost: Iterable[tuple[str, str]]) -> None:
        super().__init__(message)
        self.lost = tuple(lost)


class CannotResumeError(TransportError):
    """This site cannot continue the run: its journal is gone, or another process has taken its place."""


class FrameError(TransportError):
    """Bytes that are not a frame of this run."""


class MissingExtraError(EigenmeshError, ImportError):
    """An optional dependency that is not installed."""


class DataWarning(UserWarning):
    """Samples or nodes that are valid, but probably not intended."""


# Packages whose frames are skipped: a warning points at the line of the user who called them.
_NOT_USERS = ("eigenmesh", "sklearn")


@contextmanager
def file_errors(problem: str, fix: str) -> Iterator[None]:
    """Turn an error of the system about a file into an ``UnreadableFileError`` with the problem, its cause and a fix.

    Parameters
    ----------
    problem : what cannot be done with which file.
    fix : what its user can do about it.
    """
    try:
        yield
    except OSError as error:
        # Some errors that are raised on purpose are errors of the system, too: they say everything already.
        if isinstance(error, EigenmeshError):
            raise
        raise UnreadableFileError(f"{problem}: {error.strerror}; {fix}.") from error


def warn_user(message: str, category: type[Warning] = DataWarning) -> None:
    """Warn at the line of the user's code that called eigenmesh."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in _NOT_USERS:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


class AtFirstUse:
    """A module that is imported when one of its names is first used: a process that does without it stays small."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        # The next time it is found without coming here.
        self.__dict__[name] = value = getattr(importlib.import_module(self._module), name)
        return value


def import_extra(module: str, extra: str, purpose: str) -> ModuleType:
    """Import an optional dependency, or raise an error with the ``pip install`` command for it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise _missing(module, extra, purpose) from error


def require_extra(module: str, extra: str, purpose: str) -> None:
    """Raise unless an optional dependency is installed; it is not imported, which may take seconds."""
    if importlib.util.find_spec(module) is None:
        raise _missing(module, extra, purpose)


def _missing(module: str, extra: str, purpose: str) -> MissingExtraError:
    command = f"pip install 'eigenmesh[{extra}]'"
    return MissingExtraError(f"{purpose} needs {module.partition('.')[0]}; install it with: {command}")


def __dir__() -> list[str]:
    return __all__
