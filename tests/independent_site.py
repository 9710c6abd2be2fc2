"""A second implementation of a site, from the pages on the wire and on masks alone: nothing of eigenmesh is imported.

It is a site with one neighbour, which it calls, in a masked run with ``solver = "one-sum"`` that loses no site. It has
no journal: if it ends early, it cannot resume. ``python tests/independent_site.py site.toml`` reads the ``site.toml``
that ``eigenmesh site init`` has made, takes part in the run, and prints the result as JSON. Numbers are exact, as they
are summed as fractions, and the components that come from the root are checked against the covariance.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import socket
import ssl
import struct
import sys
import time
import tomllib
from collections import deque
from fractions import Fraction
from pathlib import Path

import numpy as np
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

HELLO, WELCOME, REFUSE, DATA, ACK, HEARTBEAT, ABORT, PARK, DONE, STATEMENT, MANIFEST = range(1, 12)
HEAD = struct.Struct("<4sBBHII16sQQQ8s")
WORD = 2**64
# The range of a column is 2^20, counts are in units of 2^-60, and all sites have at most 2^31 samples.
RANGE, COUNT_BITS, MOST_SAMPLES = 20, 60, 31
LIMIT_S = 300.0


# Masks: docs/sites/masks.md.


def joined(*fields: bytes) -> bytes:
    return b"".join(struct.pack("<I", len(field)) + field for field in fields)


def mask_context(run: str, epoch: int, manifest: bytes, names: list[str]) -> bytes:
    return joined(run.encode(), struct.pack("<Q", epoch), manifest, *(name.encode() for name in names))


def public_key(secret: bytes) -> bytes:
    raw = serialization.Encoding.Raw, serialization.PublicFormat.Raw
    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes(*raw)


def shared_key(secret: bytes, own: str, other: str, publics: dict[str, bytes], context: bytes) -> bytes:
    first, second = sorted((own, other), key=list(publics).index)
    agreed = X25519PrivateKey.from_private_bytes(secret).exchange(X25519PublicKey.from_public_bytes(publics[other]))
    info = context + joined(first.encode(), publics[first], second.encode(), publics[second])
    return HKDF(hashes.SHA256(), 32, b"eigenmesh masks 1", info).derive(agreed)


def first_heard(context: bytes, publics: dict[str, bytes]) -> bytes:
    return hashlib.sha256(b"eigenmesh transcript 1\n" + context + b"".join(publics.values())).digest()


def heard_next(heard: bytes, numbers: bytes) -> bytes:
    return hashlib.sha256(heard + hashlib.sha256(numbers).digest()).digest()


def mask(
    secret: bytes, own: str, publics: dict[str, bytes], context: bytes, heard: bytes, number: int, n: int
) -> list[int]:
    """The words that a site adds to its own in an average."""
    total, order = [0] * n, list(publics)
    for other in order:
        if other == own:
            continue
        key = hmac.digest(shared_key(secret, own, other, publics, context), heard, "sha256")
        counter = bytes(4)
        nonce = counter + bytes(4) + struct.pack("<Q", number)
        stream = Cipher(algorithms.ChaCha20(key, nonce), None).encryptor().update(bytes(8 * n))
        sign = 1 if order.index(own) < order.index(other) else -1
        total = [(one + sign * word) % WORD for one, word in zip(total, struct.unpack(f"<{n}Q", stream), strict=True)]
    return total


# One sum: docs/sites/protocol.md.


def bits_of(n_sites: int) -> tuple[int, int]:
    """Bits of the lower word of a number, and of the fraction of sums."""
    low = 64 - max(1, (n_sites - 1).bit_length())
    return low, (63 + low - MOST_SAMPLES) // 2 * 2


def words_of(X: np.ndarray, n_sites: int) -> list[int]:
    """What a site adds to the sum: a flag, then the lower and the upper words of N, sums and products."""
    low, fraction = bits_of(n_sites)
    rows = [[Fraction(value) / 2**RANGE for value in row] for row in X.tolist()]
    if any(abs(value) > 1 for row in rows for value in row):
        raise SystemExit("a value is beyond the range; this site does not agree on another one")
    d = X.shape[1]
    numbers = [len(rows) << COUNT_BITS]
    numbers += [round(sum(row[j] for row in rows) * 2**fraction) for j in range(d)]
    numbers += [round(sum(row[i] * row[j] for row in rows) * 2**fraction) for i in range(d) for j in range(i, d)]
    return [0, *(one % 2**low for one in numbers), *((one >> low) % WORD for one in numbers)]


def covariance_of(total: list[int], d: int, n_sites: int) -> tuple[int, np.ndarray]:
    """N and the pooled covariance, from the sum over all sites."""
    low, fraction = bits_of(n_sites)
    flag, words = total[0], total[1:]
    if flag:
        raise SystemExit("a site has values beyond the range; this site does not agree on another one")
    size, half = 1 << (64 + low), len(words) // 2
    numbers = [(upper << low) + lower for lower, upper in zip(words[:half], words[half:], strict=True)]
    numbers = [(one + size // 2) % size - size // 2 for one in numbers]
    n, s, P = Fraction(numbers[0], 1 << COUNT_BITS), numbers[1 : 1 + d], deque(numbers[1 + d :])
    C = np.zeros((d, d))
    for i in range(d):
        for j in range(i, d):
            scatter = Fraction(P.popleft(), 2**fraction) - Fraction(s[i] * s[j], 4**fraction) / n
            C[i, j] = C[j, i] = float(scatter / (n - 1) * 4**RANGE)
    return int(n), C


def tree(sites: list[str], edges: list[tuple[str, str]]) -> tuple[str, dict[str, int], dict[str, str]]:
    """The root, how far each site is from it, and the parent of each."""

    def search(root: str) -> tuple[dict[str, int], dict[str, str]]:
        depth, parent, queue = {root: 0}, {}, deque([root])
        while queue:
            one = queue.popleft()
            for other in sites:
                if other not in depth and ((one, other) in edges or (other, one) in edges):
                    depth[other], parent[other] = depth[one] + 1, one
                    queue.append(other)
        return depth, parent

    root = min(sites, key=lambda name: max(search(name)[0].values()))
    return root, *search(root)


# Frames, statements and the link.


def canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def frame(kind: int, run_id: bytes, body: bytes = b"", round_: int = 0, acknowledged: int = 0, tag: int = 0) -> bytes:
    check = hashlib.sha256(body).digest()[:8]
    head = HEAD.pack(b"EGNM", 4, kind, int(kind == DATA), tag, 0, run_id, round_, acknowledged, len(body), check)
    return struct.pack("<Q", len(head + body)) + head + body


def array_body(words: list[int]) -> bytes:
    """One array of shape (1, n) of uint64."""
    descriptor = struct.pack("<BBQQ", 7, 2, 1, len(words))
    numbers = struct.pack(f"<{len(words)}Q", *words)
    return b"".join(part + bytes(-len(part) % 16) for part in (descriptor, numbers))


def array_of(body: bytes) -> tuple[tuple[int, ...], bytes]:
    """Shape and numbers of a body that has one array of uint64."""
    dtype, axes = body[:2]
    assert dtype == 7
    shape = struct.unpack_from(f"<{axes}Q", body, 2)
    start = -(-(2 + 8 * axes) // 16) * 16
    return shape, body[start : start + 8 * int(np.prod(shape))]


class Site:
    def __init__(self, path: Path) -> None:
        self.toml = tomllib.loads(path.read_text())
        self.name, self.sites = self.toml["name"], self.toml["sites"]
        ((self.neighbour, address),) = self.toml["neighbours"].items()
        host, port = address.rsplit(":", 1)
        self.address = host, int(port)
        tls = {key: path.parent / value for key, value in self.toml["tls"].items()}
        self.certificate = tls["certificate"].read_text()
        self.key = serialization.load_pem_private_key(tls["key"].read_bytes(), None)
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.tls.minimum_version = ssl.TLSVersion.TLSv1_3
        self.tls.load_verify_locations(tls["ca"])
        self.tls.load_cert_chain(tls["certificate"], tls["key"])
        self.X = np.load(path.parent / self.toml["data"]["file"])
        self.secret = secrets.token_bytes(32)
        self.statements: dict[tuple[str, ...], list] = {}
        self.data: dict[int, bytes] = {}
        self.round = 0
        self.they_are_done = self.they_have_our_farewell = False

    # The connection.

    def connect(self) -> None:
        """Call the neighbour until it answers."""
        end = time.monotonic() + LIMIT_S
        while True:
            try:
                plain = socket.create_connection(self.address, 10)
                self.socket = self.tls.wrap_socket(plain, server_hostname=self.neighbour)
                self.got, self.beat = b"", time.monotonic()
                if self.message() == b"eigenmesh":
                    return
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.2)

    def message(self) -> bytes:
        """The next message; heartbeats are sent meanwhile."""
        end = time.monotonic() + LIMIT_S
        self.socket.settimeout(0.5)
        while len(self.got) < 8 or len(self.got) < 8 + struct.unpack_from("<Q", self.got)[0]:
            try:
                data = self.socket.recv(1 << 16)
                if not data:
                    raise ConnectionResetError("the neighbour has ended the connection")
                self.got += data
            except TimeoutError:
                if time.monotonic() > end:
                    raise
            if hasattr(self, "run_id") and time.monotonic() > self.beat + 1:
                self.beat = time.monotonic()
                self.send(HEARTBEAT)
        (length,) = struct.unpack_from("<Q", self.got)
        whole, self.got = self.got[8 : 8 + length], self.got[8 + length :]
        return whole

    def send(self, kind: int, body: bytes = b"", tag: int = 0, round_: int | None = None) -> None:
        self.socket.settimeout(60)
        round_ = self.round if round_ is None else round_
        self.socket.sendall(frame(kind, self.run_id, body, round_, self.round, tag))

    def hear(self) -> tuple[int, bytes]:
        """Take the next frame: keep numbers and statements, and end with the run."""
        whole = self.message()
        head = HEAD.unpack_from(whole)
        magic, version, kind, _, tag, _, run_id, round_, _, length, check = head
        body = whole[HEAD.size :]
        assert (magic, version, length, check) == (b"EGNM", 4, len(body), hashlib.sha256(body).digest()[:8])
        if kind in (ABORT, PARK, REFUSE):
            raise SystemExit(f"{self.neighbour}: {body.decode()}")
        if kind not in (MANIFEST, STATEMENT):
            assert run_id == self.run_id
        if kind == DATA:
            self.data[round_] = body
        elif kind == STATEMENT:
            self.keep(body.decode())
        elif kind == DONE:
            self.they_are_done = True
            self.send(ACK, tag=1)
        elif kind == ACK and tag == 1:
            self.they_have_our_farewell = True
        return kind, body

    # Statements.

    def state(self, kind: str, content: list) -> str:
        """A signed statement of this site, which is kept, too."""
        signed = f"eigenmesh statement\n{self.r.hex()}\n{kind}\n{self.name}\n{canonical(content)}".encode()
        signature = (
            self.key.sign(signed, PKCS1v15(), hashes.SHA256())
            if isinstance(self.key, rsa.RSAPrivateKey)
            else self.key.sign(signed, ec.ECDSA(hashes.SHA256()))
        )
        parts = {"kind": kind, "site": self.name, "content": content, "certificate": self.certificate}
        text = canonical({**parts, "signature": base64.b64encode(signature).decode()})
        self.keep(text)
        return text

    def keep(self, text: str) -> None:
        """Check the statement of a site, and keep it. There is one for each site and subject."""
        parts = json.loads(text)
        kind, site, content = parts["kind"], parts["site"], parts["content"]
        certificate = x509.load_pem_x509_certificate(parts["certificate"].encode())
        public = certificate.public_key()
        der = public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
        assert hashlib.sha256(der).hexdigest() == self.toml["fingerprints"][site], f"{site} has another key"
        signed = f"eigenmesh statement\n{self.r.hex()}\n{kind}\n{site}\n{canonical(content)}".encode()
        signature = base64.b64decode(parts["signature"])
        if isinstance(public, rsa.RSAPublicKey):
            public.verify(signature, signed, PKCS1v15(), hashes.SHA256())
        else:
            public.verify(signature, signed, ec.ECDSA(hashes.SHA256()))
        self.statements[kind, site, content[1] if kind == "heard" else ""] = content

    def of_all(self, kind: str, stage: str = "") -> dict[str, list]:
        """The statements of all sites, in the order of the network, once they are here."""
        while not all((kind, site, stage) in self.statements for site in self.sites):
            self.hear()
        return {site: self.statements[kind, site, stage] for site in self.sites}

    # The run.

    def agree(self) -> None:
        """Ask for the manifest of the neighbour, and check that it is the run that this site wants."""
        self.connect()
        self.run_id = self.r = bytes(16)
        self.send(MANIFEST)
        kind, body = self.hear()
        assert kind == MANIFEST
        self.socket.close()
        self.manifest, settings = json.loads(body), self.toml["settings"]
        wanted = {
            "protocol": 3,
            "run": self.toml["run"],
            "sites": self.sites,
            "fingerprints": self.toml["fingerprints"],
        }
        wanted |= {"edges": [" - ".join(edge) for edge in self.toml["edges"]], "n_features": self.X.shape[1]}
        wanted |= {name: settings[name] for name in ("n_components", "tol", "scale", "on_loss", "privacy")}
        for name, value in wanted.items():
            assert self.manifest[name] == value, f"{name}: {value} here, {self.manifest[name]} there"
        assert self.manifest["solver"]["name"] == "one-sum"
        assert self.manifest["masks"] == "all pairs"
        self.digest = hashlib.sha256(body).hexdigest()
        self.r = hashlib.sha256(f"eigenmesh run\n{self.digest}".encode()).digest()[:16]
        self.run_id = hashlib.sha256(self.r).digest()[:16]

    def greet(self) -> None:
        about = [
            f"{int(time.time()):016x}" + secrets.token_hex(8),
            1,
            secrets.token_hex(8),
            public_key(self.secret).hex(),
        ]
        instance = self.state("instance", about)
        self.connect()
        self.send(HELLO, f"{self.name}\n{self.digest}\n{instance}".encode())
        kind, body = self.hear()
        assert kind == WELCOME
        name, digest, theirs = body.decode().split("\n", 2)
        assert (name, digest) == (self.neighbour, self.digest)
        self.keep(theirs)

    def numbers_of(self, round_: int) -> tuple[tuple[int, ...], bytes]:
        """The array of a round, which is acknowledged."""
        while round_ not in self.data:
            self.hear()
        found = array_of(self.data.pop(round_))
        self.round = round_ + 1
        self.send(ACK)
        return found

    def run(self) -> dict:
        self.agree()
        self.greet()
        M, d = len(self.sites), self.X.shape[1]
        publics = {site: bytes.fromhex(content[3]) for site, content in self.of_all("instance").items()}
        context = mask_context(self.run_id.hex(), 0, bytes.fromhex(self.digest), self.sites)
        heard = [first_heard(context, publics)]
        edges = [(a, b) for a, b in self.toml["edges"]]
        _, depth, parent = tree(self.sites, edges)
        assert parent[self.name] == self.neighbour, "this site is no root"
        height, own = max(depth.values()), depth[self.name]
        # The sum goes up, the farthest sites first, and its total down.
        masks = mask(self.secret, self.name, publics, context, heard[0], 0, len(words_of(self.X[:0], M)))
        masked = [(one + word) % WORD for one, word in zip(words_of(self.X, M), masks, strict=True)]
        self.send(DATA, array_body(masked), tag=height - own + 1, round_=height - own)
        shape, numbers = self.numbers_of(height + own - 1)
        assert shape == (1, len(masked))
        heard.append(heard_next(heard[-1], numbers))
        n_samples, C = covariance_of(list(struct.unpack(f"<{len(masked)}Q", numbers)), d, M)
        self.send(STATEMENT, self.state("heard", [0, "set-up", 1, heard[-1].hex(), 0]).encode())
        assert {content[3] for content in self.of_all("heard", "set-up").values()} == {heard[-1].hex()}
        # The root sends components, variances and bounds to all.
        shape, numbers = self.numbers_of(2 * height + own - 1)
        heard.append(heard_next(heard[-1], numbers))
        found = np.frombuffer(numbers, "<f8").reshape(shape[1:])
        components, variances, bounds = found[:d].T, found[d], found[d + 1]
        assert np.abs(C @ components.T - components.T * variances).max() < 1e-9 * variances[0], "not components of C"
        assert np.allclose(variances, np.linalg.eigvalsh(C)[::-1][: len(variances)], rtol=1e-9), "not the leading ones"
        signed = hashlib.sha256(
            b"".join(np.ascontiguousarray(part, "<f8").tobytes() for part in (components, variances, bounds))
        )
        self.round = 3 * height
        self.send(STATEMENT, self.state("result", [0, signed.hexdigest(), heard[-1].hex()]).encode())
        results = self.of_all("result")
        assert {tuple(content[1:]) for content in results.values()} == {(signed.hexdigest(), heard[-1].hex())}
        self.send(ACK)
        self.send(DONE)
        while not (self.they_are_done and self.they_have_our_farewell):
            self.hear()
        self.socket.close()
        return {"n_samples": n_samples, "components": components.tolist(), "result_sha256": signed.hexdigest()}


if __name__ == "__main__":
    print(json.dumps(Site(Path(sys.argv[1])).run()))
