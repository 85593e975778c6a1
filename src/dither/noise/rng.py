"""Uniform bits: the secure keystream that noise is made of, and a predictable one for tests, named for what it is.

The stream is ChaCha20. Its key comes from the operating system, is replaced by the stream's own output every MiB (so that a
stolen state does not betray older noise) and from the operating system again every GiB. A child process never continues the
stream of its parent: bytes and draws that wait in a buffer are dropped in it, and it is keyed afresh.
"""

from __future__ import annotations

import builtins
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from hashlib import sha256
from typing import Any, NoReturn, Protocol

import numpy as np
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from numpy.typing import NDArray

from dither.core import checks
from dither.core.errors import EntropyError, RefusedError
from dither.core.rng import Rng

_SEED_BYTES = 48  # 32 of key, 16 of nonce
_KEY_LIFE = 1 << 20
_SEED_LIFE = 1 << 30
_BUFFER = 1 << 12
_LARGE = 1 << 10  # requests of this many bytes go round the buffer
_ZEROS = bytes(1 << 16)
_RESERVES_MAX = 64
_RESERVE_MIN, _RESERVE_MAX = 8, 4_096
_BYTES_MAX = 1 << 40


class ArrayRng(Rng, Protocol):
    """A source of uniform bits that also fills numpy arrays, and keeps a reserve of draws for scalar calls."""

    def uint8(self, count: int) -> NDArray[np.uint8]:
        """``count`` uniform 8-bit words, in an array that the caller may write to."""
        ...

    def uint16(self, count: int) -> NDArray[np.uint16]:
        """``count`` uniform 16-bit words, in an array that the caller may write to."""
        ...

    def uint32(self, count: int) -> NDArray[np.uint32]:
        """``count`` uniform 32-bit words, in an array that the caller may write to."""
        ...

    def uint64(self, count: int) -> NDArray[np.uint64]:
        """``count`` uniform 64-bit words, in an array that the caller may write to."""
        ...

    def fill(self, out: NDArray[Any]) -> None:
        """Overwrite a contiguous array with uniform bits."""
        ...

    def take(self, law: Hashable, draw: Callable[[int], NDArray[Any]]) -> Any:  # noqa: ANN401 - int or float, as ``draw`` makes them
        """One draw of ``law``, made by ``draw(count)`` in batches that are used up one by one and wiped."""
        ...


class _Reserve:
    """Draws of one law that nobody has seen yet."""

    __slots__ = ("at", "draws", "size")

    def __init__(self) -> None:
        self.size = _RESERVE_MIN // 4
        self.at = 0
        self.draws: NDArray[Any] = np.empty(0)

    def wipe(self) -> None:
        """Overwrite what is left."""
        self.draws.fill(0)
        self.at = len(self.draws)


