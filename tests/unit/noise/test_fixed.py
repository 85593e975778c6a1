"""Fixed-point arithmetic and sampling tables against a multiple-precision oracle."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest

from dither.noise import _cells, _fixed

SCALES = [Fraction(1, 1000), Fraction(3, 10), Fraction(1), Fraction(5, 2), Fraction(10), Fraction(100), Fraction(204), Fraction(0.1)]
WIDE = [Fraction(600), Fraction(1000.5), Fraction(10**6), Fraction(1 << 40), Fraction(1 << 54), Fraction(10**13, 3)]


@pytest.fixture(autouse=True)
def _precise():
    with mpmath.workprec(500):
        yield


def mp(x):
    return mpmath.mpf(x.numerator) / x.denominator


@pytest.mark.parametrize("bits", [1, 16, 53, 64, 80, 320, 640, 2_048])
@pytest.mark.parametrize(
    "x",
    [
        Fraction(0),
        Fraction(1, 10**40),
        Fraction(1, 3),
        Fraction(1),
        Fraction(0.7),
        Fraction(100, 7),
        Fraction(159),
        Fraction(5_000),
        Fraction(10**300),
    ],
)
def test_exp_is_inside_its_bounds(x, bits):
    low, high = _fixed.exp_bounds(x, bits)
    with mpmath.workprec(bits + 200):
        truth = mpmath.exp(-mp(x)) * mpmath.mpf(2) ** bits
        assert low <= truth <= high
    assert high - low <= 2


def test_exp_near_multiples_of_ln_2():
    with mpmath.workprec(500):
        ln2 = Fraction(int(mpmath.ln(2) * mpmath.mpf(2) ** 450), 1 << 450)
        for n in (1, 2, 7, 100, 200):
            for nudge in (-1, 0, 1):
                low, high = _fixed.exp_bounds(n * ln2 + Fraction(nudge, 1 << 445), 320)
                assert low <= mpmath.mpf(2) ** 320 * mpmath.exp(-mp(n * ln2 + Fraction(nudge, 1 << 445))) <= high


@pytest.mark.parametrize(("x", "bits"), [(Fraction(-1), 10), (Fraction(1), 0), (Fraction(1), (1 << 16) + 1)])
def test_exp_refuses_what_is_not_proved(x, bits):
    with pytest.raises(AssertionError):
        _fixed.exp_bounds(x, bits)


@pytest.mark.parametrize("step", [Fraction(1, 128), Fraction(1, 600), Fraction(1), Fraction(999, 1000), Fraction(1000)])
def test_weights_are_within_the_stated_error(step):
    unit, error = mpmath.mpf(2) ** _fixed.WEIGHT_BITS, mpmath.mpf(2) ** _fixed.WEIGHT_ERROR_BITS
    for weights, f in (
        (_fixed.laplace_weights(step, 20_000), lambda t: mpmath.exp(-t)),
        (_fixed.gaussian_weights(step, 10_000), lambda t: mpmath.exp(-t * t / 2)),
    ):
        for i in (0, 1, 2, 10, 100, 1_000, 5_000, len(weights) - 1):
            assert abs(weights[i] - unit * f(i * mp(step))) < error


def density(law, t):
    return mpmath.exp(-t) if law == "laplace" else mpmath.exp(-t * t / 2)


def check_thresholds(guide, probes):
    """Thresholds are the running sums of the true law, to 63 bits."""
    count = len(guide.thresholds)
    weights = [density(guide.law, i * mp(guide.width)) for i in range(count)]
    if guide.zero_shared:
        weights = [weights[0], *(2 * w for w in weights[1:])]
    total, run, worst = sum(weights), mpmath.mpf(0), 0
    for i, w in enumerate(weights):
        run += w
        if i in probes or i < 50:
            worst = max(worst, abs(int(guide.thresholds[i]) - run / total * mpmath.mpf(2) ** 63))
    assert worst <= 1
    assert int(guide.thresholds[-1]) == 1 << 63
    assert (np.diff(guide.thresholds.astype(np.float64)) >= 0).all()


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
@pytest.mark.parametrize("scale", SCALES, ids=str)
def test_tables_of_single_integers(law, scale):
    check_thresholds(_cells.single_integers(law, scale), {100, 1_000, 3_000})


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
@pytest.mark.parametrize("scale", WIDE, ids=str)
def test_tables_of_cells(law, scale):
    assert _cells.single_integers(law, scale) is None
    cells = _cells.wide_integers(law, scale)
    assert 0 <= cells.place_bits <= _cells.OFFSET_BITS
    assert cells.guide.width == Fraction(1 << cells.place_bits) / scale
    assert len(cells.guide.thresholds) < 32_768
    check_thresholds(cells.guide, {100, 1_000, 3_000})


def chances(guide):
    """The probability of each index, exactly as the table and the further digits of a tie make it."""
    sums = _cells._sums(guide.law, guide.width, zero_shared=guide.zero_shared)
    ends = [(s << 255) // sums[-1] for s in sums]
    assert [end >> 192 for end in ends] == guide.thresholds.tolist()
    return [mpmath.mpf(high - low) / mpmath.mpf(2) ** 255 for low, high in zip([0, *ends], ends, strict=False)]


def edges(law, width, count):
    """The density at 0, width, 2·width …, by multiplication at 700 bits."""
    with mpmath.workprec(700):
        found, value = [], mpmath.mpf(1)
        ratio, change = (mpmath.exp(-width), mpmath.mpf(1)) if law == "laplace" else (density(law, width), mpmath.exp(-width * width))
        for _ in range(count):
            found.append(value)
            value, ratio = value * ratio, ratio * change
        return found


def whole_sum(law, scale):
    """The sum of the density of scale ``scale`` over all integers, in closed form (Poisson's summation for the Gaussian)."""
    if law == "laplace":
        return (1 + mpmath.exp(-1 / scale)) / (1 - mpmath.exp(-1 / scale))
    if scale < 1:
        return 1 + 2 * mpmath.nsum(lambda k: density(law, k / scale), [1, 60])
    return scale * mpmath.sqrt(2 * mpmath.pi) * (1 + 2 * sum(mpmath.exp(-2 * (mpmath.pi * scale * j) ** 2) for j in range(1, 12)))


DISTANCE = [Fraction(1, 1000), Fraction(1, 20), Fraction(1, 4), Fraction(1), Fraction(10.3), Fraction(204), Fraction(205), Fraction(512)]
DISTANCE += [Fraction(600), Fraction(601), Fraction(10**6), Fraction(1 << 40), Fraction((1 << 54) - 1), Fraction(1 << 54)]


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
@pytest.mark.parametrize("scale", [*DISTANCE, None], ids=str)
def test_the_distance_from_the_stated_law_with_its_tails(law, scale):
    """Less than 2**-228 in all, and less than 2**-236 of it from anything but the tails that are cut off."""
    single = None if scale is None else _cells.single_integers(law, scale)
    guide = single or (_cells.unit_law(law) if scale is None else _cells.wide_integers(law, scale)).guide
    got, true = chances(guide), edges(law, mp(guide.width), len(guide.thresholds))
    if single is not None:
        total = whole_sum(law, mp(scale))
        law_of = [w * (1 if i == 0 else 2) / total for i, w in enumerate(true)]
        inside = sum(law_of)
        off, tail = sum(abs(p - w / inside) for p, w in zip(got, law_of, strict=True)) / 2, 1 - inside
    else:  # within a cell the law is right whatever the table; accepted with the density over that of the edge, each has this share:
        shares = [p / w for p, w in zip(got, true, strict=True)]
        mean = sum(s * w for s, w in zip(shares, true, strict=True)) / sum(true)
        off = sum(abs(s / mean - 1) * w for s, w in zip(shares, true, strict=True)) / sum(true) / 2
        end = len(true) * mp(guide.width)
        tail = mpmath.exp(-end) if law == "laplace" else mpmath.erfc(end / mpmath.sqrt(2))
    assert off < mpmath.mpf(2) ** -236
    assert -(mpmath.mpf(2) ** -400) < tail
    assert off + tail < mpmath.mpf(2) ** -228


def all_guides():
    for law in ("laplace", "gaussian"):
        yield _cells.unit_law(law).guide
        for scale in SCALES:
            yield _cells.single_integers(law, scale)
        for scale in WIDE:
            yield _cells.wide_integers(law, scale).guide


def test_every_entry_of_every_guide_agrees_with_the_thresholds():
    """All 65 536 words: a settled entry gives what its lowest and its highest completion give, and no threshold lies inside."""
    words = np.arange(1 << 16)
    low = (words & 0x7FFF).astype(np.uint64) << np.uint64(48)
    high = low | np.uint64((1 << 48) - 1)
    for guide in all_guides():
        sure = guide.guide != -32_768
        first = np.searchsorted(guide.thresholds, low, side="left")  # "left": a threshold right at the lower end is not yet passed
        last = np.searchsorted(guide.thresholds, high, side="right")
        assert (first[sure] == last[sure]).all()
        index = first.astype(np.int64)
        mirrored = -index if guide.zero_shared else ~index
        assert (guide.guide[sure] == np.where(words < 1 << 15, index, mirrored)[sure]).all()
        assert sure.mean() > 0.9


def test_the_quick_acceptance_holds_in_every_cell_of_the_guide():
    for law in ("laplace", "gaussian"):
        for cells in (_cells.unit_law(law), *(_cells.wide_integers(law, s) for s in WIDE)):
            reached = int(np.abs(cells.guide.guide[cells.guide.guide != -32_768].astype(int)).max())
            width = mp(cells.guide.width)
            for i in range(reached + 1):
                least = density(law, (i + 1) * width) / density(law, i * width)
                assert int(cells.squeeze) < least * 65_536


def test_a_tie_takes_more_bits():
    for guide in (_cells.single_integers("gaussian", Fraction(10)), _cells.unit_law("laplace").guide):
        for k in (0, 3, 50):
            u = int(guide.thresholds[k])
            assert _cells._tie(guide, u, Scripted(0)) == k
            assert _cells._tie(guide, u, Scripted((1 << 192) - 1)) == k + 1


def test_a_tie_is_noticed():
    guide = _cells.single_integers("gaussian", Fraction(10))
    u = int(guide.thresholds[4])
    words = np.array([u >> 48, (u >> 48) | 0x8000], np.uint16)
    for rest, expected in ((0, 4), ((1 << 192) - 1, 5)):
        rng = Scripted(rest, words=np.array([(u & ((1 << 48) - 1)) << 16] * 2, np.uint64))
        assert _cells._settle(guide, words, rng).tolist() == [expected, -expected]


class Scripted:
    """Bits that a test wrote."""

    def __init__(self, rest, words=None):
        self.rest, self.words = rest, words

    def bits(self, _count):
        return self.rest

    def uint64(self, count):
        return self.words[:count]
