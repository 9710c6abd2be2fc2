"""What time and memory cost at the nodes: what the planner decides by."""

from dataclasses import dataclass

from eigenmesh.errors import InputError


@dataclass(frozen=True)
class Costs:
    """Speed and size of the nodes and of the links between them; set what you know of your own network.

    Attributes
    ----------
    latency_s : float
        Seconds per round between neighbours, however small the message.
    bandwidth_bytes_s : float
        Bytes that a node can send per second.
    flops_s : float
        Floating-point operations that a node makes per second.
    memory_bytes : float
        Bytes that a node may use beside its data.
    """

    latency_s: float = 0.02
    bandwidth_bytes_s: float = 12.5e6
    flops_s: float = 2e10
    memory_bytes: float = 8e9

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not (value > 0 or (name == "latency_s" and value == 0)):
                raise InputError(f"{name} = {value!r} must be above 0.")
