"""Fuzz the decoder of frames: ``python benchmarks/fuzz_wire.py --inputs 1000000``, the nightly target.

Half of the inputs are valid frames with a few bytes changed, cut or added, the rest random bytes after a more or less
valid header. Each must either be decoded or refused with one kind of error; nothing else may be raised, and neither the
result nor the memory used may be larger than the input.
"""

from __future__ import annotations

import argparse
import random
import struct
import time
import tracemalloc
from collections import Counter

import numpy as np

from eigenmesh.errors import FrameError
from eigenmesh.protocol import wire
from eigenmesh.protocol.wire import Kind

LIMIT = 1 << 16


def models() -> list[bytes]:
    """Valid frames of several kinds."""
    bodies = [
        wire.array_body([np.ones((1, 12, 3)), np.arange(3.0)], LIMIT),
        wire.array_body([np.ones((1, 2), np.float32), np.arange(5), np.zeros((0, 4)), np.uint8([1])], LIMIT),
        wire.array_body([], LIMIT),
    ]
    frames = [wire.encode(Kind.DATA, bytes(16), 1, 5, 3, body, tag=2) for body in bodies]
    return [*frames, wire.encode(Kind.VIEW, bytes(16), 1, 5, 3, wire.text_body("näheres {} [] \n"))]


def spoiled(generator: random.Random, frames: list[bytes]) -> bytes:
    """One input."""
    model = generator.choice(frames)
    way = generator.randrange(8)
    if way < 4:
        data = bytearray(model)
        for _ in range(generator.randrange(1, 5)):
            data[generator.randrange(len(data))] = generator.choice((0, 1, 127, 128, 255, generator.randrange(256)))
        if way == 1:
            del data[generator.randrange(len(data)) :]
        if way == 2:
            data += generator.randbytes(generator.randrange(40))
        if way >= 2 and len(data) >= wire.HEAD_BYTES:
            # With a correct length too, to get past that check.
            data[48:56] = struct.pack("<Q", len(data) - wire.HEAD_BYTES)
        return bytes(data)
    junk = generator.randbytes(generator.randrange(300))
    if way == 4:
        return junk
    if way == 5:
        return model[: generator.randrange(wire.HEAD_BYTES)] + junk
    return model[:48] + struct.pack("<QQ", len(junk), 0) + junk


def fuzz(inputs: int, seed: int) -> Counter[str]:
    """Numbers of inputs that were decoded and refused; raises any error that the decoder should not raise."""
    generator, frames = random.Random(seed), models()
    outcome: Counter[str] = Counter()
    tracemalloc.start()
    for number in range(inputs):
        data = spoiled(generator, frames)
        try:
            frame = wire.decode(data, LIMIT)
        except FrameError:
            outcome["refused"] += 1
        else:
            outcome["read"] += 1
            size = sum(array.nbytes for array in frame.arrays) + len(frame.text.encode())
            if size > len(data):
                raise SystemExit(f"input {number} of seed {seed}: {size} bytes were made of {len(data)}.")
        if number % 1000 == 0 and tracemalloc.get_traced_memory()[1] > 1 << 22:
            raise SystemExit(f"by input {number} of seed {seed} {tracemalloc.get_traced_memory()[1]} bytes were taken.")
    tracemalloc.stop()
    return outcome


def main() -> None:
    """Print the outcome."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    began = time.perf_counter()
    outcome = fuzz(options.inputs, options.seed)
    print(f"{options.inputs} inputs in {time.perf_counter() - began:.0f} s: {dict(outcome)}; nothing else was raised.")


if __name__ == "__main__":
    main()
