"""Iterations of a solver one after the other; on a GPU replayed from a CUDA graph.

An iteration is a dozen small kernels around one large product, and starting them from Python takes several times as
long as they run. Where the arrays are CUDA tensors the kernels of one iteration are captured once and replayed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from eigenmesh.arrays import Array, on_gpu
from eigenmesh.data import Covariance, CovarianceKind
from eigenmesh.errors import import_extra
from eigenmesh.networks import Network, Stacked
from eigenmesh.solvers._base import Solver

# Kernels are chosen, and workspaces taken, while an iteration runs for the first time; neither may be captured.
WARM_UPS = 2

Action = Callable[[], None]
Recorder = Callable[[Action, Any], Action]


def steps_of(solver: Solver, covariance: Covariance, network: Network, like: Array) -> "PlainSteps":
    """Iterations on arrays like the one given: replayed where that is possible, else made one by one.

    It is possible on CUDA tensors where all nodes are in this process, the covariances are on the device and the
    solver names the numbers of its state that its step depends on (``traits.replay_key``).
    """
    resident = covariance.kind in (CovarianceKind.FORMED, CovarianceKind.MATRIX_FREE)
    if on_gpu(like) and isinstance(network, Stacked) and resident and solver.traits.replay_key is not None:
        return ReplayedSteps(solver, covariance, network, cuda_graph)
    return PlainSteps(solver, covariance, network)


@dataclass
class PlainSteps:
    """The iterations of one run, each a call of the solver's step."""

    solver: Solver
    covariance: Covariance
    network: Network

    def __call__(self, state: Any) -> Any:
        """One iteration. The state that comes back is lent: the next call may write over its arrays."""
        return self.solver.step(self.covariance, self.network, state)

    def kept(self, state: Any) -> Any:
        """The same state with arrays that no later call writes over."""
        return state


@dataclass
class ReplayedSteps(PlainSteps):
    """Iterations recorded once and replayed; recorded anew when a number that the step depends on has changed.

    The recorder takes an action on arrays and the device they are on, and gives the same action for replay: with the
    same memory, and with every number that came from Python as it was.
    """

    recorder: Recorder
    _recording: "_Recording | None" = None

    def __call__(self, state: Any) -> Any:
        key = tuple(getattr(state, name) for name in self.solver.traits.replay_key or ())
        if self._recording is None or self._recording.key != key:
            # The old recording goes first, with its memory.
            self._recording = None
            self._recording = _Recording(key, state, super().__call__, self.network, self.recorder)
        return self._recording.replay(state)

    def kept(self, state: Any) -> Any:
        return state if self._recording is None else self._recording.kept(state)


class _Recording:
    """One iteration on fixed memory: it reads a state's arrays there and leaves the next state's in their place."""

    def __init__(
        self, key: tuple[Any, ...], state: Any, step: Callable[[Any], Any], network: Network, recorder: Recorder
    ) -> None:
        self.key, self._network = key, network
        arrays = {name: value for name, value in state._asdict().items() if hasattr(value, "untyped_storage")}
        self._memory = {name: array.clone() for name, array in arrays.items()}
        self._written: frozenset[str] = frozenset()
        before, exchanges = network.traffic.copy(), network.exchanges.copy()
        self._replay = recorder(lambda: self._advance(step, state), next(iter(arrays.values())).device)
        network.traffic, network.exchanges = before, exchanges
        for name, array in arrays.items():
            self._memory[name].copy_(array)
        # What the memory of those arrays holds that the step hands on as they are.
        self._loaded = {name: array for name, array in arrays.items() if name not in self._written}

    def replay(self, state: Any) -> Any:
        """The next state; its changed arrays are the fixed memory itself."""
        for name, memory in self._memory.items():
            array = getattr(state, name)
            if array is not memory and array is not self._loaded.get(name):
                memory.copy_(array)
                if name in self._loaded:
                    self._loaded[name] = array
        self._replay()
        self._network.traffic += self._traffic
        self._network.exchanges.update(self._exchanges)
        return state._replace(**{name: self._memory[name] for name in self._written})

    def kept(self, state: Any) -> Any:
        lent = {name: getattr(state, name) for name in self._written}
        return state._replace(**{name: array.clone() for name, array in lent.items() if array is self._memory[name]})

    def _advance(self, step: Callable[[Any], Any], state: Any) -> None:
        """What is recorded: a step from the fixed memory to new arrays, and these copied back."""
        before, exchanges = self._network.traffic.copy(), self._network.exchanges.copy()
        after = step(state._replace(**self._memory))
        self._traffic, self._exchanges = self._network.traffic - before, self._network.exchanges - exchanges
        new = {name: getattr(after, name) for name in self._memory}
        new = {name: array for name, array in new.items() if array is not self._memory[name]}
        # An array of the old state that has changed places must be read before its memory is written.
        held = {array.untyped_storage().data_ptr() for array in self._memory.values()}
        moved = {name: array for name, array in new.items() if array.untyped_storage().data_ptr() in held}
        new.update({name: array.clone() for name, array in moved.items()})
        for name, array in new.items():
            self._memory[name].copy_(array)
        self._written = frozenset(new)


def cuda_graph(action: Action, device: Any) -> Action:
    """Capture the kernels of an action on a CUDA device; what comes back starts all of them at once."""
    torch = import_extra("torch", "torch", "a CUDA graph")
    with torch.cuda.device(device):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UPS):
                action()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        # Other threads may go on using the device meanwhile.
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            action()

    def replay() -> None:
        with torch.cuda.device(device):
            graph.replay()

    return replay
