"""Symmetric unimodal laws on the integers, drawn from tables: no float ever decides a draw that it could decide wrongly.

Support is cut into cells [i·w, (i+1)·w), i ≥ 0, and their mirror images. Sixteen random bits and a guide table settle the cell of most
draws; the others take 48 more bits and, on a tie with a threshold, 192 more. The place in the cell is uniform and is accepted
with probability f(place)/f(inner edge): at once if a random number is below what holds in every cell of the guide; else by a float64
interval; else by integer arithmetic as precise as it takes. Proof: docs/proofs/samplers.md.
"""

from __future__ import annotations

import math
import sys
from bisect import bisect_right
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dither.noise._fixed import exp_bounds, gaussian_weights, laplace_weights
from dither.noise.rng import ArrayRng

Law = Literal["laplace", "gaussian"]
Ints = NDArray[np.int64]

REACH: dict[Law, int] = {"laplace": 160, "gaussian": 18}
"""Support ends at this many scales; less than 2**-229 of the mass lies beyond."""
OFFSET_BITS = 48
FLOAT_MARGIN = 2.0**-36
"""Far above any error of a float64 acceptance probability; what lies nearer is settled by integers."""
_NONE = np.int16(-32768)
_GUIDE_BITS = 16
_HALF = 1 << (_GUIDE_BITS - 1)
_THRESHOLD_BITS = 63
_TIE_BITS = 192
CHUNK = 1 << 15  # what the quick steps work on at a time, to stay in the cache
_SINGLE_CHUNK = 1 << 16
_CELLS_MAX = 32_767
_TOP = 3 if sys.byteorder == "little" else 0
_LOW = np.int64((1 << OFFSET_BITS) - 1)
_SQUEEZE_REACH: dict[Law, float] = {"laplace": 10.0, "gaussian": 3.5}


@dataclass(frozen=True, slots=True, eq=False)
class Guide:
    """Index i with probability proportional to weight i, and a fair sign; everything but ties is in these two arrays."""

    law: Law
    width: Fraction  # of a cell, in scales
    zero_shared: bool  # index 0 is the same outcome for both signs (a table of single integers), so it weighs half
    guide: NDArray[np.int16]  # by 16 bits: the signed outcome, or _NONE
    thresholds: NDArray[np.uint64]


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """A law whose cells hold many places."""

    guide: Guide
    squeeze: np.uint16  # of 65536 acceptance numbers, those below it are good in every cell of the guide table
    place_bits: int | None  # a cell holds 2**place_bits integers; None for a continuous law


@lru_cache(maxsize=64)
def single_integers(law: Law, scale: Fraction) -> Guide | None:
    """The law P(k) ∝ f(k/scale) as a table with one entry for each integer; None if that would be too long."""
    limit = 512 if law == "gaussian" else _CELLS_MAX // REACH[law]
    return _guide(law, 1 / scale, zero_shared=True, last=_CELLS_MAX) if scale <= limit else None


@lru_cache(maxsize=64)
def wide_integers(law: Law, scale: Fraction) -> Cells:
    """The law P(k) ∝ f(k/scale) in cells of 2**place_bits integers."""
    place_bits = math.floor(scale).bit_length() - (7 if law == "laplace" else 8)
    return _cells(law, (1 << place_bits) / scale, place_bits)


@lru_cache(maxsize=2)
def unit_law(law: Law) -> Cells:
    """The continuous law of scale 1, as numbers z: the draw is somewhere in [z, z+1) · width · 2**-48."""
    return _cells(law, Fraction(1, 64 if law == "laplace" else 128), None)


def _cells(law: Law, width: Fraction, place_bits: int | None) -> Cells:
    last = math.floor(_SQUEEZE_REACH[law] / width)
    worst = float(width) if law == "laplace" else float(width * width * (2 * last + 1) / 2)
    squeeze = np.uint16(math.floor(65536 * math.exp(-worst)) - 1)
    return Cells(_guide(law, width, zero_shared=False, last=last), squeeze, place_bits)


