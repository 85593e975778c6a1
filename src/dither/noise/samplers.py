"""Exact samplers: biased coins, uniform integers, discrete and rounded continuous Laplace and Gaussian noise, floats on a grid.

All of them take ``size`` (None for one Python number, else a numpy array) and ``rng`` (None for the calling thread's secure source).
Each law is met to within a statistical distance of 2**-200 per draw (docs/proofs/samplers.md); coins and uniform integers exactly.

Float noise is an integer times a power of two, ``grid_step(scale)``. The integer has the *rounded continuous* law: the continuous noise,
rounded to the grid. For a value on the grid, value + noise is thus the continuous mechanism's output, rounded: post-processing, priced as
the continuous mechanism with no slack. ``add_noise`` moves values to the grid; ``snapped_sensitivity`` says what that costs.

No sampler sees a private value, so the time it takes (which depends on the draw) tells nothing about one. It may tell about the
noise: do not let those who see a release time its making. Scales and probabilities must be public: tables and reserves of draws
are kept under them, and making one takes time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from numbers import Rational, Real
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from dither.core import checks
from dither.core.rng import Rng
from dither.noise import _cells
from dither.noise._fixed import exp_bounds
from dither.noise._rounding import up
from dither.noise._values import VALUE_MAX, numbers
from dither.noise.rng import ArrayRng, array_rng

SCALE_MAX = 1 << 54
"""Largest scale of integer noise: every draw, up to 160 scales, is an int64."""
FLOAT_SCALE_MIN, FLOAT_SCALE_MAX = 2.0**-900, 2.0**1000
"""Scales of float noise: the grid is made of normal numbers and no sum overflows."""
_EXACT_MAX = 1 << 53
GRID_BITS = 40
SIZE_MAX = 1 << 40

_BLOCK = 1 << 17
_EXACT_UNIT, _ROUNDED_UNIT = 2.02 * 2.0**-53, 3.02 * 2.0**-53
_SLOP = 2.0**-50
_COIN_MARGIN = 2.0**-40
_EXPONENT_MIN = Fraction(1, 1 << 10_000)
_NOBODY = np.empty(0, np.intp)

Number = Fraction | float | int


# ---------------------------------------------------------------- coins and uniform integers


@overload
def bernoulli(p: Number, size: None = None, rng: Rng | None = None) -> bool: ...
@overload
def bernoulli(p: Number, size: int, rng: Rng | None = None) -> NDArray[np.bool_]: ...
def bernoulli(p: Number, size: int | None = None, rng: Rng | None = None) -> bool | NDArray[np.bool_]:
    """True with probability exactly ``p`` (a float is the dyadic rational that it is).

    >>> from fractions import Fraction
    >>> bernoulli(1), bernoulli(0.0), bernoulli(Fraction(1, 3), size=4).dtype
    (True, False, dtype('bool'))
    """
    source = array_rng(rng)
    exact = _rational("p", p, "a probability from 0 to 1")
    if not 0 <= exact <= 1:
        raise checks.refuse("p", p, "a probability from 0 to 1")
    numerator, denominator = exact.numerator, exact.denominator

    def digits(bits: int) -> int:
        return (numerator << bits) // denominator

    def ended(bits: int) -> bool:
        return (numerator << bits) % denominator == 0

    return _coins(digits, ended, size, source)


@overload
def bernoulli_exp(x: Number, size: None = None, rng: Rng | None = None) -> bool: ...
@overload
def bernoulli_exp(x: Number, size: int, rng: Rng | None = None) -> NDArray[np.bool_]: ...
def bernoulli_exp(x: Number, size: int | None = None, rng: Rng | None = None) -> bool | NDArray[np.bool_]:
    """True with probability exactly exp(-x), x ≥ 0.

    >>> bernoulli_exp(0), bernoulli_exp(0.5, size=3).shape
    (True, (3,))
    """
    source = array_rng(rng)
    exact = _rational("x", x, "a number ≥ 0")
    if exact < 0 or 0 < exact < _EXPONENT_MIN:
        raise checks.refuse("x", x, "a number ≥ 0", "Between 0 and 2**-10000 nothing is resolved: use 0." if exact > 0 else "")

    def digits(bits: int) -> int:
        more = 64
        while True:  # ends: exp(-x) is irrational unless x = 0, where both bounds are exact
            low, high = exp_bounds(exact, bits + more)
            if low >> more == high >> more:
                return low >> more
            more *= 2

    def ended(bits: int) -> bool:
        return exact == 0 and bits >= 0

    if size is None:
        drawn = source.bits(64)
        margin = math.ldexp(drawn, -64) - math.exp(-float(min(exact, Fraction(800))))
        return margin < 0 if abs(margin) > _COIN_MARGIN else _coin(digits, ended, source, drawn=drawn)
    return _coins(digits, ended, size, source)


def _coins(digits: Callable[[int], int], ended: Callable[[int], bool], size: int | None, rng: ArrayRng) -> bool | NDArray[np.bool_]:
    """Coins whose probability has the binary digits ``digits(bits)`` = floor(2**bits · p): compare uniform digits with them."""
    if size is None:
        return _coin(digits, ended, rng)
    out = np.empty(_size(size), np.bool_)
    head = digits(16)
    exact = ended(16)
    for start in range(0, len(out), _BLOCK):
        words = rng.uint16(min(_BLOCK, len(out) - start)).astype(np.int32)
        block = out[start : start + len(words)]
        np.less(words, head, out=block)
        if not exact:
            ties = np.flatnonzero(words == head)
            if len(ties):
                block[ties] = _tied_coins(digits, ended, len(ties), rng)
    return out


def _tied_coins(digits: Callable[[int], int], ended: Callable[[int], bool], count: int, rng: ArrayRng) -> NDArray[np.bool_]:
    """Coins whose first 16 digits are those of p: 64 more, then as many as it takes."""
    head = digits(80) & ((1 << 64) - 1)
    words = rng.uint64(count)
    out = words < np.uint64(head)
    if not ended(80):
        for i in np.flatnonzero(words == np.uint64(head)):
            out[i] = _coin(digits, ended, rng, given=80)
    return out


def _coin(digits: Callable[[int], int], ended: Callable[[int], bool], rng: ArrayRng, *, given: int = 0, drawn: int | None = None) -> bool:
    """One coin whose first ``given`` digits are those of p; ``drawn`` holds the next 64 if they are drawn already."""
    while True:
        given += 64
        word = rng.bits(64) if drawn is None else drawn
        drawn = None
        head = digits(given)
        due = head if given == 64 else head & ((1 << 64) - 1)
        if word != due:
            return word < due
        if ended(given):
            return False


@overload
def uniform_below(bound: int, size: None = None, rng: Rng | None = None) -> int: ...
@overload
def uniform_below(bound: int, size: int, rng: Rng | None = None) -> NDArray[np.int64]: ...
def uniform_below(bound: int, size: int | None = None, rng: Rng | None = None) -> int | NDArray[np.int64]:
    """Integers uniform in [0, bound), exactly; an array needs bound ≤ 2**63.

    >>> 0 <= uniform_below(6) < 6, uniform_below(10**12, size=2).dtype
    (True, dtype('int64'))
    """
    source = array_rng(rng)
    if size is None:
        return source.below(bound)
    bound = checks.count("bound", bound, high=1 << 63)
    out = np.empty(_size(size), np.int64)
    draw = _below_small if bound <= 1 << 32 else _below_large
    for start in range(0, len(out), _cells.CHUNK):
        block = out[start : start + _cells.CHUNK]
        refused = draw(bound, block.view(np.uint64), source)
        while len(refused):
            again = np.empty(len(refused), np.uint64)
            still = draw(bound, again, source)
            block[refused] = again
            refused = refused[still]
    return out


def _below_small(bound: int, out: NDArray[np.uint64], rng: ArrayRng) -> NDArray[np.intp]:
    """High half of bound · word: uniform once words with one of the 2**32 mod bound smallest low halves are refused (Lemire 2019)."""
    np.multiply(rng.uint32(len(out)), np.uint64(bound), out=out)
    refused = np.flatnonzero((out & np.uint64(0xFFFFFFFF)) < np.uint64((1 << 32) % bound)) if bound & (bound - 1) else _NOBODY
    np.right_shift(out, np.uint64(32), out=out)
    return refused


def _below_large(bound: int, out: NDArray[np.uint64], rng: ArrayRng) -> NDArray[np.intp]:
    """As many bits as bound - 1 has, refused from bound on."""
    rng.fill(out)
    np.right_shift(out, np.uint64(64 - (bound - 1).bit_length()), out=out)
    return np.flatnonzero(out >= np.uint64(bound))


# ---------------------------------------------------------------- integer noise


@overload
def discrete_laplace(scale: Number, size: None = None, rng: Rng | None = None) -> int: ...
@overload
def discrete_laplace(scale: Number, size: int, rng: Rng | None = None) -> NDArray[np.int64]: ...
def discrete_laplace(scale: Number, size: int | None = None, rng: Rng | None = None) -> int | NDArray[np.int64]:
    """Integers with P(k) ∝ exp(-|k|/scale) (the two-sided geometric law).

    >>> type(discrete_laplace(2.5)), discrete_laplace(3, size=5).shape
    (<class 'int'>, (5,))
    """
    return _integers("laplace", scale, size, rng)


@overload
def discrete_gaussian(std: Number, size: None = None, rng: Rng | None = None) -> int: ...
@overload
def discrete_gaussian(std: Number, size: int, rng: Rng | None = None) -> NDArray[np.int64]: ...
def discrete_gaussian(std: Number, size: int | None = None, rng: Rng | None = None) -> int | NDArray[np.int64]:
    """Integers with P(k) ∝ exp(-k²/(2·std²)).

    >>> type(discrete_gaussian(2.5)), discrete_gaussian(10**6, size=5).shape
    (<class 'int'>, (5,))
    """
    return _integers("gaussian", std, size, rng)


@overload
def rounded_laplace(scale: Number, size: None = None, rng: Rng | None = None) -> int: ...
@overload
def rounded_laplace(scale: Number, size: int, rng: Rng | None = None) -> NDArray[np.int64]: ...
def rounded_laplace(scale: Number, size: int | None = None, rng: Rng | None = None) -> int | NDArray[np.int64]:
    """Continuous Laplace noise rounded to the nearest integer: P(k) is the mass of [k - ½, k + ½].

    >>> type(rounded_laplace(2.5)), rounded_laplace(2**50, size=5).shape
    (<class 'int'>, (5,))
    """
    return _rounded("laplace", scale, size, rng)


@overload
def rounded_gaussian(std: Number, size: None = None, rng: Rng | None = None) -> int: ...
@overload
def rounded_gaussian(std: Number, size: int, rng: Rng | None = None) -> NDArray[np.int64]: ...
def rounded_gaussian(std: Number, size: int | None = None, rng: Rng | None = None) -> int | NDArray[np.int64]:
    """Continuous Gaussian noise rounded to the nearest integer: P(k) is the mass of [k - ½, k + ½].

    >>> type(rounded_gaussian(2.5)), rounded_gaussian(0.001, size=5).tolist()
    (<class 'int'>, [0, 0, 0, 0, 0])
    """
    return _rounded("gaussian", std, size, rng)


def _integers(law: _cells.Law, scale: Number, size: int | None, rng: Rng | None) -> int | NDArray[np.int64]:
    source = array_rng(rng)

    def draw(count: int) -> NDArray[np.int64]:
        exact = _scale(law, scale)
        out = np.empty(count, np.int64)
        single = _cells.single_integers(law, exact)
        wide = _cells.wide_integers(law, exact) if single is None else None
        for start in range(0, count, _BLOCK):
            block = out[start : start + _BLOCK]
            if single is not None:
                _cells.draw_single(single, source, block)
            elif wide is not None:
                _cells.draw_wide(wide, source, block)
        return out

    if size is not None:
        return draw(_size(size))
    value: int = source.take(_key(law, "integers", scale), draw)
    return value


def _rounded(law: _cells.Law, scale: Number, size: int | None, rng: Rng | None) -> int | NDArray[np.int64]:
    source = array_rng(rng)

    def draw(count: int) -> NDArray[np.int64]:
        exact = _scale(law, scale)
        out = np.empty(count, np.int64)
        for start in range(0, count, _BLOCK):
            _round_into(out[start : start + _BLOCK], None, law, exact, source)
        return out

    if size is not None:
        return draw(_size(size))
    value: int = source.take(_key(law, "rounded", scale), draw)
    return value


def _round_into(out: NDArray[Any], step: float | None, law: _cells.Law, scale: Fraction, rng: ArrayRng) -> None:
    """Fill ``out`` with draws of the continuous law of scale 1, times ``scale``, rounded to integers; times ``step`` if given."""
    cells = _cells.unit_law(law)
    places = np.empty(len(out), np.int64)
    known = _cells.draw_places(cells, rng, places)
    factor = scale * cells.guide.width / (1 << _cells.OFFSET_BITS)
    unit = float(factor)
    error = _EXACT_UNIT if Fraction(unit) == factor else _ROUNDED_UNIT
    limit = 0.5 - 1.001 * unit - _SLOP
    space = np.empty((2, min(len(out), _cells.CHUNK)))
    doubtful: list[int] = []
    for start in range(0, len(out), _cells.CHUNK):
        chunk = out[start : start + _cells.CHUNK]
        t, near = space[0, : len(chunk)], space[1, : len(chunk)]
        with np.errstate(under="ignore"):  # at the smallest scales every draw rounds to 0
            np.multiply(places[start : start + len(chunk)], unit, out=t)
        np.rint(t, out=near)
        if step is None:
            chunk[:] = near
        else:
            np.multiply(near, step, out=chunk)
            chunk += 0.0  # no negative zero
        np.subtract(t, near, out=near)
        np.abs(near, out=near)
        np.abs(t, out=t)
        with np.errstate(under="ignore"):
            t *= error
        t += near
        doubtful += (np.flatnonzero(t >= limit) + start).tolist()
    for i in sorted({*doubtful, *known}):
        place, bits = known.get(i) or (int(places[i]), _cells.OFFSET_BITS)
        value = _round_exactly(factor, place, bits - _cells.OFFSET_BITS, rng)
        out[i] = value if step is None else value * step
    places.fill(0)
    space.fill(0)


def _round_exactly(factor: Fraction, place: int, bits: int, rng: ArrayRng) -> int:
    """Round factor·Z, Z uniform in [place, place + 1)·2**-bits, with as many more bits of Z as it takes."""
    numerator, denominator = factor.numerator << 1, factor.denominator
    while True:
        middle = denominator << bits
        low = numerator * place + middle
        high = (low + numerator - 1) // (2 * middle)  # of the open end
        low //= 2 * middle
        if low == high:
            return low
        place, bits = (place << 64) | rng.bits(64), bits + 64


# ---------------------------------------------------------------- float noise on a grid


def grid_step(scale: float) -> float:
    """The grid of float noise: the power of two g with 2**40 ≤ scale/g < 2**41.

    >>> grid_step(1.0) == 2.0**-40, grid_step(1.99) == 2.0**-40, grid_step(2.0) == 2.0**-39
    (True, True, True)
    """
    return math.ldexp(1.0, math.frexp(_float_scale("scale", scale))[1] - 1 - GRID_BITS)


@overload
def laplace(scale: float, size: None = None, rng: Rng | None = None) -> float: ...
@overload
def laplace(scale: float, size: int, rng: Rng | None = None) -> NDArray[np.float64]: ...
def laplace(scale: float, size: int | None = None, rng: Rng | None = None) -> float | NDArray[np.float64]:
    """Laplace noise rounded to multiples of ``grid_step(scale)``, each with fewer than 53 bits.

    >>> x = laplace(3.0)
    >>> (x / grid_step(3.0)).is_integer(), laplace(0.1, size=2).dtype
    (True, dtype('float64'))
    """
    return _floats("laplace", "scale", scale, size, rng)


@overload
def gaussian(std: float, size: None = None, rng: Rng | None = None) -> float: ...
@overload
def gaussian(std: float, size: int, rng: Rng | None = None) -> NDArray[np.float64]: ...
def gaussian(std: float, size: int | None = None, rng: Rng | None = None) -> float | NDArray[np.float64]:
    """Gaussian noise rounded to multiples of ``grid_step(std)``, each with fewer than 53 bits.

    >>> x = gaussian(3.0)
    >>> (x / grid_step(3.0)).is_integer(), gaussian(0.1, size=2).dtype
    (True, dtype('float64'))
    """
    return _floats("gaussian", "std", std, size, rng)


def _floats(law: _cells.Law, name: str, scale: float, size: int | None, rng: Rng | None) -> float | NDArray[np.float64]:
    source = array_rng(rng)

    def draw(count: int) -> NDArray[np.float64]:
        number = _float_scale(name, scale)
        step = grid_step(number)
        exact = Fraction(number / step)
        out = np.empty(count, np.float64)
        for start in range(0, count, _BLOCK):
            _round_into(out[start : start + _BLOCK], step, law, exact, source)
        return out

    if size is not None:
        return draw(_size(size))
    value: float = source.take(_key(law, "floats", scale), draw)
    return value


@overload
def snap(values: float, step: float) -> float: ...
@overload
def snap(values: NDArray[Any], step: float) -> NDArray[np.float64]: ...
def snap(values: float | NDArray[Any], step: float) -> float | NDArray[np.float64]:
    """Each value moved to the nearest multiple of ``step`` (a power of two), ties to the even one; exact, and never -0.0.

    No value is refused, as that would tell it: NaN counts as 0, ±∞ and what is larger than 2⁹⁶⁰ as ±2⁹⁶⁰, integers are
    held within ±2⁵³ (larger ones would be rounded to floats unseen).

    >>> snap(0.3, 0.25), snap(0.375, 0.25), snap(-0.1, 0.25), snap(1e280, 0.25), snap(float("nan"), 0.25)
    (0.25, 0.5, 0.0, 1e+280, 0.0)
    """
    step = _step(step)
    moved = _snapped(_values(values), step)
    return moved if moved.ndim else float(moved)


def _snapped(values: NDArray[np.float64], step: float) -> NDArray[np.float64]:
    on_grid = np.abs(values) >= 2.0**52 * step  # such floats are multiples of step already
    with np.errstate(under="ignore"):  # what underflows is far below half a step
        units = np.where(on_grid, 0.0, values) / step
    return np.where(on_grid, values, np.rint(units) * step) + 0.0


@overload
def add_noise(values: float, noise: float, step: float) -> float: ...
@overload
def add_noise(values: NDArray[Any], noise: NDArray[np.float64], step: float) -> NDArray[np.float64]: ...
def add_noise(values: float | NDArray[Any], noise: float | NDArray[np.float64], step: float) -> float | NDArray[np.float64]:
    """``values`` moved to the grid (by ``snap``) plus ``noise`` (multiples of ``step``, of the same shape), rounded once.

    Both summands are multiples of ``step``, so the result is a function of their exact sum: post-processing of the continuous
    mechanism on the moved values, whose sensitivity is ``snapped_sensitivity``.

    >>> add_noise(1.0, laplace(1.0), grid_step(1.0)) % grid_step(1.0)
    0.0
    """
    step = _step(step)
    moved = _snapped(_values(values), step)
    if np.shape(noise) != moved.shape:
        raise checks.refuse("noise", type(noise), "one number of noise for every value", "Draw it with the size of the values.")
    if not bool(np.all(_snapped(np.asarray(noise, np.float64), step) == noise)):
        raise checks.refuse("noise", type(noise), "multiples of step", "Draw it at the scale that step was made for.")
    total: NDArray[np.float64] = moved + noise
    return total if moved.ndim else float(total)


def snapped_sensitivity(sensitivity: float, step: float, dimension: int = 1, norm: float = 1) -> float:
    """The sensitivity after ``snap``, rounded up; ``norm`` is 1, 2 or math.inf.

    Each coordinate moves by at most step/2, so a difference of two moves by at most step: the L1 norm grows by at most
    step·dimension, the L2 norm by step·√dimension, the L∞ norm by step.

    >>> snapped_sensitivity(1.0, 2.0**-40) == 1.0 + 2.0**-40
    True
    >>> snapped_sensitivity(1.0, 2.0**-40, dimension=100, norm=2) == 1.0 + 10 * 2.0**-40
    True
    """
    size = Fraction(checks.positive("sensitivity", sensitivity, high=VALUE_MAX))
    grid = Fraction(_step(step))
    count = checks.count("dimension", dimension)
    if norm == 1:
        growth = grid * count
    elif norm == 2:
        growth = grid * Fraction(math.isqrt((count << 128) - 1) + 1, 1 << 64)  # √count, rounded up
    elif norm == math.inf:
        growth = grid
    else:
        raise checks.refuse("norm", norm, "1, 2 or math.inf")
    return up(size + growth)


# ---------------------------------------------------------------- arguments


def _size(size: object) -> int:
    return checks.count("size", size, low=0, high=SIZE_MAX)


def _rational(name: str, value: object, expected: str) -> Fraction:
    """The exact value of an int, a float or a Fraction."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise checks.refuse(name, value, expected)
    if isinstance(value, Rational):
        return Fraction(int(value.numerator), int(value.denominator))
    number = float(value)
    if not math.isfinite(number):
        raise checks.refuse(name, value, expected)
    return Fraction(number)


