"""Very high powers of a lattice law, by its characteristic function where that is not negligible.

A sum of T tilted losses is so smooth that a few dozen frequencies describe it, however fine its lattice. At those the
logarithm of the characteristic function is computed without cancellation, so that T = 10¹² multiplies no rounding error;
everywhere else it is proven to be small. The proof is in docs/proofs/composition.md.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import fft

from dither.accounting._fourier import ULP, Spectrum, log_moments
from dither.accounting._grid import Law
from dither.accounting._lattice import NotSmoothError, Tilt, tilted_moments, trial_tilts, window
from dither.accounting._pair import Array, Masses

_DECAY = 60.0
_FFT_MAX = 1 << 20
_MODES_MAX = 4_000
_TERMS = 4_000_000


class Power:
    """``count`` copies of ``law``, as a pair: P- and Q-masses of the sum, right under the tilt it was made for.

    ``garbage`` bounds what is uncertain, in the 1-norm under the tilt; ``blur`` how far a cut may be from where it was asked.
    """

    def __init__(self, law: Law, count: int, chosen: Tilt, log_tail: float) -> None:
        spacing = max(1, int(np.gcd.reduce(np.diff(law.index)))) if len(law.index) > 1 else 1
        self._step = law.step * spacing
        self._tilt = chosen.value
        self._count = count
        mean, variance = tilted_moments(law.losses, law.p, chosen.value)
        if not variance > 0:
            raise NotSmoothError
        exponents = chosen.value * law.step * (law.index - law.index[0])
        self._weights = law.p * np.exp(exponents - exponents.max())
        self._weights /= self._weights.sum()
        middle = float(self._weights @ (law.index - law.index[0]))
        self._places = law.step * ((law.index - law.index[0]) - middle)  # centred, exact to an ulp of themselves
        self._variance = float(self._weights @ self._places**2)
        self.center, self.spread = count * mean, math.sqrt(count * self._variance)
        own = chosen._replace(center=self.center, spread=self.spread)
        left, right = trial_tilts(own)
        moments = count * log_moments(law, np.concatenate(([chosen.value], chosen.value - left, chosen.value + right)))
        rise = moments[1:] - moments[0]
        here = window(own, (rise[: len(left)], rise[len(left) :]), (left, right), log_tail)
        self._log_mass = float(moments[0])
        self.p_inf = -math.expm1(count * math.log1p(-law.p_inf)) if law.p_inf < 1 else 1.0
        points = math.ceil((here.left + here.right) / self._step) + 4
        self._width, self._left = points * self._step, here.left
        self._points = points
        self.blur = self._step
        modes = math.ceil(math.sqrt(4 * _DECAY) / self.spread * self._width / (2 * math.pi)) + 1
        if (chosen.value + 1) * self._width > 600 or modes > _MODES_MAX or modes * len(law.p) > _TERMS or 2 * modes >= points:
            raise NotSmoothError
        self._certify(law, spacing, 2 * math.pi * modes / self._width)
        self._modes = self._coefficients(modes)
        outside = 2 * math.exp(log_tail)
        rounding = 64 * ULP * math.sqrt(modes) * (math.sqrt(count) + _DECAY) + math.sqrt(points) * math.exp(-_DECAY)
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

    def masses(self, edges: Array) -> Masses:
        """Masses of the sum between increasing cuts; what is outside the window is not there."""
        low, high = -self._left, self._width - self._left
        cuts = np.concatenate(([low], np.clip(edges - self.center, low, high), [high]))
        place = np.floor(cuts / self._step)
        count = np.diff(place)
        start = place[:-1] + 1
        base = 2 * math.pi / self._width
        made = []
        for tilt in (self._tilt, self._tilt + 1):
            total = np.zeros(len(count))
            for j, coefficient in enumerate(self._modes):
                rate = complex(-tilt, -base * j) * self._step
                whole = -np.expm1(count * rate) / -np.expm1(rate) if rate != 0 else count.astype(np.complex128)
                value = (coefficient * np.exp(start * rate) * whole).real
                total += value if j == 0 else 2 * value
            made.append(np.maximum(total, 0.0) / self._points)
        log_p = self._log_mass - self._tilt * self.center
        p = made[0] * math.exp(min(log_p, 700.0))
        q = made[1] * math.exp(min(log_p - self.center, 700.0))
        return Masses(p, q, self.p_inf)

    def span(self, log_tail: float) -> tuple[float, float]:
        """The window."""
        del log_tail
        return self.center - self._left, self.center + self._width - self._left

    def std(self) -> float:
        """Under the tilt."""
        return self.spread

    def lattice(self) -> float:
        """Finer than matters."""
        return 0.0
