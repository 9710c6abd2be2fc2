"""Iterations of a solver, on a GPU replayed from a CUDA graph.

An iteration is a dozen small kernels around one large product, and launching them from Python takes several times as
long as running them. So on CUDA tensors the kernels of several iterations are captured once and then replayed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from eigenmesh.arrays import Array, on_gpu
from eigenmesh.data import Covariance, CovarianceKind
from eigenmesh.errors import import_extra
from eigenmesh.networks import Network, Stacked
from eigenmesh.solvers import Solver

# The first run of an iteration chooses kernels and allocates workspaces, which must not be captured.
WARM_UPS = 2
# Most iterations in one recording. The overhead of a replay is then negligible, and recording is still quick. Checks
# are often a multiple of ten iterations apart, so that no iterations are left over.
LONGEST_RECORDING = 20

Action = Callable[[], None]
Recorder = Callable[[Callable[[int], None], int, Any], Action]


def steps_of(solver: Solver, covariance: Covariance, network: Network, like: Array) -> PlainSteps | ReplayedSteps:
    """Iterations on arrays like ``like``: replayed if possible, otherwise run one by one.

    Replay needs CUDA tensors, all nodes in this process, covariances on the device, and a solver that names the numbers
    of its state that its step depends on (``traits.replay_key``).
    """
    plain = PlainSteps(solver, covariance, network)
    resident = covariance.kind in (CovarianceKind.FORMED, CovarianceKind.MATRIX_FREE)
    # Integer averages run on the host, and a replay would use the same masks twice.
    resident = resident and not network.integers
    if on_gpu(like) and isinstance(network, Stacked) and resident and solver.traits.replay_key is not None:
        return ReplayedSteps(plain, cuda_graph)
    return plain


@dataclass
class PlainSteps:
    """The iterations of one run, each a call of the solver's step."""

    solver: Solver
    covariance: Covariance
    network: Network
    # Whether all iterations take equally many rounds, so that several may be requested at once.
    alike: ClassVar[bool] = False

    def __call__(self, state: Any, n: int = 1) -> Any:
        """Run n iterations. The next call may overwrite the arrays of the returned state; see ``kept``."""
        for _ in range(n):
            state = self.solver.step(self.covariance, self.network, state)
        return state

    def kept(self, state: Any) -> Any:
        """The same state with arrays that no later call overwrites."""
        return state


@dataclass
class ReplayedSteps:
    """Plain steps recorded once and replayed; recorded again when a number that the step depends on has changed.

    A call is divided into as few equal parts as possible. The first part of each length runs without recording, since
    it may be the only one. The second is recorded.

    ``recorder(action, n, device)`` records ``action(n)``, which runs n iterations, and returns a function that replays
    it: on the same memory, and with every Python number as it was.
    """

    plain: PlainSteps
    recorder: Recorder
    alike: ClassVar[bool] = True
    _key: tuple[Any, ...] = ()
    _recordings: dict[int, _Recording | None] = field(default_factory=dict)

    def __call__(self, state: Any, n: int = 1) -> Any:
        key = tuple(getattr(state, name) for name in self.plain.solver.traits.replay_key or ())
        if key != self._key:
            # Drop the old recordings first, to free their memory.
            self._key, self._recordings = key, {}
        parts = -(-n // LONGEST_RECORDING)
        for length in [n // parts] * parts + [1] * (n % parts):
            state = self._part(state, length)
        return state

    def _part(self, state: Any, length: int) -> Any:
        if length not in self._recordings:
            self._recordings[length] = None
            # Plain steps may pass arrays on unchanged, so these must not be memory that a replay overwrites.
            return self.plain(self.kept(state), length)
        recording = self._recordings[length]
        if recording is None:
            recording = _Recording(state, length, self.plain, self.recorder)
            self._recordings[length] = recording
        return recording.replay(state)

    def kept(self, state: Any) -> Any:
        recordings = [recording for recording in self._recordings.values() if recording is not None]
        overwritten = {id(array) for recording in recordings for array in recording.memory.values()}
        return state._replace(
            **{name: array.clone() for name, array in state._asdict().items() if id(array) in overwritten}
        )


class _Recording:
    """Iterations on fixed memory: they read the arrays of a state there and write the final state in their place."""

    def __init__(self, state: Any, length: int, plain: PlainSteps, recorder: Recorder) -> None:
        self._plain, self._meter = plain, plain.network.meter
        arrays = {name: value for name, value in state._asdict().items() if hasattr(value, "untyped_storage")}
        self.memory = {name: array.clone() for name, array in arrays.items()}
        self._written: frozenset[str] = frozenset()
        device = next(iter(arrays.values())).device
        with self._meter.paused():
            self._replay = recorder(lambda n: self._advance(state, n), length, device)
        for name, array in arrays.items():
            self.memory[name].copy_(array)
        # Arrays that the step passes on unchanged: which one is currently in the fixed memory.
        self._loaded = {name: array for name, array in arrays.items() if name not in self._written}

    def replay(self, state: Any) -> Any:
        """The state after the iterations; its changed arrays are the fixed memory itself."""
        for name, memory in self.memory.items():
            array = getattr(state, name)
            if array is not memory and array is not self._loaded.get(name):
                memory.copy_(array)
                if name in self._loaded:
                    self._loaded[name] = array
        self._replay()
        self._meter.traffic += self._traffic
        self._meter.exchanges.update(self._exchanges)
        return state._replace(**{name: self.memory[name] for name in self._written})

    def _advance(self, state: Any, n: int) -> None:
        """The recorded action: n steps from the fixed memory to new arrays, which are copied back at the end."""
        before, exchanges = self._meter.traffic.copy(), self._meter.exchanges.copy()
        after = self._plain(state._replace(**self.memory), n)
        self._traffic, self._exchanges = self._meter.traffic - before, self._meter.exchanges - exchanges
        new = {name: getattr(after, name) for name in self.memory}
        new = {name: array for name, array in new.items() if array is not self.memory[name]}
        # A new array may be a view of the fixed memory under another name: copy it before that memory is overwritten.
        fixed = {array.untyped_storage().data_ptr() for array in self.memory.values()}
        moved = {name: array for name, array in new.items() if array.untyped_storage().data_ptr() in fixed}
        new.update({name: array.clone() for name, array in moved.items()})
        for name, array in new.items():
            self.memory[name].copy_(array)
        self._written = frozenset(new)


def cuda_graph(action: Callable[[int], None], times: int, device: Any) -> Action:
    """Capture the kernels of ``action(times)`` on a CUDA device, for a function that launches all of them at once."""
    torch = import_extra("torch", "torch", "a CUDA graph")
    with torch.cuda.device(device):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UPS):
                action(1)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        # Other threads may use the device during the capture.
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            action(times)

    def replay() -> None:
        with torch.cuda.device(device):
            graph.replay()

    return replay
