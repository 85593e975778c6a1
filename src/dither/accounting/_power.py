"""Very high powers of a lattice law, by its characteristic function where that is not negligible.

A sum of T tilted losses is so smooth that a few dozen frequencies describe it, however fine its lattice. At those the
logarithm of the characteristic function is computed without cancellation, so that T = 10¹⁵ multiplies no rounding error;
everywhere else it is proven to be small. The proof is in docs/proofs/composition.md.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
from scipy import fft

from dither.accounting._fourier import ULP, Spectrum, log_moments, log_rises, tilted_weights
from dither.accounting._grid import Law, gathered, lowered, split
from dither.accounting._lattice import POINTS_MAX, NotSmoothError, Tilt, tilted_moments, trial_tilts, window
from dither.accounting._pair import Array

_DECAY = 60.0
_FFT_MAX = 1 << 20
_MODES_MAX = 4_000
_TERMS = 4_000_000
_RANGE = 600.0


class Power:
    """``count`` copies of ``law``: the law of their sum in blocks of lattice points, each about an eighth of ``step`` wide.

    ``garbage`` bounds what is uncertain, in the 1-norm under the tilt.
    """

    def __init__(self, law: Law, count: int, chosen: Tilt, log_tail: float, step: float) -> None:
        spacing = max(1, int(np.gcd.reduce(np.diff(law.index)))) if len(law.index) > 1 else 1
        self._step = law.step * spacing
        self._tilt = chosen.value
        self._count = count
        _, variance = tilted_moments(law.losses, law.p, chosen.value)
        if not variance > 0:
            raise NotSmoothError
        self._weights = tilted_weights(law, chosen.value)
        middle = float(self._weights @ (law.index - law.index[0]))
        self._places = law.step * ((law.index - law.index[0]) - middle)  # centred, exact to an ulp of themselves
        self._variance = float(self._weights @ self._places**2)
        self.center = float(count * (Fraction(law.origin) + Fraction(law.step) * (int(law.index[0]) + Fraction(middle))))
        self.spread = math.sqrt(count * self._variance)
        own = chosen._replace(center=self.center, spread=self.spread)
        left, right = trial_tilts(own)
        by = np.concatenate((-left, right))
        rise = count * log_rises(law, chosen.value, by)[1] + self.center * by
        here = window(own, (rise[: len(left)], rise[len(left) :]), (left, right), log_tail)
        tilts = np.array([chosen.value, chosen.value - here.t_left, chosen.value + here.t_right])
        moments = count * log_moments(law, tilts)
        self._log_mass = float(moments[0])
        self.p_inf = -math.expm1(count * math.log1p(-law.p_inf)) if law.p_inf < 1 else 1.0
        self._block = max(1, math.floor(min(step, self.spread) / (8 * self._step)))
        points = (here.left + here.right) / self._step + 8
        if not points / self._block <= POINTS_MAX or chosen.value * points * self._step > _RANGE:
            raise NotSmoothError
        self._blocks = fft.next_fast_len(math.ceil(points / self._block), real=True)
        # The sum is at center + h·(k − lag) for whole k; the window begins half a step below one of these points.
        lag = float((count * Fraction(middle) / spacing) % 1)
        self._first = self._step * (math.floor(-here.left / self._step) - 1 - lag)
        self._width = self._blocks * self._block * self._step
        modes = math.ceil(math.sqrt(4 * _DECAY) / self.spread * self._width / (2 * math.pi)) + 1
        if modes > _MODES_MAX or modes * len(law.p) > _TERMS or 2 * modes >= self._blocks:
            raise NotSmoothError
        self._certify(law, spacing, 2 * math.pi * modes / self._width)
        self._modes = self._coefficients(modes)
        low = self.center + self._first
        outside = math.exp(min(0.0, float(moments[1] - moments[0]) + here.t_left * low))
        outside += math.exp(min(0.0, float(moments[2] - moments[0]) - here.t_right * (low + self._width - self._step)))
        points = self._blocks * self._block
        rounding = 64 * ULP * math.sqrt(modes) * (math.sqrt(count) + _DECAY) + math.sqrt(points) * math.exp(-_DECAY)
        rounding += 64 * ULP * math.log2(self._blocks) * math.sqrt(self._blocks)
        self.garbage = outside + rounding + count * law.garbage

    def _certify(self, law: Law, spacing: int, first: float) -> None:
        """|φ(ω)|^count ≤ e^−60 for every ω from ``first`` to the end of the period, or NotSmoothError."""
        fourth = 2 * float(self._weights @ self._places**4) + 6 * self._variance**2
        near = math.sqrt(12 * self._variance / fourth)  # up to here |φ| ≤ exp(−ω² variance / 4)
        if first >= near:
            raise NotSmoothError
        rare = 0.01 * near * near * self._variance  # leave so much of the tails out, and grant them |φ| = 1
        order = np.argsort(np.abs(self._places))
        kept = order[: int(np.searchsorted(np.cumsum(self._weights[order]), 1 - rare)) + 1]
        index = (law.index[kept] - int(law.index[kept].min())) // spacing
        left_out = max(0.0, 1 - float(self._weights[kept].sum()))
        n = max(int(index.max()) + 1, int(32 / (self._step * near)) + 1)
        while n <= _FFT_MAX:
            n = fft.next_fast_len(n, real=True)
            size = np.abs(fft.rfft(np.bincount(index, self._weights[kept], n)))
            gap = 2 * math.pi / (n * self._step)
            far = size[max(0, math.floor(near / gap) - 1) :]
            if not len(far):
                return
            # |φ|² has a second derivative of at most 2 variances, so between two points it is at most gap² variance / 4 higher
            most = math.sqrt(float(far.max()) ** 2 + 0.25 * gap * gap * self._variance) + left_out + 64 * ULP * math.log2(n)
            if most < 1 and self._count * math.log(most) <= -_DECAY:
                return
            n *= 4
        raise NotSmoothError

    def _coefficients(self, modes: int) -> Spectrum:
        """φ(ω_j)^count of the centred sum, j = 0 … modes."""
        made = np.empty(modes + 1, dtype=np.complex128)
        made[0] = 1.0
        base = 2 * math.pi / self._width
        for j in range(1, modes + 1):
            angle = base * j * self._places
            real = -2 * float(self._weights @ np.sin(0.5 * angle) ** 2)
            imaginary = float(self._weights @ np.sin(angle))
            # The logarithm of φ = 1 + real + i imaginary, of which 1 would drown the rest.
            log_size = 0.5 * math.log1p(max(real * (2 + real) + imaginary * imaginary, -1 + 1e-300))
            turn = math.atan2(imaginary, 1 + real)
            made[j] = math.exp(self._count * log_size) * np.exp(1j * math.remainder(self._count * turn, 2 * math.pi))
        return made

    def _cells(self) -> tuple[Array, Array]:
        """P-mass of each block, and by how much its mean loss is above its first point."""
        rate = complex(0, -2 * math.pi / self._width) * np.arange(len(self._modes))
        turned = self._modes * np.exp(rate * self._first)
        found = []
        for tilt in (self._tilt, self._tilt + 1):
            each = (rate - tilt) * self._step
            inside = -np.expm1(self._block * each[1:]) / -np.expm1(each[1:])
            first = math.expm1(-self._block * tilt * self._step) / math.expm1(-tilt * self._step) if tilt > 0 else self._block
            spectrum = np.zeros(self._blocks // 2 + 1, dtype=np.complex128)
            spectrum[: len(turned)] = np.conj(turned * np.concatenate(([first], inside))) / self._block
            found.append(np.maximum(fft.irfft(spectrum, self._blocks), 0.0))
        relative_p, relative_q = found
        reach = self._step * (self._block - 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            rise = np.log(relative_p) - np.log(relative_q)
        rise = np.clip(np.where(np.isfinite(rise), rise, 0.5 * reach), 0.0, reach)
        starts = self._first + self._step * self._block * np.arange(self._blocks)
        log_p = self._log_mass - self._tilt * (self.center + starts)
        return relative_p * np.exp(np.minimum(log_p, _RANGE)), np.asarray(rise, dtype=np.float64)

    def above(self, step: float) -> Law:
        """The sum, moved up to the lattice."""
        p, rise = self._cells()
        wide = self._step * self._block
        up = p * np.expm1(-(rise + 0.5 * self._step)) / math.expm1(-wide)
        made = np.concatenate((p - up, [0.0])) + np.concatenate(([0.0], up))
        some = np.flatnonzero(made > 0)
        law = Law(some, made[some], self.p_inf, self.center + self._first - 0.5 * self._step, wide)
        return replace(split(law, step), garbage=2 * self.garbage)

    def below(self, step: float, affordable: float) -> Law:
        """The sum, moved down to the lattice."""
        p, rise = self._cells()
        wide = self._step * self._block
        some = np.flatnonzero(p > 0)
        if wide > 0.5:
            law = Law(some, p[some], self.p_inf, self.center + self._first, wide)
        else:
            middle = 0.5 * (wide - self._step)
            excess = -p[some] * np.expm1(middle - rise[some])
            law = lowered(some, self.center + self._first + middle, wide, p[some], excess, self.p_inf)
        return replace(gathered(law, step, self._tilt, affordable), garbage=2 * self.garbage)
