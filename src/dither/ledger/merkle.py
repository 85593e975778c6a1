"""A Merkle tree over the hashes of the entries, kept as its peaks; proofs that one root is enough to check.

Leaves and nodes are those of RFC 6962 (leaf: SHA-256 of 0x00 and the entry's hash; node: of 0x01 and both children), so the
root over n entries is its Merkle tree hash, and the proofs are those of RFC 9162. Hashes are 64 lower-case hex digits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from hashlib import sha256

from dither.core import checks

COUNT_MAX = 2**62
_HASH = re.compile(r"[0-9a-f]{64}")


def is_hash(value: object) -> bool:
    """Whether this is a hash (or a public key) as it is written: 64 lower-case hex digits.

    >>> is_hash("0" * 64), is_hash("A" * 64)
    (True, False)
    """
    return isinstance(value, str) and _HASH.fullmatch(value) is not None


def grow(peaks: Sequence[str], n: int, new_hashes: Iterable[str]) -> tuple[str, ...]:
    """The peaks of a tree of ``n`` entries, after more entries: the roots of its full subtrees, largest first.

    >>> three = grow((), 0, ["aa" * 32, "bb" * 32, "cc" * 32])
    >>> len(three), three == grow(grow((), 0, ["aa" * 32]), 1, ["bb" * 32, "cc" * 32])
    (2, True)
    """
    tree = Mountain(peaks, n)
    for entry in new_hashes:
        tree.add(_bytes(entry))
    return tree.peaks


def root(peaks: Sequence[str], n: int) -> str:
    """The root of the tree with these peaks: the Merkle tree hash of RFC 6962 over all ``n`` entry hashes.

    >>> root((), 0) == sha256().hexdigest(), root(grow((), 0, ["aa" * 32]), 1) == sha256(bytes(1) + bytes.fromhex("aa" * 32)).hexdigest()
    (True, True)
    """
    return Mountain(peaks, n).root


class Mountain:
    """A Merkle mountain range: the peaks alone, which is all that growing and telling the root need."""

    __slots__ = ("_peaks", "n")

    def __init__(self, peaks: Sequence[str] = (), n: int = 0) -> None:
        self.n = checks.count("n", n, low=0, high=COUNT_MAX)
        if len(peaks) != self.n.bit_count():
            raise checks.refuse("peaks", f"{len(peaks)} hashes", f"{self.n.bit_count()} of them for n={n}")
        self._peaks = [_bytes(peak) for peak in peaks]

    def add(self, entry: bytes) -> None:
        """One more entry hash, as 32 bytes."""
        node, n, peaks = sha256(b"\0" + entry).digest(), self.n, self._peaks
        self.n = n + 1
        while n & 1:
            node = sha256(b"\1" + peaks.pop() + node).digest()
            n >>= 1
        peaks.append(node)

    @property
    def peaks(self) -> tuple[str, ...]:
        """Largest first."""
        return tuple(peak.hex() for peak in self._peaks)

    @property
    def root(self) -> str:
        """Of all entries so far."""
        if not self._peaks:
            return sha256().hexdigest()
        node = self._peaks[-1]
        for peak in reversed(self._peaks[:-1]):
            node = sha256(b"\1" + peak + node).digest()
        return node.hex()


def inclusion(hashes: Sequence[str], index: int) -> tuple[str, ...]:
    """The proof that entry ``index`` is in the tree of these entries (RFC 9162, 2.1.3.1).

    >>> leaves = ["aa" * 32, "bb" * 32, "cc" * 32]
    >>> check_inclusion(root(grow((), 0, leaves), 3), 3, 1, leaves[1], inclusion(leaves, 1))
    True
    """
    if not hashes:
        raise checks.refuse("hashes", hashes, "one or more")
    checks.count("index", index, low=0, high=len(hashes) - 1)
    leaves = [_bytes(h) for h in hashes]
    low, high, steps = 0, len(leaves), []
    while high - low > 1:
        middle = low + _half(high - low)
        inside = index < middle
        steps.append(_tree(leaves, middle, high) if inside else _tree(leaves, low, middle))
        low, high = (low, middle) if inside else (middle, high)
    return tuple(node.hex() for node in reversed(steps))


def check_inclusion(root_hash: str, n: int, index: int, entry: str, proof: Sequence[str]) -> bool:
    """Whether ``entry`` is number ``index`` of the ``n`` entries under this root (RFC 9162, 2.1.3.2).

    >>> check_inclusion("00" * 32, 1, 0, "aa" * 32, ())
    False
    """
    if not _counts(index, n) or not 0 <= index < n or not _hashes(proof, entry, root_hash):
        return False
    first, last, node = index, n - 1, sha256(b"\0" + bytes.fromhex(entry)).digest()
    for step in proof:
        if last == 0:
            return False
        beside = bytes.fromhex(step)
        if first & 1 or first == last:
            node = sha256(b"\1" + beside + node).digest()
            while not first & 1 and first:
                first, last = first >> 1, last >> 1
        else:
            node = sha256(b"\1" + node + beside).digest()
        first, last = first >> 1, last >> 1
    return last == 0 and node.hex() == root_hash


def consistency(hashes: Sequence[str], old: int) -> tuple[str, ...]:
    """The proof that the tree of these entries continues the tree of the first ``old`` of them (RFC 9162, 2.1.4.1).

    >>> leaves = ["aa" * 32, "bb" * 32, "cc" * 32]
    >>> before, now = root(grow((), 0, leaves[:2]), 2), root(grow((), 0, leaves), 3)
    >>> check_consistency(2, before, 3, now, consistency(leaves, 2))
    True
    """
    if not hashes:
        raise checks.refuse("hashes", hashes, "one or more")
    checks.count("old", old, high=len(hashes))
    leaves = [_bytes(h) for h in hashes]
    low, high, whole, steps = 0, len(leaves), True, []
    while old != high:
        middle = low + _half(high - low)
        if old <= middle:
            steps.append(_tree(leaves, middle, high))
            high = middle
        else:
            steps.append(_tree(leaves, low, middle))
            low, whole = middle, False
    if not whole:
        steps.append(_tree(leaves, low, high))
    return tuple(node.hex() for node in reversed(steps))


def check_consistency(old: int, old_root: str, n: int, root_hash: str, proof: Sequence[str]) -> bool:
    """Whether the tree of ``n`` entries under ``root_hash`` begins with the ``old`` entries under ``old_root`` (RFC 9162, 2.1.4.2).

    >>> check_consistency(1, "aa" * 32, 1, "aa" * 32, ()), check_consistency(1, "aa" * 32, 1, "bb" * 32, ())
    (True, False)
    """
    if not _counts(old, n) or not 1 <= old <= n or not _hashes(proof, old_root, root_hash):
        return False
    if old == n:
        return not proof and old_root == root_hash
    steps = [bytes.fromhex(step) for step in proof]
    if old & (old - 1) == 0:
        steps.insert(0, bytes.fromhex(old_root))
    if not steps:
        return False
    first, last = old - 1, n - 1
    while first & 1:
        first, last = first >> 1, last >> 1
    before = now = steps[0]
    for step in steps[1:]:
        if last == 0:
            return False
        if first & 1 or first == last:
            before, now = sha256(b"\1" + step + before).digest(), sha256(b"\1" + step + now).digest()
            while not first & 1 and first:
                first, last = first >> 1, last >> 1
        else:
            now = sha256(b"\1" + now + step).digest()
        first, last = first >> 1, last >> 1
    return last == 0 and before.hex() == old_root and now.hex() == root_hash


def _half(count: int) -> int:
    """The largest power of two below ``count``."""
    return 1 << ((count - 1).bit_length() - 1)


def _tree(leaves: list[bytes], low: int, high: int) -> bytes:
    """The root over leaves[low:high], whose size is at least 1."""
    tree = Mountain()
    for leaf in leaves[low:high]:
        tree.add(leaf)
    return bytes.fromhex(tree.root)


def _bytes(value: object) -> bytes:
    if not is_hash(value):
        raise checks.refuse("hash", value, "64 lower-case hex digits")
    return bytes.fromhex(str(value))


def _hashes(proof: object, *values: object) -> bool:
    """What came from elsewhere may be anything; a proof has a hash for each level of the tree, at most."""
    return isinstance(proof, list | tuple) and len(proof) <= 2 * COUNT_MAX.bit_length() and all(map(is_hash, (*values, *proof)))


def _counts(*values: object) -> bool:
    return all(type(value) is int and value <= COUNT_MAX for value in values)