def _guide(law: Law, width: Fraction, *, zero_shared: bool, last: int) -> Guide:
    sums = _sums(law, width, zero_shared=zero_shared)
    total = sums[-1]
    thresholds = np.array([(s << _THRESHOLD_BITS) // total for s in sums], np.uint64)
    entry = (thresholds[:-1] >> np.uint64(OFFSET_BITS)).astype(np.int64)
    crossed = np.bincount(entry, minlength=_HALF)
    index = np.cumsum(crossed)
    sure = (crossed == 0) & (index <= last)
    mirrored = -index if zero_shared else ~index
    guide = np.concatenate([np.where(sure, index, _NONE), np.where(sure, mirrored, _NONE)]).astype(np.int16)
    guide.flags.writeable = thresholds.flags.writeable = False
    return Guide(law, width, zero_shared, guide, thresholds)


def _sums(law: Law, width: Fraction, *, zero_shared: bool) -> list[int]:
    """Running sums of the weights, as exact integers."""
    count = math.ceil(REACH[law] / width)
    weights = laplace_weights(width, count) if law == "laplace" else gaussian_weights(width, count)
    if zero_shared:
        weights = [weights[0], *(2 * w for w in weights[1:])]
    return list(accumulate(weights))


def _settle(guide: Guide, words: NDArray[np.uint16], rng: ArrayRng) -> Ints:
    """Signed outcomes of draws whose 16 bits do not decide them."""
    half = (words & np.uint16(_HALF - 1)).astype(np.uint64)
    u = (half << np.uint64(OFFSET_BITS)) | (rng.uint64(len(words)) >> np.uint64(64 - OFFSET_BITS))
    index = np.searchsorted(guide.thresholds, u, side="right").astype(np.int64)
    for i in np.flatnonzero((index > 0) & (guide.thresholds[np.maximum(index, 1) - 1] == u)):
        index[i] = _tie(guide, int(u[i]), rng)
    sign = -(words >> np.uint16(_GUIDE_BITS - 1)).astype(np.int64)  # 0 or -1
    return (index ^ sign) - sign if guide.zero_shared else index ^ sign


def _tie(guide: Guide, u: int, rng: ArrayRng) -> int:
    """The index of a draw whose first 63 bits are those of a threshold: both get 192 more (about once in 2**48 draws)."""
    sums = _sums(guide.law, guide.width, zero_shared=guide.zero_shared)
    bits = _THRESHOLD_BITS + _TIE_BITS
    long = [(s << bits) // sums[-1] for s in sums]
    return bisect_right(long, (u << _TIE_BITS) | rng.bits(_TIE_BITS))


def draw_single(guide: Guide, rng: ArrayRng, out: Ints) -> None:
    """Fill ``out`` with draws of a law of single integers."""
    for start in range(0, len(out), _SINGLE_CHUNK):
        chunk = out[start : start + _SINGLE_CHUNK]
        words = rng.uint16(len(chunk))
        values = guide.guide.take(words, mode="clip")  # every 16-bit word is in range: "clip" is the quickest mode
        chunk[:] = values
        slow = np.flatnonzero(values == _NONE)
        if len(slow):
            chunk[slow] = _settle(guide, words[slow], rng)


def draw_wide(cells: Cells, rng: ArrayRng, out: Ints) -> None:
    """Fill ``out`` with draws of an integer law in cells."""
    if cells.place_bits is None:
        raise AssertionError("a continuous law has no integers")
    draw_places(cells, rng, out)
    np.right_shift(out, OFFSET_BITS - cells.place_bits, out=out)


def draw_places(cells: Cells, rng: ArrayRng, out: Ints) -> dict[int, tuple[int, int]]:
    """Fill ``out`` with accepted places: 16 bits of signed cell above 48 bits of offset.

    For a continuous law, the draws that were settled by integers are in the answer also, as (place, bits of offset): there the
    bits that follow the 48th are known, whereas those of all other draws are uniform still.
    """
    waiting: list[tuple[Ints, NDArray[np.uint16], NDArray[np.uint16]]] = []
    for start in range(0, len(out), CHUNK):
        words = out[start : start + CHUNK].view(np.uint64)
        rng.fill(words)
        tops = words.view(np.uint16)[_TOP::4]
        accept = rng.uint16(len(words))
        cell = cells.guide.guide.take(tops, mode="clip")
        here = np.flatnonzero((cell == _NONE) | (accept >= cells.squeeze))
        waiting.append((here + start, tops[here], accept[here]))
        tops.view(np.int16)[:] = cell
    slow = np.concatenate([part[0] for part in waiting]) if waiting else np.empty(0, np.int64)
    if not len(slow):
        return {}
    slow_tops = np.concatenate([part[1] for part in waiting])
    slow_accept = np.concatenate([part[2] for part in waiting])
    tried = out[slow]
    unknown = np.flatnonzero((tried >> OFFSET_BITS) == _NONE)
    if len(unknown):
        settled = _settle(cells.guide, slow_tops[unknown], rng)
        tried[unknown] = (settled << OFFSET_BITS) | (tried[unknown] & _LOW)
    accepted, exact = _accept(cells, tried, slow_accept, rng)
    rejected = np.flatnonzero(~accepted)
    if len(rejected):
        again = np.empty(len(rejected), np.int64)
        more = draw_places(cells, rng, again)
        tried[rejected] = again
        exact |= {int(rejected[i]): found for i, found in more.items()}
    out[slow] = tried
    return {int(slow[i]): found for i, found in exact.items()}


def _accept(cells: Cells, places: Ints, accept: NDArray[np.uint16], rng: ArrayRng) -> tuple[NDArray[np.bool_], dict[int, tuple[int, int]]]:
    """Which places are accepted; those that only integers could tell are in the dictionary."""
    more = rng.uint64(len(places)) >> np.uint64(16)
    u = (accept + more * 2.0**-48) * 2.0**-16
    width = float(cells.guide.width)
    mirror = places ^ (places >> 63)
    if cells.place_bits is None:
        depth = (mirror & _LOW) * (width * 2.0**-OFFSET_BITS)
    else:  # an integer law: on the negative side the places of a cell are i·w + 1 … (i+1)·w
        steps = ((mirror & _LOW) >> (OFFSET_BITS - cells.place_bits)) + (places < 0)
        depth = steps * math.ldexp(width, -cells.place_bits)
    exponent = depth
    if cells.guide.law == "gaussian":
        exponent = depth * ((mirror >> OFFSET_BITS) * width + depth / 2)
    margin = u - np.exp(-exponent)
    accepted = margin < 0
    exact = {}
    for i in np.flatnonzero(np.abs(margin) <= FLOAT_MARGIN):
        found = _accept_exactly(cells, int(places[i]), (int(accept[i]) << 48) | int(more[i]), rng)
        accepted[i] = found is not None
        if found is not None and cells.place_bits is None:
            exact[int(i)] = found
    return accepted, exact


def _accept_exactly(cells: Cells, place: int, u: int, rng: ArrayRng) -> tuple[int, int] | None:
    """The place and its bits of offset if u < f(place)/f(inner edge), else None; bits are added to both until it is certain."""
    u_bits, place_bits = 64, OFFSET_BITS
    while True:
        low, high = _acceptance(cells, place, place_bits, u_bits)
        if u + 1 <= low:
            return place, place_bits
        if u >= high:
            return None
        u, u_bits = (u << 64) | rng.bits(64), u_bits + 64
        if cells.place_bits is None:
            place, place_bits = (place << 64) | rng.bits(64), place_bits + 64


def _acceptance(cells: Cells, place: int, place_bits: int, bits: int) -> tuple[int, int]:
    """Bounds, in units of 2**-bits, on the acceptance probability anywhere in the interval that ``place`` stands for."""
    mirror = place if place >= 0 else ~place
    cell, offset = mirror >> place_bits, mirror & ((1 << place_bits) - 1)
    if cells.place_bits is None:
        near, far = Fraction(offset, 1 << place_bits), Fraction(offset + 1, 1 << place_bits)
    else:
        near = far = Fraction((offset >> (OFFSET_BITS - cells.place_bits)) + (place < 0), 1 << cells.place_bits)
    width = cells.guide.width
    if cells.guide.law == "laplace":
        return exp_bounds(far * width, bits)[0], exp_bounds(near * width, bits)[1]
    square = width * width
    return exp_bounds(square * far * (cell + far / 2), bits)[0], exp_bounds(square * near * (cell + near / 2), bits)[1]
