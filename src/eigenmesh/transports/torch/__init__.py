"""torch.distributed: gloo on CPUs, NCCL on GPUs."""

from eigenmesh.transports.torch._transport import TorchTransport

__all__ = ["TorchTransport"]


def __dir__() -> list[str]:
    return __all__
