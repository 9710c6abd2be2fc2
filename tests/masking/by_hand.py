"""The masks a second time, from docs/sites/masks.md alone: no line and no library in common with the package.

X25519 as in RFC 7748, HKDF as in RFC 5869, ChaCha20 as in RFC 8439, all in plain Python.
"""

import hashlib
import hmac
import struct

PRIME, A24 = 2**255 - 19, 121665
MASK32, MODULUS = 0xFFFFFFFF, 2**64


def x25519(scalar: bytes, point: bytes) -> bytes:
    k = int.from_bytes(scalar, "little")
    k = (k & ~7 & ~(1 << 255)) | 1 << 254
    u = int.from_bytes(point, "little") & ((1 << 255) - 1)
    x2, z2, x3, z3 = 1, 0, u, 1
    for bit in reversed(range(255)):
        if k >> bit & 1:
            x2, z2, x3, z3 = x3, z3, x2, z2
        plus, minus = (x2 + z2) % PRIME, (x2 - z2) % PRIME
        cross, other = (x3 - z3) * plus % PRIME, (x3 + z3) * minus % PRIME
        x3, z3 = (cross + other) ** 2 % PRIME, u * (cross - other) ** 2 % PRIME
        e = (plus**2 - minus**2) % PRIME
        x2, z2 = plus**2 * minus**2 % PRIME, e * (plus**2 + A24 * e) % PRIME
        if k >> bit & 1:
            x2, z2, x3, z3 = x3, z3, x2, z2
    return (x2 * pow(z2, PRIME - 2, PRIME) % PRIME).to_bytes(32, "little")


def public_key(secret: bytes) -> bytes:
    return x25519(secret, (9).to_bytes(32, "little"))


def hkdf(secret: bytes, salt: bytes, info: bytes) -> bytes:
    extracted = hmac.new(salt, secret, hashlib.sha256).digest()
    return hmac.new(extracted, info + b"\x01", hashlib.sha256).digest()


def fields(*parts: bytes) -> bytes:
    return b"".join(struct.pack("<I", len(part)) + part for part in parts)


def context(run: str, epoch: int, manifest: bytes, names: list[str]) -> bytes:
    return fields(run.encode(), struct.pack("<Q", epoch), manifest, *(name.encode() for name in names))


def pair_key(secret: bytes, other: bytes, encoded: bytes, first: tuple[str, bytes], second: tuple[str, bytes]) -> bytes:
    info = encoded + fields(first[0].encode(), first[1], second[0].encode(), second[1])
    return hkdf(x25519(secret, other), b"eigenmesh masks 1", info)


def quarter(state: list[int], a: int, b: int, c: int, d: int) -> None:
    for x, y, z, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        state[x] = (state[x] + state[y]) & MASK32
        mixed = state[z] ^ state[x]
        state[z] = (mixed << turn | mixed >> (32 - turn)) & MASK32


def block(key: bytes, counter: int, nonce: bytes) -> bytes:
    start = [*struct.unpack("<4I", b"expand 32-byte k"), *struct.unpack("<8I", key), counter]
    start += struct.unpack("<3I", nonce)
    state = list(start)
    for _ in range(10):
        for column in range(4):
            quarter(state, column, column + 4, column + 8, column + 12)
        for column in range(4):
            quarter(state, column, 4 + (column + 1) % 4, 8 + (column + 2) % 4, 12 + (column + 3) % 4)
    return struct.pack("<16I", *((one + two) & MASK32 for one, two in zip(start, state, strict=True)))


def transcript(encoded: bytes, publics: list[bytes], heard: list[bytes]) -> bytes:
    digest = hashlib.sha256(b"eigenmesh transcript 1\n" + encoded + b"".join(publics)).digest()
    for numbers in heard:
        digest = hashlib.sha256(digest + hashlib.sha256(numbers).digest()).digest()
    return digest


def stream_words(key: bytes, heard: bytes, number: int, count: int) -> list[int]:
    key = hmac.new(key, heard, hashlib.sha256).digest()
    nonce = bytes(4) + struct.pack("<Q", number)
    data = b"".join(block(key, counter, nonce) for counter in range(-(-count // 8)))
    return list(struct.unpack(f"<{count}Q", data[: 8 * count]))


def words(rank: int, keys: dict[int, bytes], heard: bytes, number: int, count: int) -> list[int]:
    total = [0] * count
    for partner, key in keys.items():
        sign = 1 if rank < partner else -1
        stream = stream_words(key, heard, number, count)
        total = [(one + sign * word) % MODULUS for one, word in zip(total, stream, strict=True)]
    return total


def graph(encoded: bytes, sites: int) -> list[list[int]]:
    degree = 2 * (sites - 1).bit_length()
    if sites <= 50 or degree >= sites - 1:
        return [[other for other in range(sites) if other != rank] for rank in range(sites)]
    ends = [[rank, (rank + step) % sites] for rank in range(sites) for step in range(1, degree // 2 + 1)]
    present = {(min(edge), max(edge)) for edge in ends}
    seed = hashlib.sha256(b"eigenmesh mask graph\n" + encoded).digest()
    drawn = 0
    for _ in range(10 * len(ends)):
        places = []
        for _ in range(2):
            (word,) = struct.unpack("<Q", hashlib.sha256(seed + struct.pack("<Q", drawn)).digest()[:8])
            places.append(word % len(ends))
            drawn += 1
        (a, b), (c, d) = ends[places[0]], ends[places[1]]
        wanted = {(min(a, d), max(a, d)), (min(c, b), max(c, b))}
        if a != d and c != b and not wanted & present:
            ends[places[0]], ends[places[1]] = [a, d], [c, b]
            present = (present - {(min(a, b), max(a, b)), (min(c, d), max(c, d))}) | wanted
    return [
        sorted([two for one, two in ends if one == r] + [one for one, two in ends if two == r]) for r in range(sites)
    ]