class _Stream:
    """A ChaCha20 keystream, buffered; the two public classes differ in where its keys come from."""

    __slots__ = (
        "__weakref__",
        "_at",
        "_buffer",
        "_encryptor",
        "_key_left",
        "_lock",
        "_owner",
        "_pid",
        "_reserves",
        "_seed_left",
        "_take_lock",
        "_taker",
    )

    private = True

    def __init__(self) -> None:
        self._reset()

    def _seed(self) -> builtins.bytes:
        raise NotImplementedError

    def _reset(self) -> None:
        """Forget the key, the buffered bytes and the buffered draws; the next request keys the stream afresh."""
        self._lock, self._take_lock = threading.Lock(), threading.Lock()
        self._pid = os.getpid()
        self._owner = self._taker = 0
        self._encryptor: Any = None
        self._key_left = self._seed_left = 0
        self._buffer = np.zeros(_BUFFER, np.uint8)
        self._at = _BUFFER
        self._reserves: OrderedDict[Hashable, _Reserve] = OrderedDict()

    def _rekey(self) -> None:
        fresh = self._seed_left <= 0
        seed = bytearray(_SEED_BYTES)
        if fresh:
            seed[:] = self._seed()
        else:
            self._encryptor.update_into(_ZEROS[:_SEED_BYTES], seed)
        try:
            self._encryptor = Cipher(algorithms.ChaCha20(builtins.bytes(seed[:32]), builtins.bytes(seed[32:])), None).encryptor()
        except UnsupportedAlgorithm:
            raise EntropyError("This build of OpenSSL has no ChaCha20: install one that has (the wheels of cryptography do).") from None
        seed[:] = bytearray(_SEED_BYTES)
        self._key_left = _KEY_LIFE
        if fresh:
            self._seed_left = _SEED_LIFE

    def _stream(self, out: NDArray[np.uint8]) -> None:
        """Write keystream over ``out``; the lock is held."""
        done, count = 0, len(out)
        zeros = memoryview(_ZEROS)
        while done < count:
            if self._key_left <= 0:
                self._rekey()
            step = min(count - done, len(_ZEROS), self._key_left)
            self._encryptor.update_into(zeros[:step], out[done : done + step])
            done += step
            self._key_left -= step
            self._seed_left -= step

    def _raw(self, count: int) -> NDArray[np.uint8]:
        out = np.empty(count, np.uint8)
        self.fill(out)
        return out

    def fill(self, out: NDArray[Any]) -> None:
        """Overwrite a contiguous array with uniform bits.

        A position moves on *before* what lies there is copied, so that an interrupt (Ctrl-C) at any point wastes bytes but never has
        them, or the zeros that replace them, handed out again.
        """
        if not out.flags.c_contiguous or out.dtype.hasobject:
            raise checks.refuse("out", out.dtype, "a contiguous array of numbers")
        raw = out.reshape(-1).view(np.uint8)
        count = len(raw)
        if os.getpid() != self._pid:
            self._forked()
        me = threading.get_ident()
        if self._owner == me and self._lock.locked():  # a signal handler or a finaliser, between two steps of this thread's own request
            self._aside().fill(out)
            return
        with self._lock:
            self._owner = me
            if count >= _LARGE:
                self._stream(raw)
                return
            at = self._at
            if at + count > _BUFFER:
                self._at = _BUFFER
                self._stream(self._buffer)
                at = 0
            self._at = at + count
            raw[:] = self._buffer[at : at + count]
            self._buffer[at : at + count] = 0

    def _aside(self) -> _Stream:
        """Another stream of the same kind."""
        raise NotImplementedError

    def _forked(self) -> None:
        """This is a child process of the one that made the stream."""
        self._reset()

    def bytes(self, count: int) -> builtins.bytes:
        """``count`` uniform bytes."""
        return self._raw(_counted(count)).tobytes()

    def bits(self, count: int) -> int:
        """A uniform integer in [0, 2**count)."""
        count = _counted(count)
        return int.from_bytes(self._raw((count + 7) >> 3).tobytes(), "little") >> (-count & 7)

    def below(self, bound: int) -> int:
        """A uniform integer in [0, bound), exactly: candidates of as many bits as bound - 1 has, until one is below."""
        if type(bound) is not int or bound < 1:
            bound = _bounded(bound)
        count = (bound - 1).bit_length()
        while True:
            candidate = self.bits(count)
            if candidate < bound:
                return candidate

    def uint8(self, count: int) -> NDArray[np.uint8]:
        """``count`` uniform 8-bit words, in an array that the caller may write to."""
        return self._raw(_counted(count))

    def uint16(self, count: int) -> NDArray[np.uint16]:
        """``count`` uniform 16-bit words, in an array that the caller may write to."""
        return self._raw(2 * _counted(count)).view(np.uint16)

    def uint32(self, count: int) -> NDArray[np.uint32]:
        """``count`` uniform 32-bit words, in an array that the caller may write to."""
        return self._raw(4 * _counted(count)).view(np.uint32)

    def uint64(self, count: int) -> NDArray[np.uint64]:
        """``count`` uniform 64-bit words, in an array that the caller may write to."""
        return self._raw(8 * _counted(count)).view(np.uint64)

    def take(self, law: Hashable, draw: Callable[[int], NDArray[Any]]) -> Any:  # noqa: ANN401 - int or float, as ``draw`` makes them
        """One draw of ``law``, made by ``draw(count)`` in batches that are used up one by one and wiped; interrupts as in ``fill``."""
        if os.getpid() != self._pid:
            self._forked()
        me = threading.get_ident()
        if self._taker == me and self._take_lock.locked():
            return draw(1).item(0)
        with self._take_lock:
            self._taker = me
            reserve = self._reserves.get(law)
            if reserve is None:
                reserve = _Reserve()
            else:
                self._reserves.move_to_end(law)
            at = reserve.at
            if at >= len(reserve.draws):
                self._refill(law, reserve, draw)
                at = 0
            reserve.at = at + 1
            value = reserve.draws.item(at)
            reserve.draws[at] = 0
            return value

    def _refill(self, law: Hashable, reserve: _Reserve, draw: Callable[[int], NDArray[Any]]) -> None:
        reserve.size = min(4 * reserve.size, _RESERVE_MAX)
        reserve.at = reserve.size
        reserve.draws = draw(reserve.size)
        self._reserves[law] = reserve
        if len(self._reserves) > _RESERVES_MAX:
            self._reserves.popitem(last=False)[1].wipe()

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise RefusedError(f"A {type(self).__name__} cannot be copied or pickled: the copy would draw the same noise. Make a new one.")


class SecureRng(_Stream):
    """Uniform bits that nobody can predict: ChaCha20 keyed by the operating system. Safe to share between threads and to fork.

    >>> rng = SecureRng()
    >>> rng.private, len(rng.bytes(16)), 0 <= rng.below(6) < 6
    (True, 16, True)
    """

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__()
        _SECURE.add(self)

    def _seed(self) -> builtins.bytes:
        return _entropy()

    def _aside(self) -> _Stream:
        return SecureRng()

    def __repr__(self) -> str:
        return "SecureRng()"


