"""Iterations of a solver one after the other; on a GPU replayed from a CUDA graph.

An iteration is a dozen small kernels around one large product, and starting them from Python takes several times as
long as they run. Where the arrays are CUDA tensors the kernels of several iterations are captured once and replayed.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from eigenmesh.arrays import Array, on_gpu
from eigenmesh.data import Covariance, CovarianceKind
from eigenmesh.errors import import_extra
from eigenmesh.networks import Network, Stacked
from eigenmesh.solvers._base import Solver

# Kernels are chosen, and workspaces taken, while an iteration runs for the first time; neither may be captured.
WARM_UPS = 2
# Iterations in one recording at most: what a replay costs beside them hardly counts then, and recording is still quick.
# Checks are often a multiple of ten iterations apart, so that no iterations are left over.
LONGEST_RECORDING = 20

Action = Callable[[], None]
Recorder = Callable[[Callable[[int], None], int, Any], Action]


def steps_of(solver: Solver, covariance: Covariance, network: Network, like: Array) -> "PlainSteps":
    """Iterations on arrays like the one given: replayed where that is possible, else made one by one.

    It is possible on CUDA tensors where all nodes are in this process, the covariances are on the device and the
    solver names the numbers of its state that its step depends on (``traits.replay_key``).
    """
    resident = covariance.kind in (CovarianceKind.FORMED, CovarianceKind.MATRIX_FREE)
    # Integers are made on the host; and a replay would add the same masks twice.
    resident = resident and not network.integers
    if on_gpu(like) and isinstance(network, Stacked) and resident and solver.traits.replay_key is not None:
        return ReplayedSteps(solver, covariance, network, cuda_graph)
    return PlainSteps(solver, covariance, network)


@dataclass
class PlainSteps:
    """The iterations of one run, each a call of the solver's step."""

    solver: Solver
    covariance: Covariance
    network: Network
    # Whether all iterations take the same rounds, so that several may be asked for at once.
    alike: ClassVar[bool] = False

    def __call__(self, state: Any, n: int = 1) -> Any:
        """So many iterations. The state that comes back is lent: the next call may write over its arrays."""
        for _ in range(n):
            state = self.solver.step(self.covariance, self.network, state)
        return state

    def kept(self, state: Any) -> Any:
        """The same state with arrays that no later call writes over."""
        return state


@dataclass
class ReplayedSteps(PlainSteps):
    """Iterations recorded once and replayed; recorded anew when a number that the step depends on has changed.

    Many iterations are cut into as few equal parts as possible. A part is recorded when one of its length is asked for
    again; the first one is made plainly, since it may be the only one.

    The recorder takes an action on arrays that makes so many iterations, how many these are, and the device. It gives
    the same action for replay: with the same memory, and with every number that came from Python as it was.
    """

    recorder: Recorder
    alike: ClassVar[bool] = True
    _key: tuple[Any, ...] = ()
    _recordings: "dict[int, _Recording | None]" = field(default_factory=dict)

    def __call__(self, state: Any, n: int = 1) -> Any:
        key = tuple(getattr(state, name) for name in self.solver.traits.replay_key or ())
        if key != self._key:
            # The old recordings go first, with their memory.
            self._key, self._recordings = key, {}
        parts = -(-n // LONGEST_RECORDING)
        for length in [n // parts] * parts + [1] * (n % parts):
            state = self._part(state, length)
        return state

    def _part(self, state: Any, length: int) -> Any:
        if length not in self._recordings:
            self._recordings[length] = None
            # Plain steps may hand arrays on, which must not be lent ones then.
            return super().__call__(self.kept(state), length)
        recording = self._recordings[length]
        if recording is None:
            recording = _Recording(state, length, super().__call__, self.network, self.recorder)
            self._recordings[length] = recording
        return recording.replay(state)

    def kept(self, state: Any) -> Any:
        recordings = [recording for recording in self._recordings.values() if recording is not None]
        lent = {id(array) for recording in recordings for array in recording.memory.values()}
        return state._replace(**{name: array.clone() for name, array in state._asdict().items() if id(array) in lent})


class _Recording:
    """Some iterations on fixed memory: they read a state's arrays there and leave the last state's in their place."""

    def __init__(
        self, state: Any, length: int, steps: Callable[[Any, int], Any], network: Network, recorder: Recorder
    ) -> None:
        self._network = network
        arrays = {name: value for name, value in state._asdict().items() if hasattr(value, "untyped_storage")}
        self.memory = {name: array.clone() for name, array in arrays.items()}
        self._written: frozenset[str] = frozenset()
        before, exchanges = network.traffic.copy(), network.exchanges.copy()
        device = next(iter(arrays.values())).device
        self._replay = recorder(lambda n: self._advance(steps, state, n), length, device)
        network.traffic, network.exchanges = before, exchanges
        for name, array in arrays.items():
            self.memory[name].copy_(array)
        # What the memory of those arrays holds that the step hands on as they are.
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
        self._network.traffic += self._traffic
        self._network.exchanges.update(self._exchanges)
        return state._replace(**{name: self.memory[name] for name in self._written})

    def _advance(self, steps: Callable[[Any, int], Any], state: Any, n: int) -> None:
        """What is recorded: n steps from the fixed memory to new arrays, and the last ones copied back."""
        before, exchanges = self._network.traffic.copy(), self._network.exchanges.copy()
        after = steps(state._replace(**self.memory), n)
        self._traffic, self._exchanges = self._network.traffic - before, self._network.exchanges - exchanges
        new = {name: getattr(after, name) for name in self.memory}
        new = {name: array for name, array in new.items() if array is not self.memory[name]}
        # An array of the old state that has changed places must be read before its memory is written.
        held = {array.untyped_storage().data_ptr() for array in self.memory.values()}
        moved = {name: array for name, array in new.items() if array.untyped_storage().data_ptr() in held}
        new.update({name: array.clone() for name, array in moved.items()})
        for name, array in new.items():
            self.memory[name].copy_(array)
        self._written = frozenset(new)


def cuda_graph(action: Callable[[int], None], times: int, device: Any) -> Action:
    """Capture the kernels of ``action(times)`` on a CUDA device; what comes back starts all of them at once."""
    torch = import_extra("torch", "torch", "a CUDA graph")
    with torch.cuda.device(device):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UPS):
                action(1)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        # Other threads may go on using the device meanwhile.
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            action(times)

    def replay() -> None:
        with torch.cuda.device(device):
            graph.replay()

    return replay
