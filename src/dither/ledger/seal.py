"""Seals: Ed25519 keys, signed checkpoints and receipts, and an anchor file kept somewhere else.

Whatever is signed is canonical JSON with a field ``statement`` that says what it is, so a signature of one kind never
passes for another. Hashes, keys and signatures are lower-case hex: each has one spelling. What this proves, and what it
cannot: docs/proofs/ledger.md.

>>> sealer = Sealer.ephemeral()
>>> check(sealer.public_key, b"text", sealer.sign(b"text")), check(sealer.public_key, b"texts", sealer.sign(b"text"))
(True, False)
"""

from __future__ import annotations

import errno
import fcntl
import math
import os
import re
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime  # noqa: F401 - UTC is for the examples
from pathlib import Path
from typing import Any, Final, NoReturn

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from dither.core import checks
from dither.core.encoding import canonical_json, parse_json
from dither.core.errors import DecodeError, InputError, LedgerError, TamperError, shown
from dither.core.events import event_digest
from dither.core.plans import Charge, Receipt, State
from dither.core.units import Guarantee, PrivacyUnit
from dither.ledger.blocks import moment, stamp
from dither.ledger.merkle import COUNT_MAX, is_hash, root

PASSWORD_VARIABLE: Final = "DITHER_KEY_PASSWORD"  # noqa: S105 - the name of the variable, not a password
"""The environment variable that holds the password of the signing key, if it has one."""
RECEIPT_FORMAT: Final = "dither-receipt-1"
_SIGNATURE = re.compile(r"[0-9a-f]{128}")
_KEY_FILE_MAX = 16_384


def is_time(value: object) -> bool:
    """Whether this is a time as entries write it.

    >>> is_time("2026-11-19T06:00:00.000000Z"), is_time("2026-11-19T06:00:00Z"), is_time("2026-13-19T06:00:00.000000Z")
    (True, False, False)
    """
    try:
        moment("at", value)
    except DecodeError:
        return False
    return True


time_text = stamp
"""A time as entries write it, in UTC to the microsecond."""


# ------------------------------------------------------------------------------------------------ keys


class Sealer:
    """A private signing key. It is never shown, copied or pickled; only its public half is."""

    __slots__ = ("_key", "public_key")

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public_key: str = key.public_key().public_bytes_raw().hex()

    @classmethod
    def open(cls, key_path: Path | str) -> Sealer:
        """The key of a file, made on first use; its public half is written beside it, ``.pub`` in place of ``.key``.

        The file is for its owner only (0600) and is refused when others may read it. With the environment variable
        DITHER_KEY_PASSWORD set, a new key is written encrypted and an old one must be.
        """
        path = Path(key_path)
        if "\0" in str(path):
            raise checks.refuse("key_path", str(path), "the path of a file")
        sealer = _read(path) if path.exists() else _make(path)
        _publish(sealer.public_key, public_path(path))
        return sealer

    @classmethod
    def ephemeral(cls) -> Sealer:
        """A key that is kept nowhere: for a private ledger in memory, and for examples."""
        return cls(Ed25519PrivateKey.generate())

    def sign(self, message: bytes) -> str:
        """The signature of a message, in hex."""
        return self._key.sign(message).hex()

    def state(self, statement: str, facts: Mapping[str, object]) -> str:
        """The signature of facts under the name of what they state."""
        return self.sign(stated(statement, facts))

    def __repr__(self) -> str:
        return f"Sealer(public_key={self.public_key!r})"

    def __reduce__(self) -> NoReturn:
        raise InputError("A signing key cannot be copied or pickled: open its file where it is needed.")


def public_path(key_path: Path) -> Path:
    """Where the public half of a key lies.

    >>> str(public_path(Path("dither.db.key"))), str(public_path(Path("secret")))
    ('dither.db.pub', 'secret.pub')
    """
    return key_path.with_suffix(".pub") if key_path.suffix == ".key" else key_path.with_name(f"{key_path.name}.pub")


def stated(statement: str, facts: Mapping[str, object]) -> bytes:
    """The bytes that are signed.

    >>> stated("anchor", {"n": 1})
    b'{"n":1,"statement":"dither anchor 1"}'
    """
    return canonical_json({**facts, "statement": f"dither {statement} 1"}).encode("ascii")


def check(public_key: str, message: bytes, signature: object) -> bool:
    """Whether the signature of this message was made with the private half of this key.

    >>> check("00" * 32, b"", "")
    False
    """
    if not isinstance(signature, str) or _SIGNATURE.fullmatch(signature) is None:
        return False
    try:
        _public(public_key).verify(bytes.fromhex(signature), message)
    except InvalidSignature:
        return False
    return True