def _scale(law: _cells.Law, value: Number) -> Fraction:
    name = "scale" if law == "laplace" else "std"
    expected = f"a number > 0 and at most 2**{SCALE_MAX.bit_length() - 1}"
    exact = _rational(name, value, expected)
    if not exact > 0:
        raise checks.refuse(name, value, expected)
    if exact > SCALE_MAX:
        raise checks.refuse(name, value, expected, "Draws of a larger scale do not fit 64-bit integers: use a coarser unit.")
    return exact


def _float_scale(name: str, value: object) -> float:
    number = checks.positive(name, value)
    if not FLOAT_SCALE_MIN <= number <= FLOAT_SCALE_MAX:
        raise checks.refuse(name, value, "a number from 2**-900 to 2**1000")
    return number


def _step(value: object) -> float:
    number = checks.positive("step", value)
    if math.frexp(number)[0] != 0.5:
        raise checks.refuse("step", value, "a power of two", "Make it with grid_step(scale).")
    return number


def _values(values: object) -> NDArray[np.float64]:
    """Private values as float64, by the rules of ``_values.numbers``: only their type and shape can be refused."""
    found, _ = numbers(values)
    return np.asarray(np.clip(found, -_EXACT_MAX, _EXACT_MAX) if found.dtype.kind == "i" else found, np.float64)


def _key(law: _cells.Law, kind: str, scale: object) -> tuple[object, ...]:
    """The name of a reserve of draws; the scale is checked when the reserve is filled, here only that it can be part of a name."""
    if type(scale) is not float and not isinstance(scale, Real):
        raise checks.refuse("scale" if law == "laplace" else "std", scale, "a number > 0")
    return law, kind, type(scale), scale
