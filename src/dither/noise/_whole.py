"""What the two counters of ``stream`` share: exact whole numbers on a grid, noise in order, and whose turn it is."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable
from typing import NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dither.core import checks
from dither.core.errors import InputError, OverBudgetError, RefusedError
from dither.core.rng import Rng
from dither.noise import samplers
from dither.noise._rounding import exactly, up
from dither.noise._values import numbers
from dither.noise.rng import array_rng

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]

_GRID_BITS = 20  # the grid is 2⁻²⁰ of the sensitivity (of its share of one coordinate): rounding costs 1e-6 of the noise
_NOISE_BITS = 52  # a noise scale is at most 2⁵² steps (of 2⁵⁴ that the samplers allow): draws stay below 2⁶²
_VALUE_BITS = 61  # |one coordinate of one step| is cut at 2⁶¹ grid steps
_LIMB = 32
_LOW = (1 << _LIMB) - 1


def power_below(number: float) -> float:
    """The largest power of two that is at most ``number``."""
    return math.ldexp(1.0, math.frexp(number)[1] - 1)


def checked_sensitivity(value: object) -> float:
    """A sensitivity as a float that is not below what was given."""
    checks.between("sensitivity", value, 1e-100, 1e100)
    return up(exactly(value))


def value_step(sensitivity: float, multiplier: float, spread: float, unit: float) -> float:
    """A power-of-two step for the values, fine beside the sensitivity, not too fine beside the noise in ``unit`` steps.

    ``spread`` is the norm of the vector of ones: rounding costs at most spread · step of sensitivity.
    """
    fine = math.ldexp(sensitivity / spread, -_GRID_BITS)
    coarse = math.ldexp(sensitivity * multiplier, -_NOISE_BITS) / unit
    return power_below(max(fine, 2.0 * coarse))


def fits(multiplier: float, scale: float) -> None:
    """Refuse noise that no sampler of 64-bit integers can draw (scale in steps of the finest grid)."""
    if not scale <= samplers.SCALE_MAX:
        raise checks.refuse("noise_multiplier", multiplier, "a smaller one: noise on this grid would not fit 64-bit integers")


def whole(found: Floats | Integers, step: float) -> Integers:
    """Numbers as whole numbers of grid steps, cut to the public range of the grid; each moves by at most half a step."""
    limit = 1 << _VALUE_BITS
    if found.dtype.kind != "i":
        with np.errstate(under="ignore"):  # what underflows is far below half a step, and is not told of
            near: Floats = np.rint(np.clip(found, -limit * step, limit * step) / step)
        return near.astype(np.int64).reshape(-1)
    exact = found.astype(np.int64).reshape(-1)
    places = math.frexp(step)[1] - 1  # whole numbers are scaled as such: past 2⁵³ a float of one would be rounded
    if places <= 0:
        shift = min(-places, _VALUE_BITS)
        return np.clip(exact, -(limit >> shift), limit >> shift) << shift
    shift = min(places, _VALUE_BITS + 2)  # from there on all are nearest to 0
    return (np.clip(exact, -limit, limit) + (1 << (shift - 1))) >> shift


def one_step(value: object, dimension: int | None) -> Floats | Integers:
    """The numbers of one step. Their shape is public and checked; what they are is not, and never raises."""
    found, _ = numbers(value)
    shape = () if dimension is None else (dimension,)
    if found.shape != shape:
        raise InputError(
            f"A step of shape {found.shape} is not allowed: expected {shape}, {'one number' if dimension is None else 'a vector'}."
        )
    return found


def all_steps(values: object, steps: int, dimension: int | None) -> Floats | Integers:
    """A whole stream at once: one row for each step, not more than ``steps`` of them."""
    found, _ = numbers(values)
    shape = () if dimension is None else (dimension,)
    if found.ndim != 1 + len(shape) or found.shape[1:] != shape or not 1 <= len(found) <= steps:
        raise InputError(f"A stream of shape {found.shape} is not allowed: expected {('steps', *shape)} with 1 to steps={steps} of them.")
    return found


def split(exact: NDArray[np.int64]) -> Integers:
    """Whole numbers as (high, low): high · 2³² + low with 0 ≤ low < 2³², so that sums of many cannot overflow."""
    return np.stack((exact >> _LIMB, exact & _LOW))


def told(exact: Integers, noise: NDArray[np.int64]) -> Floats:
    """Floats of exact + noise, through its one canonical (high, low): a function of the noisy whole number only."""
    low = exact[1] + noise
    high = exact[0] + (low >> _LIMB)
    floats: Floats = np.ldexp(high.astype(np.float64), _LIMB) + (low & _LOW).astype(np.float64)
    return floats


def same_process(what: str, process: int) -> None:
    """Refuse to go on in a fork of the process that opened the stream: the parent goes on too, and only one was paid for."""
    if os.getpid() != process:
        raise RefusedError(f"This {what} was opened in another process: both could go on. Open a new one, and pay for it.")


class Turn:
    """The right to take the next step of one stream: counted, locked, never copied, never carried into a fork.

    A second copy of a half-run stream would add fresh noise to nodes already told, which nobody has paid for.
    """

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.taken = 0
        self.open = True
        self._lock = threading.Lock()
        self._process = os.getpid()

    def __enter__(self) -> None:
        same_process("stream", self._process)  # before the lock, which a thread that is not in the child may hold for ever
        self._lock.acquire()
        try:
            if not self.open or self.taken >= self.steps:
                raise OverBudgetError(f"This stream has ended: expected at most {self.steps} steps. Open a new one, and pay for it.")
        except BaseException:
            self._lock.release()
            raise

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and not issubclass(kind, InputError):  # an interrupt, half-way: what it left undone would never be right
            self.open = False
        self._lock.release()


def no_copy(stream: object, _: object = None) -> NoReturn:
    """What ``copy``, ``deepcopy`` and ``pickle`` find."""
    raise RefusedError(
        f"A running {type(stream).__name__} cannot be copied: the copy would add noise twice. Open a new one, and pay for it."
    )


class Buffer:
    """Independent draws of one law, made many at a time and handed out in order."""

    def __init__(self, draw: Callable[[Rng, int], NDArray[np.int64]], dimension: int, rng: Rng | None) -> None:
        self._draw = draw
        self._dimension = dimension
        self._rng = rng
        self._rows = max(1, min(1024, (1 << 16) // dimension))
        self._ready: NDArray[np.int64] = np.empty((0, dimension), np.int64)
        self._at = 0

    def next(self) -> NDArray[np.int64]:
        """One draw for every coordinate."""
        if self._at == len(self._ready):
            self._ready = (
                self._draw(array_rng(self._rng), self._rows * self._dimension).astype(np.int64).reshape(self._rows, self._dimension)
            )
            self._at = 0
        at = self._at
        self._at = at + 1  # before the row becomes zeros: an interrupt (Ctrl-C) may waste draws, but no later step gets the zeros
        drawn: Integers = self._ready[at].copy()
        self._ready[at] = 0
        return drawn