def check_stated(public_key: str, statement: str, facts: Mapping[str, object], signature: object) -> bool:
    """Whether these facts were signed as a statement of this name.

    >>> sealer = Sealer.ephemeral()
    >>> check_stated(sealer.public_key, "anchor", {"n": 1}, sealer.state("anchor", {"n": 1}))
    True
    """
    return check(public_key, stated(statement, facts), signature)


def _public(public_key: object) -> Ed25519PublicKey:
    if not is_hash(public_key):
        raise checks.refuse("public_key", public_key, "64 lower-case hex digits", "read_public_key(path) reads it from a .pub file.")
    return Ed25519PublicKey.from_public_bytes(bytes.fromhex(str(public_key)))


def read_public_key(path: Path | str) -> str:
    """The public key in a ``.pub`` file: PEM, or 64 hex digits, in hex.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     sealer = Sealer.open(f"{folder}/book.key")
    ...     read_public_key(f"{folder}/book.pub") == sealer.public_key
    True
    """
    try:
        with os.fdopen(_regular(path, os.O_RDONLY), "rb") as file:
            held = file.read(_KEY_FILE_MAX)
    except OSError as error:
        raise InputError(f"The public key {shown(str(path))} cannot be read ({error.strerror}): give a .pub file.") from None
    bare = held.decode("ascii", "replace").strip()
    if is_hash(bare):
        return bare
    try:
        found = serialization.load_pem_public_key(held)
    except (ValueError, UnsupportedAlgorithm):
        found = None
    if not isinstance(found, Ed25519PublicKey):
        raise InputError(f"{shown(str(path))} holds no Ed25519 public key: expected PEM or 64 lower-case hex digits.")
    return found.public_bytes_raw().hex()


def _password() -> bytes | None:
    return os.fsencode(os.environ.get(PASSWORD_VARIABLE, "")) or None


def _regular(path: Path | str, flags: int) -> int:
    """A descriptor of a plain file: a pipe might never begin, and a device never end."""
    try:
        descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK, 0o644)
    except ValueError:
        raise OSError(errno.EINVAL, "not the path of a file") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a file")
    return descriptor


def _read(path: Path) -> Sealer:
    """Refuse what others may read before looking into it."""
    try:
        descriptor = _regular(path, os.O_RDONLY)
    except OSError as error:
        raise LedgerError(f"The signing key {path} cannot be opened ({error.strerror}): expected a PEM file of its owner.") from None
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_IMODE(mode) & 0o077:
            raise LedgerError(
                f"The signing key {path} may be read by others (mode {stat.S_IMODE(mode):04o}): expected 0600. "
                f"Run  chmod 600 {path}  and, if someone else may have read it, start a new book with a new key."
            )
        held = os.read(descriptor, _KEY_FILE_MAX)
    finally:
        os.close(descriptor)
    try:
        key = serialization.load_pem_private_key(held, _password())
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:  # TypeError: a password without encryption, or the other way round
        raise LedgerError(f"The signing key {path} cannot be used: {_why(error, held)}") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise LedgerError(f"The signing key {path} is of another kind: expected an Ed25519 key.")
    return Sealer(key)


def _why(error: Exception, held: bytes) -> str:
    """In words; the texts of the library are about its own arguments."""
    encrypted = b"ENCRYPTED PRIVATE KEY" in held
    if encrypted:
        return f"it is encrypted, and {PASSWORD_VARIABLE} {'does not open it' if isinstance(error, ValueError) else 'is not set'}."
    if isinstance(error, TypeError):
        return f"it is not encrypted, but {PASSWORD_VARIABLE} is set. Unset it, or encrypt the key with  openssl pkcs8 -topk8."
    return "it is damaged. Restore it from a copy."


def _make(path: Path) -> Sealer:
    """Write a new key; where another process was first, take its key."""
    key = Ed25519PrivateKey.generate()
    password = _password()
    hidden = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    try:
        held = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, hidden)
    except ValueError:
        raise LedgerError(
            f"The signing key {path} cannot be made: {PASSWORD_VARIABLE} is too long. Choose one of at most 1000 bytes."
        ) from None
    if not path.parent.is_dir():
        raise LedgerError(f"The signing key {path} cannot be made: its folder does not exist. Make the folder first.")
    return Sealer(key) if _place(path, held, 0o600) else _read(path)


def _publish(public_key: str, path: Path) -> None:
    """Write the public half if it is missing; one that differs is somebody's doing."""
    held = _public(public_key).public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    if not path.exists() and _place(path, held, 0o644):
        return
    if read_public_key(path) != public_key:
        raise TamperError(f"{path} does not hold the public half of the signing key beside it: find out who changed which, and restore it.")


