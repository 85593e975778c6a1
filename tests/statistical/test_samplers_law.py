"""The samplers' laws on many draws: χ² against the exact probabilities, moments, low bits, and what they must reject.

Seeds are fixed, so every run gives the same verdict. Each test rejects below p = 1e-9; there are fewer than 400 p-values, so a fresh
choice of seeds would raise a false alarm with probability below 1e-6 in all. Power: at 1e5 draws a law whose scale is off by 2/3 or 3/2
is rejected with p < 1e-100 (checked below); at 1e7 draws a relative error of the scale of 0.3 % is (6 standard errors and more).
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import special, stats

from dither.noise import samplers as s
from dither.noise.rng import UnsafeSeededRng

pytestmark = pytest.mark.statistical
ALPHA = 1e-9
PART = 1 << 20


def discrete_laplace_pmf(k, t):
    return np.tanh(0.5 / t) * np.exp(-np.abs(k) / t)


def discrete_gaussian_pmf(k, t):
    far = np.arange(-int(40 * t) - 40, int(40 * t) + 41)
    return np.exp(-(k**2) / (2 * t * t)) / np.exp(-(far**2) / (2 * t * t)).sum()


def rounded_laplace_pmf(k, t):
    return np.where(k == 0, -np.expm1(-0.5 / t), np.exp(-np.abs(k) / t) * np.sinh(min(0.5 / t, 700)))


def rounded_gaussian_pmf(k, t):
    a = np.abs(k)
    return np.where(a == 0, special.erf(0.5 / t / math.sqrt(2)), special.ndtr(-(a - 0.5) / t) - special.ndtr(-(a + 0.5) / t))


LAWS = {
    s.discrete_laplace: discrete_laplace_pmf,
    s.discrete_gaussian: discrete_gaussian_pmf,
    s.rounded_laplace: rounded_laplace_pmf,
    s.rounded_gaussian: rounded_gaussian_pmf,
}


def parts(count):
    while count > 0:
        yield min(PART, count)
        count -= PART


def chi_square(observed, expected):
    """p-value, with cells of fewer than ten expected draws pooled."""
    few = expected < 10
    if few.any():
        observed = np.append(observed[~few], observed[few].sum())
        expected = np.append(expected[~few], expected[few].sum())
    if expected[-1] < 1e-3:
        assert observed[-1] == 0
        observed, expected = observed[:-1], expected[:-1]
    return stats.chi2.sf(((observed - expected) ** 2 / expected).sum(), max(len(expected) - 1, 1))


def integer_p(sampler, scale, count, *, claimed=None, seed=1):
    """p-values of the χ² test, the mean and the variance."""
    rng = UnsafeSeededRng(seed)
    claimed = float(scale if claimed is None else claimed)
    edge = int(25 * claimed) + 3
    k = np.arange(-edge, edge + 1)
    observed = np.zeros(2 * edge + 3, np.int64)
    for part in parts(count):
        observed += np.bincount((sampler(scale, part, rng).clip(-edge - 1, edge + 1) + edge + 1), minlength=2 * edge + 3)
    pmf = LAWS[sampler](k, claimed)
    outside = np.array([observed[0] + observed[-1]])
    p = chi_square(np.append(observed[1:-1], outside), count * np.append(pmf, max(1 - pmf.sum(), 1e-15)))
    second, fourth = (pmf * k.astype(float) ** 2).sum(), (pmf * k.astype(float) ** 4).sum()
    inside = observed[1:-1]
    z_mean = (inside * k).sum() / math.sqrt(second * count)
    z_second = ((inside * k.astype(float) ** 2).sum() / count - second) / math.sqrt((fourth - second**2) / count)
    return p, 2 * stats.norm.sf(abs(z_mean)), 2 * stats.norm.sf(abs(z_second))


def float_p(sampler, scale, count, *, claimed=None, seed=2):
    """p-values of χ² over 1,000 equally likely bins, of the eight lowest bits, of mean and second moment."""
    rng = UnsafeSeededRng(seed)
    claimed = scale if claimed is None else claimed
    gauss = sampler is s.gaussian
    bins, low, first, second = np.zeros(1_000, np.int64), np.zeros(256, np.int64), 0.0, 0.0
    step = s.grid_step(scale)
    for part in parts(count):
        noise = sampler(scale, part, rng)
        x = noise / claimed
        u = special.ndtr(x) if gauss else np.where(x < 0, 0.5 * np.exp(-np.abs(x)), 1 - 0.5 * np.exp(-np.abs(x)))
        bins += np.bincount((u * 1_000).astype(np.int64).clip(0, 999), minlength=1_000)
        low += np.bincount((noise / step).astype(np.int64) & 255, minlength=256)
        first += float(x.sum())
        second += float((x * x).sum())
    variance, fourth = (1.0, 3.0) if gauss else (2.0, 24.0)
    return (
        chi_square(bins, np.full(1_000, count / 1_000)),
        chi_square(low, np.full(256, count / 256)),
        2 * stats.norm.sf(abs(first) / math.sqrt(variance * count)),
        2 * stats.norm.sf(abs(second / count - variance) / math.sqrt((fourth - variance**2) / count)),
    )


INTEGER_CASES = [(law, scale) for law in LAWS for scale in (0.3, 1.0, Fraction(5, 2), 10, 100.0, 700)]


@pytest.mark.parametrize(("sampler", "scale"), INTEGER_CASES)
def test_integer_laws(sampler, scale):
    assert min(integer_p(sampler, scale, 2_000_000)) > ALPHA


@pytest.mark.parametrize(
    ("sampler", "scale"), [(s.discrete_laplace, 10), (s.discrete_gaussian, 10), (s.discrete_gaussian, 1000), (s.rounded_gaussian, 3)]
)
def test_integer_laws_at_ten_million(sampler, scale):
    assert min(integer_p(sampler, scale, 10_000_000, seed=3)) > ALPHA


@pytest.mark.parametrize("sampler", [s.laplace, s.gaussian])
@pytest.mark.parametrize("scale", [1.0, 1e-3, 1.999])
def test_float_laws_at_ten_million(sampler, scale):
    assert min(float_p(sampler, scale, 10_000_000 if scale == 1.0 else 2_000_000)) > ALPHA


@pytest.mark.slow
@pytest.mark.parametrize("sampler", list(LAWS))
@pytest.mark.parametrize("scale", [1.0, 100.0, 1000.0])
def test_integer_laws_at_a_hundred_million(sampler, scale):
    assert min(integer_p(sampler, scale, 100_000_000, seed=4)) > ALPHA


def coin_p(sampler, argument, p, count, seed=12):
    rng = UnsafeSeededRng(seed)
    return stats.binomtest(sum(int(sampler(argument, part, rng).sum()) for part in parts(count)), count, p).pvalue


def uniform_p(bound, count, seed=13):
    """p-values of χ² over 1,000 bins of consecutive results, and of the mean."""
    rng, bins = UnsafeSeededRng(seed), np.zeros(1_000, np.int64)
    total = 0.0
    for part in parts(count):
        draws = s.uniform_below(bound, part, rng)
        bins += np.bincount(draws // (bound // 1_000), minlength=1_000)
        total += float(draws.sum(dtype=np.float64))
    z = (total / count - (bound - 1) / 2) / math.sqrt((float(bound) ** 2 - 1) / 12 / count)
    return chi_square(bins.astype(float), np.full(1_000, count / 1_000)), 2 * stats.norm.sf(abs(z))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sampler", "argument", "p"),
    [
        (s.bernoulli, Fraction(1, 3), 1 / 3),
        (s.bernoulli, 2.0**-20, 2.0**-20),
        (s.bernoulli_exp, 1.2, math.exp(-1.2)),
        (s.bernoulli_exp, 9, math.exp(-9)),
    ],
)
def test_coins_at_a_hundred_million(sampler, argument, p):
    assert coin_p(sampler, argument, p, 100_000_000) > ALPHA


@pytest.mark.slow
@pytest.mark.parametrize("bound", [1_000, 3_000_000_000, 5_000_000_000_000])
def test_uniform_at_a_hundred_million(bound):
    assert min(uniform_p(bound, 100_000_000)) > ALPHA


@pytest.mark.slow
@pytest.mark.parametrize("sampler", [s.laplace, s.gaussian])
def test_float_laws_at_a_hundred_million(sampler):
    assert min(float_p(sampler, 1.7, 100_000_000, seed=5)) > ALPHA


@pytest.mark.parametrize("sampler", list(LAWS))
@pytest.mark.parametrize("scale", [1.0, 100.0, 900.0])
@pytest.mark.parametrize("wrong", [2 / 3, 3 / 2])
def test_a_wrong_scale_is_rejected(sampler, scale, wrong):
    assert integer_p(sampler, scale * wrong, 100_000, claimed=scale)[2] < 1e-100


@pytest.mark.parametrize("sampler", [s.laplace, s.gaussian])
@pytest.mark.parametrize("wrong", [2 / 3, 3 / 2])
def test_a_wrong_float_scale_is_rejected(sampler, wrong):
    assert float_p(sampler, wrong, 100_000, claimed=1.0)[0] < 1e-100


@pytest.mark.parametrize("sampler", [s.laplace, s.gaussian])
def test_halved_noise_is_rejected(sampler):
    assert float_p(lambda *a: sampler(*a) / 2, 1.0, 100_000)[0] < 1e-100


@pytest.mark.parametrize("sampler", list(LAWS))
@pytest.mark.parametrize("scale", [2**20 + 1, Fraction(10**13, 7), 2**49, 2**54])
def test_integer_laws_at_large_scales(sampler, scale):
    """Against the continuous law, of which such scales are not distinguishable; and the low byte is uniform."""
    draws = sampler(scale, 60_000 if scale >= 2**49 else 400_000, UnsafeSeededRng(6))
    law = stats.laplace if "laplace" in sampler.__name__ else stats.norm
    assert stats.kstest(draws / float(scale), law.cdf).pvalue > ALPHA
    assert chi_square(np.bincount(draws & 255, minlength=256), np.full(256, len(draws) / 256)) > ALPHA


@pytest.mark.parametrize("p", [0.3, Fraction(1, 3), 0.999, 2**-10])
def test_coins(p):
    for size, count in ((2_000_000, 2_000_000), (None, 20_000)):
        rng = UnsafeSeededRng(7)
        heads = int(s.bernoulli(p, size, rng).sum()) if size else sum(s.bernoulli(p, rng=rng) for _ in range(count))
        assert stats.binomtest(heads, count, float(p)).pvalue > ALPHA
        x = -math.log(float(p))
        heads = int(s.bernoulli_exp(x, size, rng).sum()) if size else sum(s.bernoulli_exp(x, rng=rng) for _ in range(count))
        assert stats.binomtest(heads, count, float(p)).pvalue > ALPHA
        assert stats.binomtest(heads, count, float(p) * 2 / 3).pvalue < ALPHA or count * float(p) < 1_000


@pytest.mark.parametrize("bound", [3, 10, 1_000, 3 << 40])
def test_uniform(bound):
    draws = s.uniform_below(bound, 2_000_000, UnsafeSeededRng(8))
    bins = min(bound, 1_000)
    which = draws // -(-bound // bins)
    assert chi_square(np.bincount(which, minlength=bins).astype(float), np.full(bins, len(draws) / bins)) > ALPHA


def test_draws_are_independent():
    """Lag-one correlation of neighbours, across block borders too."""
    for sampler in (s.laplace, s.gaussian):
        x = sampler(1.0, 2_000_000, UnsafeSeededRng(9))
        for lag in (1, 2, 1 << 15, 1 << 17):
            z = float((x[lag:] * x[:-lag]).mean()) / float(x.var()) * math.sqrt(len(x) - lag)
            assert 2 * stats.norm.sf(abs(z)) > ALPHA


def test_scalars_have_the_law_of_arrays():
    for sampler, law in ((s.laplace, stats.laplace), (s.gaussian, stats.norm)):
        rng = UnsafeSeededRng(10)
        draws = [sampler(2.0, rng=rng) for _ in range(50_000)]
        assert stats.kstest(np.array(draws) / 2.0, law.cdf).pvalue > ALPHA
    rng = UnsafeSeededRng(11)
    draws = np.array([s.discrete_laplace(3, rng=rng) for _ in range(50_000)])
    k = np.arange(-30, 31)
    assert chi_square(np.bincount(draws.clip(-30, 30) + 30, minlength=61)[1:-1], len(draws) * discrete_laplace_pmf(k, 3.0)[1:-1]) > ALPHA
