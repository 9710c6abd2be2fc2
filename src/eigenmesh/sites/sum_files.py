"""PCA by files, for sites where no port is open: what they sign and hand on, and what stays at a site.

People carry three kinds of files, each signed with the key that the network has pinned for its site.

- A *key*: the public X25519 key of a site, for one sum, and the sites that this sum is over.
- A *sum*: N, sums and cross products of all samples of a site (``eigenmesh.data.CrossProducts``), as words to which a
  mask is added. The masks of all sites cancel, modulo 2^128, in the sum over exactly those sites whose keys it was made
  with, its *roster*.
- A *withdrawal*: a site has not handed out a sum in this study, and never will.

Two sums of a site with the same masks would give the difference away. So would two rosters that both become complete,
of which one lacks a site. So a site

1. writes its plain numbers once for a study, and makes every sum from this file, whatever becomes of its data;
2. masks them once with a key: the secret is deleted before the sum is handed out, and the same file is written again
   when it is asked for again;
3. makes another key only if a site of the roster of its last sum has withdrawn, so that this roster never becomes
   complete;
4. withdraws for good, and only if none of its sums has left.

If a site lies about 4, two totals differ by its own numbers, and by nobody else's: those that have withdrawn honestly
are in none of them, and all others are the same in both.

Everything is on the disk before the next step, so that a site which was killed continues where it was.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from eigenmesh.atomic_write import NewFile, lock, save_text, sync_folder, write_atomically, write_new
from eigenmesh.data import CrossProducts, Shards
from eigenmesh.data.cross_products import USUAL_EXPONENT
from eigenmesh.errors import DataError, InputError, MissingEntriesError, RangeError, UnreadableFileError, file_errors
from eigenmesh.fitting.matching import common_settings, differences
from eigenmesh.masking import MIN_SITES, MaskContext, SiteKey, pairwise_masks, sum_of_pairs
from eigenmesh.sites.approval import require_approval
from eigenmesh.sites.authority import load_credentials, read_file
from eigenmesh.sites.network_file import Manifest, NetworkFile
from eigenmesh.sites.site import RunSettings, Site, fingerprint, read_samples, require_terms
from eigenmesh.transports.tls import CertificateKeyring
from eigenmesh.transports.tls.keyring import is_signed_by_pinned
from eigenmesh.words import canonical

KEY, SUM, WITHDRAWAL, PLAIN = (f"eigenmesh {what} 1" for what in ("key", "sum", "withdrawal", "plain sum"))
KEY_SUFFIX, SUM_SUFFIX, WITHDRAWAL_SUFFIX, PLAIN_SUFFIX = ".key", ".sum", ".withdrawn", ".plain"
# A header has the names of all columns, and the keys of all sites.
MAX_HEADER_BYTES = 64 << 20
Content = Mapping[str, Any]


def _is_key(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[0-9a-f]{64}", value) is not None


def _is_whole(value: Any) -> bool:
    return type(value) is int and value > 0


def _is_roster(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_key, value.values()))


def _is_list_of(kind: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(type(one) is kind for one in value)


def _or_none(accepts: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or accepts(value)


_OF_NUMBERS = {
    "n_features": _is_whole,
    "columns": _or_none(_is_list_of(str)),
    "exponents": _is_list_of(int),
    "words": _is_whole,
    "sha256": _is_key,
}
# What a header of each kind has, beside study, site and signature.
FIELDS: dict[str, dict[str, Callable[[Any], bool]]] = {
    KEY: {"key": _is_key, "sites": _is_list_of(str)},
    WITHDRAWAL: {},
    PLAIN: {**_OF_NUMBERS, "own_data": lambda value: isinstance(value, dict)},
    SUM: {**_OF_NUMBERS, "roster": _is_roster},
}


@dataclass(frozen=True)
class Study:
    """What all sites have agreed on, as a network.toml and every site.toml have it."""

    path: Path
    run: str
    sites: tuple[str, ...]
    fingerprints: Mapping[str, str]
    settings: RunSettings

    @classmethod
    def of(cls, agreed: Site | NetworkFile) -> Study:
        """The study of a file. InputError if it cannot be done by files."""
        sites = agreed.names if isinstance(agreed, NetworkFile) else agreed.sites
        study = cls(agreed.path, agreed.run, sites, agreed.fingerprints, agreed.settings)
        settings, found = agreed.settings, ""
        if not settings.masked:
            found = 'privacy = "open": sums in files are always masked; write privacy = "masked"'
        elif settings.partition != "samples":
            found = 'partition = "features": files have sums over samples of the same columns'
        elif settings.asked.missing == "mean" and settings.asked.scale != "binomial":
            found = 'missing = "mean": the mean is known only after the sum; fill in missing entries at each site'
        elif not study.fingerprints:
            fix = f"run eigenmesh site pin {study.path} with the certificates of all sites"
            found = f"no [fingerprints], by which files are known to come from their site; {fix}"
        if found:
            raise InputError(f"{study.path} has {found}.")
        return study

    @cached_property
    def digest(self) -> str:
        """SHA-256 of everything that was agreed on."""
        settings = self.settings
        agreed = {
            "run": self.run,
            "sites": list(self.sites),
            "fingerprints": dict(self.fingerprints),
            "exponents": dict(settings.exponents),
            "min_samples_per_site": settings.min_samples_per_site,
            **common_settings(settings.request()),
        }
        return _sha256(canonical(agreed).encode())

    def form(self, n_features: int, names: Sequence[str] | None) -> CrossProducts:
        """The format of the sums. That of all sites of the network, also if some withdraw."""
        known = dict.fromkeys(names or (), USUAL_EXPONENT)
        unknown = [name for name in self.settings.exponents if name not in known]
        if unknown:
            raise InputError(f"{self.path}: settings.exponents has {unknown[0]!r}, which is not a column of the data.")
        exponents = tuple({**known, **self.settings.exponents}.values()) if names else (USUAL_EXPONENT,) * n_features
        return CrossProducts(exponents, len(self.sites), weighted=True, carries=True)

    def signed(self, kind: str, site: str, keyring: CertificateKeyring, **facts: Any) -> dict[str, Any]:
        """A header with these facts, signed by a site."""
        content = {"kind": kind, "study": self.digest, "run": self.run, "site": site, **facts}
        content["public_key"] = keyring.public_key
        return {**content, "signature": keyring.sign(canonical(content).encode())}

    def opened(self, text: bytes, kind: str, path: Path) -> dict[str, Any]:
        """The content of a header. InputError names the file unless a site of this study has signed it."""
        try:
            content = json.loads(text)
            signature, site = content.pop("signature"), content["site"]
            signed = canonical(content).encode()
            found, study, public_key = content["kind"], content["study"], content["public_key"]
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise UnreadableFileError(f"{path} is not a file of kind {kind!r}, or is damaged; get it again.") from error
        if found != kind:
            raise InputError(f"{path} is of kind {str(found)!r:.60}, not {kind!r}; give the right file.")
        if study != self.digest:
            why = "another run, sites, fingerprints or settings"
            raise InputError(f"{path} is of another study than {self.path}: it has {why}. Agree on one network file.")
        if site not in self.sites:
            raise InputError(f"{path} is of {str(site)!r:.80}, which is not a site of {self.path}.")
        if not is_signed_by_pinned(self.fingerprints[site], str(public_key), signed, str(signature)):
            why = f"it was changed, or another than {site} has signed it"
            raise InputError(f"{path} is not signed by the pinned key of {site}: {why}. Get it again from {site}.")
        if not all(accepts(content.get(name)) for name, accepts in FIELDS[kind].items()):
            raise UnreadableFileError(
                f"{path} was written by {site} with fields that are not known here; compare versions."
            )
        return {**content, "signature": signature}


class SumFile(NamedTuple):
    """A sum as it is carried: the header, and the masked words (n,)."""

    path: Path
    header: Content
    words: np.ndarray

    @property
    def roster(self) -> dict[str, str]:
        """Public keys of the sites whose masks cancel, by name."""
        return dict(self.header["roster"])


def read_sum(path: Path, study: Study) -> SumFile:
    """Read and check one sum.

    Parameters
    ----------
    path : Path
        The file.
    study : Study
        What was agreed on.
    """
    return SumFile(path, *_read_numbers(path, SUM, study))


def added(paths: Sequence[Path], study: Study) -> tuple[list[SumFile], np.ndarray]:
    """These sums in the order of the sites, and their total. InputError unless they are one of each site of one roster.

    Parameters
    ----------
    paths : sequence of Path
        The files.
    study : Study
        What was agreed on.
    """
    sums: dict[str, SumFile] = {}
    for path in paths:
        one = read_sum(path, study)
        other = sums.setdefault(one.header["site"], one)
        if other is not one:
            raise InputError(f"{other.path} and {path} are both of {one.header['site']}; give one file of each site.")
    first = next(iter(sums.values()))
    for one in sums.values():
        _require_alike(first, one)
    _require_many(first.roster, str(first.path))
    if missing := [name for name in study.sites if name in first.roster and name not in sums]:
        fix = "get its file, or, if it withdraws, new keys and new sums of all others"
        raise InputError(f"the sum of {', '.join(missing)} is missing, and without it the others are noise; {fix}.")
    ordered = [sums[name] for name in study.sites if name in sums]
    return ordered, reduce(sum_of_pairs, (one.words for one in ordered))


def _read_numbers(path: Path, kind: str, study: Study) -> tuple[Content, np.ndarray]:
    """Header and words of a sum, masked or not."""
    first, body = _read_parts(path)
    header = study.opened(first, kind, path)
    if len(body) != 8 * header["words"] or _sha256(body) != header["sha256"]:
        raise UnreadableFileError(
            f"{path} is damaged: its numbers are not those that {header['site']} has signed; get it again."
        )
    columns, exponents = header["columns"], header["exponents"]
    # Of lists that were sent, before one of so many columns is made.
    fits = header["n_features"] == len(exponents) == len(exponents if columns is None else columns)
    form = study.form(len(exponents), columns) if fits else None
    if form is None or list(form.exponents) != exponents or form.n_words != header["words"]:
        raise InputError(f"{path} has other units than {study.path} asks for; {header['site']} has to write it again.")
    return header, np.frombuffer(body, "<u8")


def _require_alike(first: SumFile, other: SumFile) -> None:
    """Raise unless two sums have the same columns and were made with the same keys."""
    ours, theirs = (
        {"feature_names": one.header["columns"], "n_features": one.header["n_features"]} for one in (first, other)
    )
    if found := differences(ours, theirs, f"in {first.path}", f"in {other.path}"):
        raise InputError(f"the sums have different columns: {'; '.join(found)}.")
    if which := _other_keys(first.roster, other.roster):
        why = f"different keys of {which}: all sites need the same keys"
        raise InputError(f"{first.path} and {other.path} were made with {why}.")


def _other_keys(ours: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    """The sites that have another key in one roster than in the other."""
    return ", ".join(name for name in sorted({*ours, *theirs}) if ours.get(name) != theirs.get(name))


def _require_many(roster: Mapping[str, str], where: str) -> None:
    if len(roster) < MIN_SITES:
        why = "with two sites each finds the other's numbers by subtraction"
        raise InputError(f"{where} is for {' and '.join(roster)} only, but masks need {MIN_SITES} sites: {why}.")


# What a site keeps in its out folder, and hands out.


class SumFolder:
    """Key, plain numbers, masked sum and withdrawal of one site in one study.

    Parameters
    ----------
    site : Site
        The site, with its key and its data.
    """

    def __init__(self, site: Site) -> None:
        self.site, self.study = site, Study.of(site)
        # A study with the same name that has agreed on something else is another one.
        self.path = site.out.folder / f"files-{site.run}-{self.study.digest[:8]}"
        credentials = load_credentials(site.tls, site.name, site.fingerprints)
        self._keyring = CertificateKeyring(credentials, fingerprints=site.fingerprints)

    @property
    def plain(self) -> Path:
        """The plain numbers, for the eyes of this site alone."""
        return self.path / f"{self.site.name}{PLAIN_SUFFIX}"

    def key(self, keys: Path) -> Path:
        """Write this site's public key to the folder of keys: the present one, or a new one if there may be one."""
        with self._locked():
            self._require_present()
            withdrawn = _withdrawn(keys, self.study)
            if self._own_sum.exists():
                self._require_released(withdrawn)
                self._forget()
                save_text(self._sent_before, "")
                # Last, as it says that there is something to release.
                for old in (self._places, self._own_sum):
                    old.unlink(missing_ok=True)
                sync_folder(self.path)
            secret = self._secret()
            if secret is None:
                secret = SiteKey.generate()
                write_new([NewFile(self._secret_path, secret.secret_bytes, private=True)])
            sites = [name for name in self.study.sites if name not in withdrawn]
            signed = self.study.signed(KEY, self.site.name, self._keyring, key=secret.public.hex(), sites=sites)
            return _hand_out(keys / f"{self.site.name}{KEY_SUFFIX}", _line(signed))

    def summarise(self, keys: Path, out: Path) -> SumFile:
        """Write this site's masked sum for the sites whose keys are in a folder, and delete the secret of its key.

        Again, with the same keys and data, it writes the same file.

        Parameters
        ----------
        keys : Path
            The folder with the keys of all sites, and withdrawals of those that take no part.
        out : Path
            Where to write the sum.
        """
        self._require_present()
        if out.suffix != SUM_SUFFIX:
            # It might be a key, or the plain numbers, which cannot be made again.
            raise InputError(f"{out} must end with {SUM_SUFFIX}, so that no other file is overwritten.")
        roster = read_roster(keys, self.study)
        with self._locked():
            header, words = self._plain()
            if not self._own_sum.exists():
                self._mask(self._usable(keys, roster), roster, header, words)
            self._forget()
            made = read_sum(self._own_sum, self.study)
            if which := _other_keys(made.roster, roster):
                why = "a second sum with the same key would give numbers of a single site away by subtraction"
                raise InputError(
                    f"{self.site.name} has written its sum, and {keys} has other keys now (of {which}): {why}. If one "
                    f"of its sites withdraws, this site makes a new key: eigenmesh site key."
                )
            if not self._is_here():
                # What is written now is a copy of it, and does not bring it back.
                save_text(self._sent_before, "")
            save_text(self._places, "".join(f"{path}\n" for path in {*self._written(), out.resolve()}))
            return made._replace(path=_hand_out(out, self._own_sum.read_bytes()))

    def _usable(self, keys: Path, roster: Mapping[str, str]) -> SiteKey:
        """The secret of the key of this site in a roster."""
        secret = self._secret()
        if secret is None:
            fix = f"make one with eigenmesh site key {self.site.path}, and give it to all sites"
            raise InputError(f"{self.site.name} has no key; {fix}.")
        if roster.get(self.site.name) != secret.public.hex():
            raise InputError(
                f"{keys} has another key of {self.site.name} than this site; run eigenmesh site key again."
            )
        return secret

    def withdraw(self, keys: Path) -> Path:
        """Delete the secret of this site's key, and sign that it has not sent a sum in this study, and will not.

        If its sum was written, it must still be where it was, and is deleted.

        Parameters
        ----------
        keys : Path
            The folder of keys: the withdrawal is written there, and this site's key removed.
        """
        with self._locked():
            if not self._own_withdrawal.exists():
                self._require_unsent()
                signed = self.study.signed(WITHDRAWAL, self.site.name, self._keyring)
                write_atomically(self._own_withdrawal, lambda file: file.write(_line(signed)))
            # Before it is handed out: it must be true then, whenever this site is killed.
            self._forget()
            for path in (*self._written(), self._own_sum):
                path.unlink(missing_ok=True)
            (keys / f"{self.site.name}{KEY_SUFFIX}").unlink(missing_ok=True)
            return _hand_out(keys / f"{self.site.name}{WITHDRAWAL_SUFFIX}", self._own_withdrawal.read_bytes())

    def read_plain(self) -> tuple[Content, np.ndarray]:
        """Header and words of the plain numbers, as they are on the disk."""
        return _read_numbers(self.plain, PLAIN, self.study)

    @property
    def _own_sum(self) -> Path:
        return self.path / f"{self.site.name}{SUM_SUFFIX}"

    @property
    def _own_withdrawal(self) -> Path:
        return self.path / f"{self.site.name}{WITHDRAWAL_SUFFIX}"

    @property
    def _secret_path(self) -> Path:
        return self.path / "secret"

    @property
    def _places(self) -> Path:
        """A list of the paths to which the sum was written for others."""
        return self.path / "written"

    @property
    def _sent_before(self) -> Path:
        """Exists if a sum with an earlier key was handed out."""
        return self.path / "sent-before"

    def _written(self) -> list[Path]:
        return [Path(line) for line in self._places.read_text("utf-8").splitlines()] if self._places.exists() else []

    def _is_here(self) -> bool:
        """Whether the sum is still everywhere where it was written."""
        places = self._written()
        return all(path.exists() and path.read_bytes() == self._own_sum.read_bytes() for path in places)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """This process alone uses the folder, which is made."""
        fix = "choose another out.folder"
        if self.path.exists():
            # With another one, this site could make a second key, or withdraw a sum that has left.
            fix = "mend that, and keep this folder, which knows what this site has handed out"
        with file_errors(f"cannot use {self.path}", fix):
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
            try:
                lock(handle, self.path)
                yield
            finally:
                os.close(handle)

    def _secret(self) -> SiteKey | None:
        """The secret of this site's key, until its sum is written."""
        return SiteKey(read_file(self._secret_path)) if self._secret_path.exists() else None

    def _forget(self) -> None:
        """Overwrite and delete the secret."""
        if self._secret_path.exists():
            with self._secret_path.open("r+b") as file:
                file.write(bytes(self._secret_path.stat().st_size))
                file.flush()
                os.fsync(file.fileno())
            self._secret_path.unlink()
            sync_folder(self.path)

    def _require_present(self) -> None:
        """Raise if this site has withdrawn."""
        if self._own_withdrawal.exists():
            fix = "it can take part in another study: agree on a network file with another run"
            raise InputError(f"{self.site.name} has withdrawn from {self.site.run!r}, for good; {fix}.")

    def _require_released(self, withdrawn: Sequence[str]) -> None:
        """Raise unless the roster of the last sum can never be complete, since a site of it has withdrawn."""
        if not set(withdrawn) & set(read_sum(self._own_sum, self.study).roster):
            why = "with a second one, its own numbers could follow from two sums by subtraction"
            raise InputError(
                f"{self.site.name} has written its sum with its key, and gets no other: {why}. Combine the sums; or "
                f"if a site does not send its own, put its withdrawal into the folder of keys: eigenmesh site withdraw."
            )

    def _require_unsent(self) -> None:
        """Raise unless every sum that was written is still where it was."""
        why = f"whoever has it, and a result without {self.site.name}, may have numbers of {self.site.name} alone"
        if self._sent_before.exists():
            raise InputError(f"{self.site.name} has handed out a sum before, so it cannot withdraw any more: {why}.")
        if not self._is_here():
            places = ", ".join(map(str, self._written()))
            raise InputError(
                f"the sum of {self.site.name} was written to {places}, and is not there any more: {why}. Bring it back "
                f"there if nobody has a copy, and it is deleted; otherwise this site cannot withdraw."
            )

    def _plain(self) -> tuple[Content, np.ndarray]:
        """The plain numbers of this site: from the disk, after they were written there, once for the study."""
        own = json.loads(fingerprint(self.site.data))
        if not self.plain.exists():
            table = read_samples(self.site.data)
            shards, names = Shards.from_list([table.source], node_names=[self.site.name]), table.feature_names
            shards = shards.weighted([table.weights])
            require_terms(self.site, shards.blocks[0].n_rows)
            if shards.blocks[0].n_rows < 2:
                raise DataError(f"{self.site.name} has one sample, which its plain sum would show; add some.")
            require_approval(self.site, Manifest.of(self.site, shards.n_features, names))
            form = self.study.form(shards.n_features, names)
            try:
                words = form.encode(shards, 0).astype("<u8")
            except RangeError as error:
                raise RangeError(f"{error} Ranges are in [settings.exponents] of the network file.") from error
            except MissingEntriesError as error:
                where = str(error).rpartition(";")[0]
                raise DataError(f"{where}; fill it in: means of all sites are known only after the sum.") from error
            facts: dict[str, Any] = {"n_features": shards.n_features, "columns": None if names is None else list(names)}
            facts |= {"exponents": list(form.exponents), "words": words.size, "sha256": _sha256(words.tobytes())}
            made = self.study.signed(PLAIN, self.site.name, self._keyring, **facts, own_data=own)
            write_atomically(self.plain, lambda file: file.write(_line(made) + words.tobytes()))
        header, words = self.read_plain()
        if header["own_data"] != own:
            why = "two sums of different data would give the difference away"
            raise InputError(
                f"the data of {self.site.name} have changed since {self.plain} was written, and a study has one sum of "
                f"each site: {why}. Restore the data, or agree on a network file with another run."
            )
        return header, words

    def _mask(self, secret: SiteKey, roster: Mapping[str, str], header: Content, words: np.ndarray) -> None:
        """Write the masked sum to this site's folder."""
        facts = {name: header[name] for name in ("n_features", "columns", "exponents", "words")}
        context = MaskContext(self.site.run, 0, _mask_digest(self.study, facts), tuple(roster))
        publics = [bytes.fromhex(public) for public in roster.values()]
        masks = pairwise_masks(secret, publics, list(roster).index(self.site.name), context)
        body = masks.masked_pairs(0, words).astype("<u8").tobytes()
        facts |= {"roster": dict(roster), "sha256": _sha256(body)}
        signed = self.study.signed(SUM, self.site.name, self._keyring, **facts)
        write_atomically(self._own_sum, lambda file: file.write(_line(signed) + body))


