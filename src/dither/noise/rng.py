"""Uniform bits: the secure keystream that noise is made of, and a predictable one for tests, named for what it is.

The stream is ChaCha20. Its key comes from the operating system, is replaced by the stream's own output whenever some is
written (so that a stolen state does not betray older noise) and from the operating system again every GiB. A child
process never continues the stream of its parent: it starts from a state of its own, with nothing in it.
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
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms
from numpy.typing import NDArray

from dither.core import checks
from dither.core.errors import EntropyError, RefusedError
from dither.core.rng import Rng

_KEY_BYTES = 32
_NONCE = bytes(16)  # no key is used twice, so they all start at block 0: from a random one, the 32-bit block number may run over
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


class _State:
    """What one process has of a stream. A child of that process makes another, whole and empty, so none is ever half-changed."""

    __slots__ = ("at", "buffer", "key", "lock", "owner", "pid", "reserves", "seed_left", "take_lock", "taker")

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.lock, self.take_lock = threading.Lock(), threading.Lock()
        self.owner = self.taker = 0
        self.key = bytearray(_KEY_BYTES)
        self.seed_left = 0
        self.buffer = np.zeros(_BUFFER, np.uint8)
        self.at = _BUFFER
        self.reserves: OrderedDict[Hashable, _Reserve] = OrderedDict()


class _Stream:
    """A ChaCha20 keystream, buffered; the two public classes differ in where its keys come from."""

    __slots__ = ("__weakref__", "_state")

    private = True

    def __init__(self) -> None:
        self._state = _State()
        _STREAMS.add(self)

    def _seed(self) -> builtins.bytes:
        """A new key from outside the stream."""
        raise NotImplementedError

    def _aside(self) -> _Stream:
        """Another stream of the same kind."""
        raise NotImplementedError

    def _own(self) -> _State:
        """The state of this process: a new one in a child whose birth nobody told of."""
        state = self._state
        if state.pid != os.getpid():
            state = self._state = _State()
        return state

    def _cipher(self, state: _State) -> CipherContext:
        """A cipher under the kept key; the first of its output is the next key, so none is used twice or outlives its use."""
        if state.seed_left <= 0:
            state.key[:] = self._seed()
            state.seed_left = _SEED_LIFE
        try:
            cipher = Cipher(algorithms.ChaCha20(state.key, _NONCE), None).encryptor()
        except UnsupportedAlgorithm:
            raise EntropyError("This build of OpenSSL has no ChaCha20: install one that has (the wheels of cryptography do).") from None
        cipher.update_into(_ZEROS[:_KEY_BYTES], state.key)
        return cipher

    def _write(self, state: _State, out: NDArray[np.uint8]) -> None:
        """Write keystream over ``out``; the lock is held."""
        zeros, room = memoryview(_ZEROS), out.data
        for start in range(0, len(room), _KEY_LIFE):
            piece = room[start : start + _KEY_LIFE]
            cipher = self._cipher(state)
            state.seed_left -= len(piece)
            for at in range(0, len(piece), len(zeros)):
                part = piece[at : at + len(zeros)]
                cipher.update_into(zeros[: len(part)], part)

    def _raw(self, count: int) -> NDArray[np.uint8]:
        out = np.empty(count, np.uint8)
        self.fill(out)
        return out

    def fill(self, out: NDArray[Any]) -> None:
        """Overwrite a contiguous array with uniform bits.

        A position moves on *before* what lies there is copied, so that an interrupt (Ctrl-C) at any point wastes bytes but never has
        them, or the zeros that replace them, handed out again. A child that is born in the middle asks its own state once more.
        """
        if not (out.flags.c_contiguous and out.flags.writeable) or out.dtype.hasobject:
            raise checks.refuse("out", out.dtype, "a contiguous array of numbers that may be written to")
        raw = out.reshape(-1).view(np.uint8)
        me = threading.get_ident()
        while True:
            state = self._own()
            if state.owner == me and state.lock.locked():  # a signal handler or a finaliser, between two steps of this thread's own request
                self._aside().fill(raw)
                return
            with state.lock:
                state.owner = me
                self._serve(state, raw)
            if state.pid == os.getpid():
                return

    def _serve(self, state: _State, raw: NDArray[np.uint8]) -> None:
        count = len(raw)
        if count >= _LARGE:
            self._write(state, raw)
            return
        at = state.at
        if at + count > _BUFFER:
            state.at = _BUFFER
            self._write(state, state.buffer)
            at = 0
        state.at = at + count
        raw[:] = state.buffer[at : at + count]
        state.buffer[at : at + count] = 0

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
        """One draw of ``law``, made by ``draw(count)`` in batches that are used up one by one and wiped; interrupted as ``fill`` is."""
        me = threading.get_ident()
        while True:
            state = self._own()
            if state.taker == me and state.take_lock.locked():
                return draw(1).item(0)
            with state.take_lock:
                state.taker = me
                value = _next(state.reserves, law, draw)
            if state.pid == os.getpid():
                return value

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise RefusedError(f"A {type(self).__name__} cannot be copied or pickled: the copy would draw the same noise. Make a new one.")


class SecureRng(_Stream):
    """Uniform bits that nobody can predict: ChaCha20 keyed by the operating system. Safe to share between threads and to fork.

    >>> rng = SecureRng()
    >>> rng.private, len(rng.bytes(16)), 0 <= rng.below(6) < 6
    (True, 16, True)
    """

    __slots__ = ()

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
        self._counter += 1
        return sha256(f"dither UnsafeSeededRng {self._given} {self._counter}".encode()).digest()

    def _aside(self) -> _Stream:
        return UnsafeSeededRng(int.from_bytes(self._seed()))

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
        return self._rng.private is True  # whatever else it says is no promise

    def _raw(self, count: int) -> NDArray[np.uint8]:
        given = bytearray(self._rng.bytes(count))
        if len(given) != count:  # one byte for many would be used for all of them
            raise EntropyError(f"The given source of bits returned {len(given)} bytes where {count} were asked for.")
        return np.frombuffer(given, np.uint8)

    def fill(self, out: NDArray[Any]) -> None:
        out.reshape(-1).view(np.uint8)[:] = self._raw(out.nbytes)

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


_STREAMS: weakref.WeakSet[_Stream] = weakref.WeakSet()


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


def _next(reserves: OrderedDict[Hashable, _Reserve], law: Hashable, draw: Callable[[int], NDArray[Any]]) -> Any:  # noqa: ANN401 - as ``take``
    """The next draw of the law's reserve, which is filled first if it is used up; the lock is held."""
    reserve = reserves.get(law)
    if reserve is None:
        reserve = _Reserve()
    else:
        reserves.move_to_end(law)
    at = reserve.at
    if at >= len(reserve.draws):
        reserve.size = min(4 * reserve.size, _RESERVE_MAX)
        reserve.at = reserve.size
        reserve.draws = draw(reserve.size)
        reserves[law] = reserve
        if len(reserves) > _RESERVES_MAX:
            reserves.popitem(last=False)[1].wipe()
        at = 0
    reserve.at = at + 1
    value = reserve.draws.item(at)
    reserve.draws[at] = 0
    return value


def _counted(count: object) -> int:
    if type(count) is int and 0 <= count <= _BYTES_MAX:
        return count
    return checks.count("count", count, low=0, high=_BYTES_MAX)


def _bounded(bound: object) -> int:
    if isinstance(bound, np.integer) and bound >= 1:
        return int(bound)
    raise checks.refuse("bound", bound, "a whole number > 0")


def _entropy() -> builtins.bytes:
    """A key from the operating system."""
    try:
        seed = os.urandom(_KEY_BYTES)
    except (OSError, NotImplementedError):
        raise EntropyError("The operating system gave no randomness, so no noise can be drawn and nothing released.") from None
    if len(seed) != _KEY_BYTES or len(set(seed)) < 8:
        raise EntropyError("The operating system's randomness is broken (it repeats itself), so no noise can be drawn.")
    return seed


def _after_fork() -> None:
    """Runs in the child: its streams start anew, whatever their locks were doing."""
    for rng in list(_STREAMS):
        rng._state = _State()  # noqa: SLF001 - a function of the same module


os.register_at_fork(after_in_child=_after_fork)