def _place(path: Path, held: bytes, mode: int) -> bool:
    """Write a file under another name and link it in place: it is there whole or not at all, and never replaces one."""
    try:
        descriptor, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # for its owner only, from the start
        try:
            with os.fdopen(descriptor, "wb") as file:
                os.fchmod(descriptor, mode)
                file.write(held)
                file.flush()
                os.fsync(descriptor)
            os.link(draft, path)
        finally:
            Path(draft).unlink(missing_ok=True)
        _sync_folder(path.parent)
    except FileExistsError:
        return False
    except OSError as error:
        raise LedgerError(f"{path} cannot be written ({error.strerror}): expected a folder that can be written, with hard links.") from None
    return True


def _sync_folder(folder: Path) -> None:
    """A new name is durable when its folder is."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# ------------------------------------------------------------------------------------------------ checkpoints, trailers


def checkpoint(sealer: Sealer | None, book: str, peaks: Sequence[str], count: int) -> dict[str, object]:
    """The body of a checkpoint entry over the first ``count`` entries, whose peaks these are; unsigned without a key.

    >>> sorted(checkpoint(None, "book", (), 0))
    ['count', 'kind', 'peaks', 'root', 'signature']
    """
    facts: dict[str, object] = {"count": count, "root": root(peaks, count)}
    signature = sealer.state("checkpoint", {**facts, "book": book}) if sealer is not None else None
    return {"kind": "checkpoint", **facts, "peaks": list(peaks), "signature": signature}


def check_checkpoint(public_key: str, book: str, body: Mapping[str, object]) -> bool:
    """Whether a checkpoint entry was signed for this book; its root is compared by who has the entries.

    >>> sealer = Sealer.ephemeral()
    >>> body = checkpoint(sealer, "book", (), 0)
    >>> check_checkpoint(sealer.public_key, "book", body), check_checkpoint(sealer.public_key, "another", body)
    (True, False)
    """
    facts = {"book": book, "count": body.get("count"), "root": body.get("root")}
    return check_stated(public_key, "checkpoint", facts, body.get("signature"))


def trailer(sealer: Sealer | None, book: str, *, count: int, head: str, root_hash: str, at: datetime) -> str:
    """The last line of an export: how many entries there are and how they end.

    >>> trailer(None, "book", count=0, head="00" * 32, root_hash="00" * 32, at=datetime(2026, 1, 1, tzinfo=UTC))[:42]
    '{"at":"2026-01-01T00:00:00.000000Z","count'
    """
    facts: dict[str, object] = {"at": time_text(at), "count": count, "head": head, "root": root_hash}
    signature = sealer.state("trailer", {**facts, "book": book}) if sealer is not None else None
    return canonical_json({**facts, "signature": signature})


def check_trailer(public_key: str, book: str, body: Mapping[str, object]) -> bool:
    """Whether a trailer was signed for this book.

    >>> sealer = Sealer.ephemeral()
    >>> text = trailer(sealer, "book", count=0, head="00" * 32, root_hash="00" * 32, at=datetime(2026, 1, 1, tzinfo=UTC))
    >>> check_trailer(sealer.public_key, "book", parse_json(text))
    True
    """
    facts = {"book": book, **{name: body.get(name) for name in ("at", "count", "head", "root")}}
    return check_stated(public_key, "trailer", facts, body.get("signature"))


# ------------------------------------------------------------------------------------------------ receipts


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedReceipt:
    """What a signed receipt says: which charge stands where in which book, and what it left."""

    book: str
    charge: str
    state: State
    entry: int
    entry_hash: str
    head: tuple[int, str]
    at: str
    account: tuple[str, ...]
    unit: PrivacyUnit
    purpose: str
    event: str
    spent: Guarantee
    remaining: Guarantee
    public_key: str


_RECEIPT_FIELDS = (
    *("account", "at", "book", "charge", "entry", "entry_hash", "event", "format", "head"),
    *("public_key", "purpose", "remaining", "signature", "spent", "state", "unit"),
)


def receipt_text(sealer: Sealer, receipt: Receipt, charge: Charge, *, book: str, head: tuple[int, str] | None = None) -> str:
    """A receipt to hand to a person: canonical JSON, signed. ``head`` is the newest entry at that time, if not the receipt's own.

    The event is told by its digest alone. Nothing in it depends on rows.

    >>> from dither import events as ev
    >>> unit = PrivacyUnit(dataset="events", key="user_id")
    >>> charge = Charge(id="c1", account=("acme",), unit=unit, event=ev.PureDp(0.1), plan_digest="sha256:0", purpose="report")
    >>> left = {"spent": Guarantee(0.1, 0, unit), "remaining": Guarantee(0.9, 0, unit)}
    >>> now = datetime(2026, 11, 19, tzinfo=UTC)
    >>> receipt = Receipt(charge_id="c1", state=State.COMMITTED, entry=7, head="ab" * 32, at=now, **left)
    >>> sealer = Sealer.ephemeral()
    >>> check_receipt(receipt_text(sealer, receipt, charge, book="b1"), sealer.public_key).entry
    7
    """
    if receipt.charge_id != charge.id:
        raise checks.refuse("charge", charge.id, f"the charge of the receipt, {receipt.charge_id!r}")
    facts: dict[str, object] = {
        "format": RECEIPT_FORMAT,
        "book": book,
        "charge": charge.id,
        "state": receipt.state.value,
        "entry": receipt.entry,
        "entry_hash": receipt.head,
        "head": list(head or (receipt.entry, receipt.head)),
        "at": time_text(receipt.at),
        "account": list(charge.account),
        "unit": _unit(charge.unit),
        "purpose": charge.purpose,
        "event": event_digest(charge.event),
        "spent": _guarantee(receipt.spent),
        "remaining": _guarantee(receipt.remaining),
        "public_key": sealer.public_key,
    }
    return canonical_json({**facts, "signature": sealer.state("receipt", facts)})


def check_receipt(text: str | bytes, public_key: str) -> SealedReceipt:
    """What a receipt says, once its signature is found to be of this key; TamperError where it is not.

    >>> check_receipt("{}", "00" * 32)
    Traceback (most recent call last):
    dither.core.errors.DecodeError: This is no receipt: expected the fields account, at, book, charge, …, unit.
    """
    if not isinstance(text, str | bytes):
        raise checks.refuse("receipt", text, "its text")
    held = parse_json(text.strip())
    if not isinstance(held, dict) or sorted(held) != list(_RECEIPT_FIELDS):
        raise DecodeError(f"This is no receipt: expected the fields {', '.join(_RECEIPT_FIELDS[:4])}, …, {_RECEIPT_FIELDS[-1]}.")
    facts = {name: value for name, value in held.items() if name != "signature"}
    if not check_stated(public_key, "receipt", facts, held["signature"]):
        raise TamperError("The signature of this receipt is not of this key: it was altered, or is from another book.")
    if held["format"] != RECEIPT_FORMAT:
        raise DecodeError(f"A receipt of format {shown(held['format'])} cannot be read: expected {RECEIPT_FORMAT}. Update dither.")
    try:
        return SealedReceipt(
            **{name: held[name] for name in ("book", "charge", "entry", "entry_hash", "at", "purpose", "event", "public_key")},
            state=State(held["state"]),
            head=(int(held["head"][0]), str(held["head"][1])),
            account=tuple(held["account"]),
            unit=PrivacyUnit(**held["unit"]),
            spent=_promise(held["spent"]),
            remaining=_promise(held["remaining"]),
        )
    except (KeyError, TypeError, ValueError, IndexError):  # signed, so made by a program that writes other receipts
        raise DecodeError("This receipt is signed, but written in another way than this version reads: update dither.") from None


def _unit(unit: PrivacyUnit) -> dict[str, object]:
    return {"dataset": unit.dataset, "key": unit.key, "neighbors": unit.neighbors.value}


def _guarantee(held: Guarantee) -> dict[str, object]:
    """JSON has no ∞, so it is written as text."""
    epsilon = held.epsilon if math.isfinite(held.epsilon) else "infinite"
    return {"epsilon": epsilon, "delta": held.delta, "unit": _unit(held.unit), "trust": held.trust.value}


def _promise(held: Mapping[str, Any]) -> Guarantee:
    epsilon = math.inf if held["epsilon"] == "infinite" else held["epsilon"]
    return Guarantee(epsilon, held["delta"], PrivacyUnit(**held["unit"]), held["trust"])


# ------------------------------------------------------------------------------------------------ anchors


@dataclass(frozen=True, slots=True)
class Anchor:
    """That entry ``n`` had this hash at that time, written where whoever keeps the book cannot rewrite it."""

    n: int
    hash: str
    at: str
    signature: object = None
    """Hex, or None in a book without a key."""

    def signed_by(self, public_key: str) -> bool:
        """Whether it carries the signature of this key."""
        return check_stated(public_key, "anchor", self.facts, self.signature)

    @property
    def facts(self) -> dict[str, object]:
        """What is signed."""
        return {"at": self.at, "hash": self.hash, "n": self.n}


@dataclass(frozen=True, slots=True)
class AnchorFile:
    """A file of anchors that only grows. Keep it on another machine or medium than the book, else it proves little.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "anchors")
    ...     AnchorFile(path, Sealer.ephemeral()).anchor(3, "ab" * 32, datetime(2026, 11, 19, tzinfo=UTC))
    ...     last_anchor(path).n
    3
    """

    path: Path
    sealer: Sealer | None = None
    durable: bool = False
    """Whether every line waits for the disk."""

    def anchor(self, n: int, entry: str, at: datetime) -> None:
        """Append one line, in one write."""
        made = Anchor(checks.count("n", n, low=0, high=COUNT_MAX), entry, time_text(at))
        if not is_hash(entry):
            raise checks.refuse("hash", entry, "64 lower-case hex digits")
        signature = self.sealer.state("anchor", made.facts) if self.sealer is not None else None
        held = f"{canonical_json({**made.facts, 'signature': signature})}\n".encode("ascii")
        with _appending(self.path) as descriptor:
            end = _whole_lines(descriptor)
            if os.write(descriptor, held) != len(held):
                os.ftruncate(descriptor, end)
                raise LedgerError(f"The anchor file {self.path} cannot grow: expected room for one more line. Make room on its disk.")
            if self.durable:
                os.fsync(descriptor)


@contextmanager
def _appending(path: Path) -> Iterator[int]:
    """The file, locked against other writers (readers do not wait)."""
    try:
        descriptor = _regular(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield descriptor
        finally:
            os.close(descriptor)
    except OSError as error:
        raise LedgerError(f"The anchor file {path} cannot be written ({error.strerror}): expected a file that can grow.") from None


def _whole_lines(descriptor: int) -> int:
    """Cut off what a crash left of a line; give the length of what is left."""
    end = os.fstat(descriptor).st_size
    if end and os.pread(descriptor, 1, end - 1) != b"\n":
        start = max(0, end - _TAIL)
        line = os.pread(descriptor, end - start, start).rfind(b"\n") + 1
        if start and not line:
            raise _damaged("The end of the anchor file")  # no crash leaves so much
        end = start + line
        os.ftruncate(descriptor, end)
    return end


_TAIL: Final = 65_536
"""Far longer than any line, so the tail of this length holds a whole one."""


def anchors(path: Path | str) -> Iterator[Anchor]:
    """All anchors of a file, in its order. A torn last line is left out; any other damage is a TamperError.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     list(anchors(file.name))
    []
    """
    with _reading(path) as file:
        for number, line in enumerate(iter(lambda: file.readline(_TAIL), b""), 1):
            if not line.endswith(b"\n"):
                if len(line) == _TAIL:
                    raise _damaged(f"Line {number} of the anchor file")
                return
            yield _anchor(line[:-1], f"Line {number} of the anchor file")


def last_anchor(path: Path | str) -> Anchor | None:
    """The anchor of the highest entry among the last lines of the file; None where there is none yet.

    >>> last_anchor("none")
    """
    if not Path(path).exists():
        return None
    with _reading(path) as file:
        end = os.fstat(file.fileno()).st_size
        start = max(0, end - _TAIL)
        first, *lines = os.pread(file.fileno(), end - start, start).split(b"\n")
    if start and not lines:
        raise _damaged("The end of the anchor file")
    whole = lines[:-1] if start else [first, *lines][:-1]
    return max(
        (_anchor(line, "A line at the end of the anchor file") for line in whole), key=lambda a: a.n, default=None
    )  # writers may cross


@contextmanager
def _reading(path: Path | str) -> Iterator[Any]:
    try:
        with os.fdopen(_regular(path, os.O_RDONLY), "rb") as file:
            yield file
    except OSError as error:
        raise LedgerError(f"The anchor file {path} cannot be read ({error.strerror}): give the file that the ledger appends to.") from None


def _damaged(where: str) -> TamperError:
    return TamperError(f"{where} is damaged: expected n, hash, at and signature, as the ledger writes them.")


def _anchor(line: bytes, where: str) -> Anchor:
    try:
        text = line.decode("ascii")
        held = parse_json(text)
        made = Anchor(**held)
        whole = canonical_json(held) == text
    except (InputError, TypeError, UnicodeDecodeError):
        raise _damaged(where) from None
    signed = made.signature is None or (isinstance(made.signature, str) and _SIGNATURE.fullmatch(made.signature) is not None)
    if not (whole and signed and type(made.n) is int and 0 <= made.n <= COUNT_MAX and is_hash(made.hash) and is_time(made.at)):
        raise _damaged(where)
    return made