def read_roster(keys: Path, study: Study) -> dict[str, str]:
    """Public keys of all sites that take part, by name, in the order of the network.

    InputError unless the folder has a key or a withdrawal of every site, and three keys that are for these sites.

    Parameters
    ----------
    keys : Path
        The folder.
    study : Study
        What was agreed on.
    """
    withdrawn = _withdrawn(keys, study)
    found: dict[str, Content] = {}
    for path in sorted(keys.glob(f"*{KEY_SUFFIX}")):
        content = study.opened(_read_parts(path)[0], KEY, path)
        if content["site"] in found:
            raise InputError(f"{keys} has two keys of {content['site']}; leave the newest one there.")
        if content["site"] not in withdrawn:
            found[content["site"]] = content
    if missing := [name for name in study.sites if name not in found and name not in withdrawn]:
        fix = "get its file NAME.key, or its withdrawal"
        raise InputError(f"{keys} has no key of {', '.join(missing)}; {fix}.")
    roster = {name: str(found[name]["key"]) for name in study.sites if name in found}
    _require_many(roster, str(keys))
    # A key that was made before a site withdrew may have been used already, with that site.
    if older := [name for name in roster if found[name]["sites"] != list(roster)]:
        what = f"that were not made for {', '.join(roster)}, before or after a site withdrew"
        raise InputError(f"{keys} has keys of {', '.join(older)} {what}; they run eigenmesh site key again.")
    return roster


def _withdrawn(keys: Path, study: Study) -> list[str]:
    """Sites that have withdrawn."""
    paths = sorted(keys.glob(f"*{WITHDRAWAL_SUFFIX}"))
    return [str(study.opened(_read_parts(path)[0], WITHDRAWAL, path)["site"]) for path in paths]


def _mask_digest(study: Study, facts: Content) -> bytes:
    """What masks are bound to, beside run and keys: sums of other columns do not cancel."""
    return hashlib.sha256(f"{study.digest}\n{canonical(dict(facts))}".encode()).digest()


def _line(header: Content) -> bytes:
    return canonical(dict(header)).encode() + b"\n"


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _read_parts(path: Path) -> tuple[bytes, bytes]:
    """The first line of a file, and the rest."""
    with file_errors(f"{path} cannot be read", "check the path"), path.open("rb") as file:
        return file.readline(MAX_HEADER_BYTES), file.read()


def _hand_out(path: Path, content: bytes) -> Path:
    """Write a file that others may read, and return its path."""
    with file_errors(f"cannot write {path}", "choose another folder"):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, lambda file: file.write(content))
    return path