class UnsafeSeededRng(_Stream):
    """Bits that anyone who knows the seed can predict, for tests only: what it touches is released as ``NonPrivate()``.

    >>> UnsafeSeededRng(1).bytes(4) == UnsafeSeededRng(1).bytes(4), UnsafeSeededRng(1).private
    (True, False)
    """

    __slots__ = ("_counter", "_given")

    private = False

    def __init__(self, seed: int) -> None:
        self._given = checks.count("seed", seed, low=0, high=(1 << 256) - 1)
        self._counter = 0
        super().__init__()

    def _seed(self) -> builtins.bytes:
        label = f"dither UnsafeSeededRng {self._given} {self._counter} ".encode()
        self._counter += 1
        return sha256(label + b"key").digest() + sha256(label + b"nonce").digest()[:16]

    def _aside(self) -> _Stream:
        self._counter += 1
        return UnsafeSeededRng(int.from_bytes(sha256(f"{self._given} aside {self._counter}".encode()).digest()))

    def _forked(self) -> None:
        """Predictable before, predictable after: a child goes on where its parent was."""
        self._lock, self._take_lock = threading.Lock(), threading.Lock()
        self._pid = os.getpid()

    def __repr__(self) -> str:
        return f"UnsafeSeededRng({self._given})"


class _Foreign:
    """Any other implementation of ``core.rng.Rng``, with arrays made from its bytes and no reserve."""

    __slots__ = ("_rng", "below", "bits", "bytes")

    def __init__(self, rng: Rng) -> None:
        self._rng = rng
        self.bytes = rng.bytes
        self.bits = rng.bits
        self.below = rng.below

    @property
    def private(self) -> bool:
        return self._rng.private

    def _raw(self, count: int) -> NDArray[np.uint8]:
        return np.frombuffer(bytearray(self._rng.bytes(count)), np.uint8)

    def fill(self, out: NDArray[Any]) -> None:
        out.view(np.uint8)[:] = self._raw(out.nbytes)

    def uint8(self, count: int) -> NDArray[np.uint8]:
        return self._raw(count)

    def uint16(self, count: int) -> NDArray[np.uint16]:
        return self._raw(2 * count).view(np.uint16)

    def uint32(self, count: int) -> NDArray[np.uint32]:
        return self._raw(4 * count).view(np.uint32)

    def uint64(self, count: int) -> NDArray[np.uint64]:
        return self._raw(8 * count).view(np.uint64)

    def take(self, law: Hashable, draw: Callable[[int], NDArray[Any]]) -> Any:  # noqa: ANN401, ARG002 - the contract of ArrayRng
        return draw(1).item(0)


_SECURE: weakref.WeakSet[SecureRng] = weakref.WeakSet()


class _Local(threading.local):
    rng: SecureRng | None = None


_LOCAL = _Local()


def system_rng() -> SecureRng:
    """The secure source of the calling thread.

    >>> system_rng() is system_rng()
    True
    """
    rng = _LOCAL.rng
    if rng is None:
        rng = _LOCAL.rng = SecureRng()
    return rng


def array_rng(rng: Rng | None = None) -> ArrayRng:
    """The given source as one that fills arrays; the calling thread's secure source if none is given.

    >>> array_rng().uint16(3).shape
    (3,)
    """
    if rng is None:
        return system_rng()
    if isinstance(rng, _Stream | _Foreign):
        return rng
    if not (callable(getattr(rng, "bytes", None)) and callable(getattr(rng, "bits", None)) and hasattr(rng, "private")):
        raise checks.refuse("rng", rng, "None or a source of bits such as SecureRng()")
    return _Foreign(rng)


def _counted(count: object) -> int:
    if type(count) is int and 0 <= count <= _BYTES_MAX:
        return count
    return checks.count("count", count, low=0, high=_BYTES_MAX)


def _bounded(bound: object) -> int:
    if isinstance(bound, np.integer) and bound >= 1:
        return int(bound)
    raise checks.refuse("bound", bound, "a whole number > 0")


def _entropy() -> builtins.bytes:
    """Key and nonce from the operating system."""
    try:
        seed = os.urandom(_SEED_BYTES)
    except (OSError, NotImplementedError):
        raise EntropyError("The operating system gave no randomness, so no noise can be drawn and nothing released.") from None
    if len(seed) != _SEED_BYTES or len(set(seed)) < 8:
        raise EntropyError("The operating system's randomness is broken (it repeats itself), so no noise can be drawn.")
    return seed


def _after_fork() -> None:
    """Runs in the child: its streams start anew, whatever their locks were doing."""
    for rng in list(_SECURE):
        rng._reset()  # noqa: SLF001 - a function of the same module


os.register_at_fork(after_in_child=_after_fork)
