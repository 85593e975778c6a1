"""Check an exported book with nothing but the file and the public key: every line, every sum, every price.

>>> report = verify([], public_key=None)
>>> report.ok, report.findings[0].kind
(False, 'end')

What this proves, and what it cannot: docs/proofs/ledger.md.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from dither.core import checks
from dither.core.errors import DecodeError, DitherError, InputError, TamperError, shown
from dither.ledger import entries, merkle, opinion, paths, seal
from dither.ledger.replay import Held, Replay, canonical

FINDINGS_MAX: Final = 100
_TOLD_EVERY: Final = 10_000
_TRAILER = ("at", "count", "head", "root", "signature")
_STATES = {"reserve": "reserved", "commit": "committed", "void": "voided"}


# ------------------------------------------------------------------------------------------------ what was found


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it must be; ``n`` is the entry, counted by lines from 0, or None for the book as a whole."""

    n: int | None
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{'book' if self.n is None else f'entry {self.n}'}: {self.kind}: {self.text}"


@dataclass(frozen=True, slots=True)
class Spent:
    """What stands against one limit at the end of the book, in the block of which most is used."""

    limit: str
    account: str
    dataset: str
    block: str
    blocks: int
    charges: int
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a verification found. ``ok`` is True only where nothing was found."""

    ok: bool
    findings: tuple[Finding, ...]
    found: int
    """How many findings there were; only the first 100 are kept."""
    entries: int
    charges: int
    open_charges: int
    checkpoints: int
    signed: bool
    """Whether signatures were held against a key that was given, and all were of that key."""
    head: str
    root: str
    book: str
    first: str
    last: str
    limits: tuple[Spent, ...]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, object]:
        """A plain JSON value."""
        return {
            **asdict(self),
            "findings": [asdict(f) for f in self.findings],
            "limits": [asdict(s) for s in self.limits],
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        whole = (
            "The book is whole" if self.ok else f"The book is NOT what it should be: {self.found} finding{'s' if self.found != 1 else ''}"
        )
        counts = f"{self.entries} entries, {self.charges} charges ({self.open_charges} open), {self.checkpoints} checkpoints"
        span = f", from {self.first} to {self.last}" if self.first else ""
        lines = [f"{whole}: {counts}{span}.", *(f"  {f}" for f in self.findings)]
        if self.found > len(self.findings):
            lines.append(f"  and {self.found - len(self.findings)} more")
        lines += [
            f"  {s.limit} {s.account} on {s.dataset}{f' [{s.block}]' if s.block else ''}: {100 * s.share:.4g} % used" for s in self.limits
        ]
        return "\n".join([*lines, *(f"Note: {note}" for note in self.notes)])


class _Findings:
    def __init__(self) -> None:
        self.kept: list[Finding] = []
        self.total = 0
        self.n: int | None = None

    def here(self, kind: str, text: str) -> None:
        self.at(self.n, kind, text)

    def at(self, n: int | None, kind: str, text: str) -> None:
        self.total += 1
        if len(self.kept) < FINDINGS_MAX:
            self.kept.append(Finding(n, kind, text))


# ------------------------------------------------------------------------------------------------ the walk


class _Walk:
    """One pass over the lines: form, order, chain, tree and seals here; the meaning is replayed."""

    def __init__(self, public_key: str | None, *, tally: bool) -> None:
        self.key = public_key
        self.found = _Findings()
        self.replay = Replay(self.found.here, tally=tally)
        self.tree = merkle.Mountain()
        self.head, self.first, self.last = entries.GENESIS, "", ""
        self.next, self.charges, self.checkpoints, self.bad_seals = 0, 0, 0, 0
        self.closed = False
        self.hashes: defaultdict[int, list[tuple[str, str, str]]] = defaultdict(list)
        self.receipts: defaultdict[int, list[seal.SealedReceipt]] = defaultdict(list)
        self.charged: defaultdict[str, list[seal.SealedReceipt]] = defaultdict(list)
        self.books: set[str] = set()

    def line(self, raw: str | bytes) -> None:
        """The next line, with or without its end."""
        found = self.found
        place = found.n = self.tree.n
        if self.closed:
            found.at(None, "end", "Lines follow after the line that closes the book.")
            return
        data = raw if isinstance(raw, bytes) else raw.encode("utf-8", "surrogatepass")
        data = data[:-1] if data[-1:] == b"\n" else data
        text, body = data.decode("ascii", "replace"), None  # what is not ASCII becomes a letter that no line holds
        try:
            body = entries.parse(text)
        except DecodeError as error:
            if self._closes(text):
                return
            found.here("form", str(error))
        hashed = sha256(data)
        entry = hashed.hexdigest()
        if body is not None:
            self._placed(body, place)
            if body["kind"] == "checkpoint":
                self._checkpoint(body, place)
            if place in self.hashes or place in self.receipts or self.charged:
                self._watched(body, place, entry)
            self.charges += body["kind"] == "reserve"
            self.replay.apply(body, self.last)
        else:
            self.next += 1
        self.tree.add(hashed.digest())
        self.head = entry

    def _placed(self, body: dict[str, Any], place: int) -> None:
        n, at, kind, here = body["n"], body["at"], body["kind"], self.found.here
        if type(n) is not int or n != self.next:
            here("order", f"Its number is {shown(n)}: expected {self.next}. Entries are missing, doubled or out of order.")
        self.next = n + 1 if type(n) is int and 0 <= n < 2**62 else self.next + 1
        if body["prev"] != self.head:
            here("chain", "It does not carry the hash of the entry before it: one of the two is not what was written.")
        if at != self.last:
            if not seal.is_time(at):
                here("time", f"Its time is {shown(at)}: expected such as 2026-11-19T06:00:00.000000Z.")
            else:
                if at < self.last:
                    here("time", f"Its time, {at}, is before that of the entry before it.")
                self.first, self.last = self.first or at, max(at, self.last)
        by = body["by"]
        if not isinstance(by, str) or not by or len(by) > 1_000 or not by.isprintable():
            here("form", "It does not say who wrote it.")
        if (kind == "open") != (place == 0):
            here("order", "A book opens with its first entry, and with no other.")
        if (kind == "checkpoint") != (place % entries.CHECKPOINT_EVERY == 0 and place > 0):
            here(
                "checkpoint",
                f"Checkpoints are the entries {entries.CHECKPOINT_EVERY}, {2 * entries.CHECKPOINT_EVERY} and so on, and no others.",
            )

    # -------------------------------------------------------------------------------------------- seals

    def _checkpoint(self, body: dict[str, Any], place: int) -> None:
        self.checkpoints += 1
        stated = (body["count"], body["root"], body["peaks"])
        if type(body["count"]) is not int or stated != (place, self.tree.root, list(self.tree.peaks)):
            self.found.here("checkpoint", "Its tree is not that of the entries before it.")
        self._sealed("checkpoint", body, seal.check_checkpoint)

    def _sealed(self, what: str, body: dict[str, Any], check: Callable[[str, str, dict[str, Any]], bool]) -> None:
        """A signature must be there if the book has a key, be that of the key, and be missing if it has none."""
        key = self.key or self.replay.public_key
        if body["signature"] is None and key is None:
            return
        if key is None or not check(key, self.replay.book, body):
            self.bad_seals += 1
            told = "is not signed" if body["signature"] is None else "carries a signature that is not of this key"
            self.found.here("signature", f"The {what} {told}.")

    def _closes(self, text: str) -> bool:
        """Whether this is the trailer, which is then checked; whatever looks like one is told as one."""
        try:
            body = json.loads(text)
        except (ValueError, RecursionError):
            return False
        if not isinstance(body, dict) or "kind" in body or not {"count", "head", "root"} & body.keys():
            return False
        self.closed, here = True, self.found.here
        self.found.n = None
        if sorted(body) != list(_TRAILER) or not _is_canonical(body, text):
            here("trailer", "The line that closes the book is not written as the ledger writes it.")
            return True
        if type(body["count"]) is not int or body["count"] != self.tree.n:
            here("trailer", f"The book is closed over {shown(body['count'])} entries, but holds {self.tree.n}.")
        if body["head"] != self.head or body["root"] != self.tree.root:
            here("trailer", "The book is closed over other entries than it holds.")
        if not seal.is_time(body["at"]) or body["at"] < self.last:
            here("trailer", "The book is closed at no time, or at one before its last entry.")
        self._sealed("trailer", body, seal.check_trailer)
        return True

    def _watched(self, body: dict[str, Any], place: int, entry: str) -> None:
        """What was handed out, or kept elsewhere, about this entry."""
        for kind, expected, told in self.hashes.pop(place, ()):
            if expected != entry:
                self.found.here(kind, f"{told} says that this entry was another.")
        for receipt in self.receipts.pop(place, ()):
            if receipt.entry_hash != entry or _STATES.get(body["kind"]) != receipt.state or _charge_id(body) != receipt.charge:
                self.found.here("receipt", f"The receipt of charge {shown(receipt.charge)} is about another entry than this one.")
        if body["kind"] == "reserve":
            for receipt in self.charged.pop(str(_charge_id(body)), ()):
                if not _is_of(receipt, body["charge"]):
                    self.found.here("receipt", f"The receipt of charge {shown(receipt.charge)} tells of another charge than the book.")

    def expect(self, anchors: Iterable[seal.Anchor], receipts: Iterable[str | bytes]) -> list[str]:
        """Remember what anchors and receipts say; notes where they cannot be used."""
        at, notes = self.found.at, []
        try:
            for anchor in anchors:
                self.hashes[anchor.n].append(("anchor", anchor.hash, f"The anchor of {anchor.at}"))
                if self.key is not None and anchor.signature is not None and not anchor.signed_by(self.key):
                    at(None, "anchor", f"The anchor of {anchor.at} is not signed with this key.")
        except TamperError as error:  # the lines after the damage are not read
            at(None, "anchor", str(error))
        for number, text in enumerate(receipts, 1):
            if self.key is None:
                notes.append("Receipts were not checked: that needs the public key.")
                break
            try:
                receipt = seal.check_receipt(text, self.key)
            except DitherError as error:
                at(None, "receipt", f"Receipt {number}: {error}")
                continue
            self.books.add(receipt.book)
            self.receipts[receipt.entry].append(receipt)
            self.charged[receipt.charge].append(receipt)
            n, head = receipt.head
            self.hashes[n].append(("receipt", head, f"The receipt of charge {shown(receipt.charge)}"))
        return notes

    # -------------------------------------------------------------------------------------------- the end

    def end(self) -> None:
        """No more lines."""
        at, count = self.found.at, self.tree.n
        self.found.n = count - 1 if count else None
        self.replay.end()
        if not self.closed:
            at(None, "end", "No line closes the book: it was cut off, or is no export.")
        for n, held in sorted(self.hashes.items()):
            for kind, _, told in held if n >= count else ():
                at(
                    None,
                    kind,
                    f"{told} is about entry {n}, but the book ends before: entries are missing at its end, or it was exported before.",
                )
        for n in sorted(n for n in self.receipts if n >= count):
            at(None, "receipt", f"The receipt of charge {shown(self.receipts[n][0].charge)} is about entry {n}, but the book ends before.")
        for charge in sorted(self.charged):
            at(None, "receipt", f"The book does not hold charge {shown(charge)}, of which there is a receipt.")
        if self.books - {self.replay.book}:
            at(None, "receipt", "A receipt is of another book.")
        if self.key is not None and self.replay.public_key != self.key:
            told = "was written without a key" if self.replay.public_key is None else "names another public key than the one given"
            at(None, "signature", f"The book {told}.")

    def report(self, notes: Iterable[str]) -> Report:
        """All of it."""
        replay, found = self.replay, self.found
        told = list(notes)
        if self.key is None:
            compared = "signatures were held against the key that the book names" if replay.public_key else "the book is not signed"
            told.append(
                f"Authenticity was not checked, for no public key was given ({compared}): whoever rewrote the book would not be found."
            )
        if replay.close:
            told.append(f"{replay.close} prices differ from those computed here in the last digits, within the margin that prices hold.")
        if replay.open:
            are = "charge is" if len(replay.open) == 1 else "charges are"
            told.append(f"{len(replay.open)} {are} reserved and not settled: what is unknown counts as spent.")
        return Report(
            ok=found.total == 0,
            findings=tuple(found.kept),
            found=found.total,
            entries=self.tree.n,
            charges=self.charges,
            open_charges=len(replay.open),
            checkpoints=self.checkpoints,
            signed=self.key is not None and self.closed and self.key == replay.public_key and not self.bad_seals,
            head=self.head,
            root=self.tree.root,
            book=replay.book,
            first=self.first,
            last=self.last,
            limits=tuple(_spent(held) for held in replay.limits.values()),
            notes=tuple(told),
        )


def _is_canonical(body: object, text: str) -> bool:
    try:
        return canonical(body) == text
    except (ValueError, RecursionError):
        return False


def _charge_id(body: dict[str, Any]) -> object:
    given = body.get("charge")
    return given.get("id") if isinstance(given, dict) else given


def _is_of(receipt: seal.SealedReceipt, charge: dict[str, Any]) -> bool:
    """Whether a receipt says of a charge what the book says."""
    unit, event = receipt.unit, sha256(canonical(charge.get("event")).encode("ascii")).hexdigest()
    said = {
        "account": list(receipt.account),
        "purpose": receipt.purpose,
        "unit": {"dataset": unit.dataset, "key": unit.key, "neighbors": unit.neighbors},
    }
    return receipt.event == f"sha256:{event}" and all(charge.get(name) == value for name, value in said.items())


def _spent(held: Held) -> Spent:
    block, spent = held.worst()
    limit = held.limit
    return Spent(
        limit.id, paths.text(limit.account), limit.dataset, block, len(held.balances), held.charges, min(held.rule.share(spent), 1e300)
    )  # JSON has no ∞


# ------------------------------------------------------------------------------------------------ verify


def verify(
    lines: Iterable[str | bytes],
    *,
    public_key: str | None,
    anchors: Iterable[seal.Anchor] | None = None,
    receipts: Iterable[str | bytes] = (),
    second_opinion: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Report:
    """Check the lines of an exported book, its trailer last: form, chain, tree, seals, and every charge worked out anew.

    ``anchors`` and ``receipts`` are what was kept elsewhere; ``progress`` is told now and then how many lines are done.

    >>> print(verify(['{"n": 0}'], public_key=None).findings[0])
    entry 0: form: This line is not canonical JSON, as the ledger writes it.
    """
    return _verify(lines, public_key, (anchors or (), receipts), second_opinion, progress)


def verify_file(
    path: Path | str,
    *,
    public_key: str | None,
    anchors: Path | str | Iterable[seal.Anchor] | None = None,
    receipts: Iterable[str | bytes] = (),
    second_opinion: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Report:
    """Check an exported file; ``anchors`` may be the path of an anchor file.

    >>> verify_file("/dev/null", public_key=None).ok
    False
    """
    kept = seal.anchors(anchors) if isinstance(anchors, Path | str) else anchors or ()
    return _verify(_lines(Path(path)), public_key, (kept, receipts), second_opinion, progress)


def _verify(
    lines: Iterable[str | bytes],
    public_key: str | None,
    beside: tuple[Iterable[seal.Anchor], Iterable[str | bytes]],
    second_opinion: bool,  # noqa: FBT001 - a private function
    progress: Callable[[int], None] | None,
) -> Report:
    if public_key is not None and not merkle.is_hash(public_key):
        raise checks.refuse(
            "public_key", public_key, "64 lower-case hex digits, or None", "seal.read_public_key(path) reads it from a .pub file."
        )
    walk = _Walk(public_key, tally=second_opinion)
    notes = walk.expect(*beside)
    for number, line in enumerate(lines):
        walk.line(line)
        if progress is not None and number % _TOLD_EVERY == 0:
            progress(number)
    walk.end()
    if second_opinion and walk.replay.tally is not None:
        wrong, told = opinion.compare(walk.replay.tally, walk.replay.limits)
        for text in wrong:
            walk.found.at(None, "opinion", text)
        notes += told
    return walk.report(notes)


def _lines(path: Path) -> Iterator[bytes]:
    """The lines of a file; one without an end, or longer than any entry, is handed on in a form that no entry has."""
    try:
        with path.open("rb") as file:
            while line := file.readline(entries.LINE_MAX + 2):
                yield line if line.endswith(b"\n") else line + b"\n\n"
    except OSError as error:
        raise InputError(
            f"The book {shown(str(path))} cannot be read ({error.strerror}): give a file made by  dither ledger export."
        ) from None
