"""Every sampler against all datasets and all batches of tiny populations, in both neighbour relations."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from scipy.special import ndtr

from dither import events as ev
from dither.accounting import _samplers as sampling
from dither.accounting import rdp
from dither.accounting._bounds import Move, pure_epsilon, rho, uses
from dither.accounting._pairs import GaussianPair, LaplacePair, SubsampledGaussianPair
from dither.accounting._price import price
from dither.accounting._special import approx_dp, randomized_response
from dither.accounting.loss import loss

EPSILONS = (0.0, 0.01, 0.1, 0.3, 0.7, 1.2, 2.0, 3.0)
OUTPUTS = np.arange(-40, 41)
VALUES = (-1, 0, 1)


def noise(kind, centre):
    law = np.exp(-np.abs(OUTPUTS - centre) / 1.3) if kind == "laplace" else np.exp(-0.5 * ((OUTPUTS - centre) / 1.1) ** 2)
    return law / law.sum()


def inner_event(kind, sensitivity):
    return ev.DiscreteLaplace(1.3, sensitivity) if kind == "laplace" else ev.DiscreteGaussian(1.1, sensitivity)


def profile(p, q, epsilon):
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


# ---- the samplers, as laws over batches (tuples of places in the dataset)


def poisson(n, q):
    return {s: q ** len(s) * (1 - q) ** (n - len(s)) for k in range(n + 1) for s in itertools.combinations(range(n), k)}


def truncated(n, q, cap):
    law = Counter()
    for s, weight in poisson(n, q).items():
        kept = list(itertools.combinations(s, cap)) if len(s) > cap else [s]
        for t in kept:
            law[t] += weight / len(kept)
    return law


def fixed(n, size):
    batches = list(itertools.combinations(range(n), size))
    return dict.fromkeys(batches, 1 / len(batches))


def drawn(n, size):
    return dict.fromkeys(itertools.product(range(n), repeat=size), n**-size)


def output(data, law, kind):
    made = np.zeros(len(OUTPUTS))
    for batch, weight in law.items():
        made += weight * noise(kind, sum(data[i] for i in batch))
    return made


def neighbors(relation, sizes):
    for n in sizes:
        for data in itertools.combinations_with_replacement(VALUES, n):
            for x in VALUES:
                yield (*data, x), (data if relation == "add_remove" else None)


def pairs(relation, n, law_of, kind):
    """All (M(D), M(D')) with D of n units, D' without its last one or with another in its place."""
    law, law_less = law_of(n), law_of(n - 1) if relation == "add_remove" else None
    for data in itertools.combinations_with_replacement(VALUES, n - 1):
        made = {x: output((*data, x), law, kind) for x in VALUES}
        if relation == "add_remove":
            absent = output(data, law_less, kind)
            yield from ((p, absent) for p in made.values())
            yield from ((absent, p) for p in made.values())
        else:
            yield from ((made[x], made[y]) for x in VALUES for y in VALUES if x != y)


def worst(found):
    found = list(found)
    return np.array([max(profile(p, q, e) for p, q in found) for e in EPSILONS])


def priced(event, relation):
    own = loss(event, neighbors=relation)
    return np.array([own.delta_upper(e) for e in EPSILONS])


def check(event, relation, truth, *, tight=False):
    bound = priced(event, relation)
    assert (bound >= truth - 1e-11).all(), (event, relation, bound, truth)
    if tight:
        assert bound == pytest.approx(truth, rel=1e-6, abs=1e-11)


@pytest.mark.parametrize("kind", ["laplace", "gauss"])
@pytest.mark.parametrize("q", [0.2, 0.7])
@pytest.mark.parametrize("relation", ["add_remove", "replace"])
def test_poisson_against_all_datasets(kind, q, relation):
    event = ev.Subsample(inner_event(kind, 1), ev.Poisson(q))
    for n in (1, 2, 3):
        truth = worst(pairs(relation, n, lambda m: poisson(m, q), kind))
        check(event, relation, truth, tight=relation == "add_remove")


@pytest.mark.parametrize("kind", ["laplace", "gauss"])
@pytest.mark.parametrize("relation", ["add_remove", "replace"])
@pytest.mark.parametrize(("size", "population"), [(1, 2), (1, 3), (2, 3), (3, 4), (2, 4)])
def test_fixed_size_against_all_datasets(kind, relation, size, population):
    # one unit's contribution replaced by another's moves the sum of −1, 0, 1 by up to 2
    event = ev.Subsample(inner_event(kind, 2), ev.FixedSize(size, population))
    truth = worst(pairs(relation, population + (relation == "add_remove"), lambda m: fixed(m, size), kind))
    check(event, relation, truth)
    if relation == "replace" and population > size:
        narrow = ev.Subsample(inner_event(kind, 1), ev.FixedSize(size, population))
        assert (priced(narrow, relation) < truth - 1e-6).any(), "half the sensitivity must not pass"


@pytest.mark.parametrize("kind", ["laplace", "gauss"])
@pytest.mark.parametrize("relation", ["add_remove", "replace"])
@pytest.mark.parametrize(("size", "population"), [(1, 2), (2, 2), (3, 2), (2, 3), (3, 3)])
def test_with_replacement_against_all_datasets(kind, relation, size, population):
    event = ev.Subsample(inner_event(kind, 2), ev.WithReplacement(size, population))
    truth = worst(pairs(relation, population + (relation == "add_remove"), lambda m: drawn(m, size), kind))
    check(event, relation, truth)


@pytest.mark.parametrize("kind", ["laplace", "gauss"])
@pytest.mark.parametrize("relation", ["add_remove", "replace"])
@pytest.mark.parametrize("q", [0.3, 0.8])
@pytest.mark.parametrize("cap", [1, 2, 3])
def test_truncated_poisson_against_all_datasets(kind, relation, q, cap):
    population = 4
    event = ev.Subsample(inner_event(kind, 1), ev.TruncatedPoisson(q, cap, population))
    for n in (1, 2, 3, 4):  # population is an upper bound: fewer units must be covered, too
        check(event, relation, worst(pairs(relation, n, lambda m: truncated(m, q, cap), kind)))
    if cap == 1 and q == 0.3 and relation == "add_remove":
        plain = ev.Subsample(inner_event(kind, 1), ev.Poisson(q))
        truth = worst(pairs(relation, 4, lambda m: truncated(m, q, cap), kind))
        assert (priced(plain, relation) < truth - 1e-6).any(), "forgetting the cut must not pass"


def shuffled_outputs(data, batch, batches, kind):
    """Law of the first ``batches`` noisy sums; None in the data is a place left empty."""
    n = len(data)
    epoch = n // batch
    orders = list(itertools.permutations(range(n)))
    one = Counter(tuple(sum(data[i] or 0 for i in order[j * batch : (j + 1) * batch]) for j in range(epoch)) for order in orders)
    made = 0.0
    for epochs in itertools.product(one.items(), repeat=-(-batches // epoch)):
        sums = [s for law, _ in epochs for s in law][:batches]
        weight = math.prod(count / len(orders) for _, count in epochs)
        term = np.array(weight)
        for s in sums:
            term = np.multiply.outer(term, noise(kind, s)[20:61])
        made = made + term
    return made


@pytest.mark.parametrize("relation", ["add_remove", "replace"])
@pytest.mark.parametrize(("batch", "population", "batches"), [(1, 1, 2), (1, 2, 2), (1, 2, 3), (2, 3, 2), (1, 3, 2), (2, 4, 2)])
def test_shuffled_against_all_orders(relation, batch, population, batches):
    sensitivity = 1 if relation == "add_remove" else 2
    event = ev.Repeat(ev.Subsample(inner_event("gauss", sensitivity), ev.Shuffled(batch, population)), batches)
    found = []
    for data in itertools.combinations_with_replacement(VALUES, population - 1):
        made = {x: shuffled_outputs((*data, x), batch, batches, "gauss") for x in (*VALUES, None)}
        first = VALUES if relation == "replace" else (None,)
        found += [pair for x in first for y in VALUES if x != y for pair in ((made[x], made[y]), (made[y], made[x]))]
    check(event, relation, worst(found))


def test_shuffled_uses():
    assert uses(ev.Shuffled(256, 60_000), 600) == 3  # ⌊60000/256⌋ = 234 batches an epoch
    assert uses(ev.Shuffled(3, 10), 3) == 1
    assert uses(ev.Shuffled(3, 10), 4) == 2
    assert uses(ev.Shuffled(10, 10), 7) == 7
    own = loss(ev.Repeat(ev.Subsample(ev.Gaussian(1.0), ev.Shuffled(256, 60_000)), 600))
    assert own.epsilon(1e-5).upper == pytest.approx(loss(ev.Repeat(ev.Gaussian(1.0), 3)).epsilon(1e-5).upper)
    assert not own.tight
    assert own.poisson_claim is not None
    assert own.poisson_claim.epsilon(1e-5).upper < 0.6
    assert any("false" in note and "Poisson" in note for note in own.notes)
    streams = ev.Sequence((ev.Subsample(ev.Gaussian(1.0), ev.Shuffled(1, 10)),) * 3)
    assert loss(streams).epsilon(1e-5).upper == pytest.approx(own.epsilon(1e-5).upper), "three streams use a unit three times"


# ---- Gaussian closed forms against integrals, and against other neighbours found by search


GRID = np.linspace(-30.0, 30.0, 60_001)


def density(weights, shifts, sigma):
    return sum(w * np.exp(-0.5 * ((GRID - s) / sigma) ** 2) for w, s in zip(weights, shifts, strict=True)) / sigma / math.sqrt(2 * math.pi)


def integral(p, q, epsilon):
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum() * (GRID[1] - GRID[0]))


@pytest.mark.parametrize("sigma", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("q", [0.01, 0.3, 0.9])
def test_replaced_gaussian_is_the_integral_and_no_other_pair_is_worse(sigma, q):
    own = loss(ev.Subsample(ev.Gaussian(sigma), ev.Poisson(q)), neighbors="replace")
    assert own.tight
    for e in EPSILONS:
        truth = integral(density((1 - q, q), (0, 1), sigma), density((1 - q, q), (0, -1), sigma), e)
        assert own.delta_upper(e) == pytest.approx(truth, rel=1e-6, abs=2e-7)
        for a, b in itertools.product((-1.0, -0.5, 0.0, 0.5, 1.0), repeat=2):
            other = integral(density((1 - q, q), (0, a), sigma), density((1 - q, q), (0, b), sigma), e)
            assert other <= own.delta_upper(e) + 2e-7


def plane(weights, centres, sigma, x, y):
    law = sum(w * np.exp(-0.5 * ((x - cx) ** 2 + (y - cy) ** 2) / sigma**2) for w, (cx, cy) in zip(weights, centres, strict=True))
    return law / (2 * math.pi * sigma**2)


@pytest.mark.parametrize("q", [0.1, 0.6])
def test_no_pair_of_gaussians_in_the_plane_breaks_poisson_or_fixed_size(q):
    """One unit's vector may point anywhere: replaced (|x|, |x'| ≤ 1 apart by at most 2; or all within 1 of each other)."""
    sigma = 0.8
    side = np.linspace(-7, 7, 281)
    x, y = np.meshgrid(side, side)
    cell = (side[1] - side[0]) ** 2
    poisson_price = loss(ev.Subsample(ev.Gaussian(sigma), ev.Poisson(q)), neighbors="replace")
    fixed_price = loss(ev.Subsample(ev.Gaussian(sigma), ev.FixedSize(int(10 * q), 10)), neighbors="replace")
    for angle in np.linspace(0, math.pi, 7):
        for r1, r2 in ((1, 1), (1, 0.5), (0.5, 1), (1, 0), (0, 1)):
            one, two = (r1, 0.0), (r2 * math.cos(angle), r2 * math.sin(angle))
            p = plane((1 - q, q), ((0, 0), one), sigma, x, y)
            o = plane((1 - q, q), ((0, 0), two), sigma, x, y)
            for e in (0.0, 0.1, 0.5, 1.0):
                found = float(np.maximum(p - math.exp(e) * o, 0).sum() * cell)
                assert found <= poisson_price.delta_upper(e) + 1e-4
                if math.dist(one, two) <= 1 + 1e-9:
                    assert found <= fixed_price.delta_upper(e) + 1e-4


def test_drawn_copies_of_a_gaussian():
    event = ev.Subsample(ev.Gaussian(1.0), ev.WithReplacement(3, 4))
    weights = [math.comb(3, k) * 0.25**k * 0.75 ** (3 - k) for k in range(4)]
    p, q = density(weights, range(4), 1.0), density((1,), (0,), 1.0)
    own = loss(event)
    assert own.tight
    for e in EPSILONS:
        assert own.delta_upper(e) == pytest.approx(max(integral(p, q, e), integral(q, p, e)), rel=1e-6, abs=2e-7)
        # under replacement: x moves the sum one way, x' the other, and the others are between them
        for a in (0.0, 0.3, 0.5):
            left, right = density(weights, [k * (1 - a) for k in range(4)], 1.0), density(weights, [-k * a for k in range(4)], 1.0)
            assert integral(left, right, e) <= loss(event, neighbors="replace").delta_upper(e) + 2e-7


def test_truncated_gaussian_beside_a_public_figure():
    """dp-accounting 0.6 has 0.60699 where the population is exactly 60 000; ours holds for any number up to it."""
    event = ev.Repeat(ev.Subsample(ev.Gaussian(1.0), ev.TruncatedPoisson(256 / 60_000, 320, 60_000)), 600)
    found = loss(event).epsilon(1e-5)
    assert found.upper == pytest.approx(0.60699, rel=2e-3)
    assert found.upper > loss(ev.Repeat(ev.Subsample(ev.Gaussian(1.0), ev.Poisson(256 / 60_000)), 600)).epsilon(1e-5).upper


def test_group_of_units_in_poisson_batches():
    sigma, q, k = 1.2, 0.3, 3
    weights = [math.comb(k, j) * q**j * (1 - q) ** (k - j) for j in range(k + 1)]
    p, o = density(weights, range(k + 1), sigma), density((1,), (0,), sigma)
    own = loss(ev.Subsample(ev.Gaussian(sigma), ev.Poisson(q)), group=k)
    assert own.tight
    for e in EPSILONS:
        assert own.delta_upper(e) == pytest.approx(max(integral(p, o, e), integral(o, p, e)), rel=1e-6, abs=2e-7)


@pytest.mark.parametrize("k", [2, 3])
def test_general_group_bound_holds_for_laplace_in_poisson_batches(k):
    q, b = 0.4, 1.3
    own = loss(ev.Subsample(ev.DiscreteLaplace(b, 1), ev.Poisson(q)), group=k)
    p = sum(math.comb(k, j) * q**j * (1 - q) ** (k - j) * noise("laplace", j) for j in range(k + 1))
    o = noise("laplace", 0)
    for e in EPSILONS:
        assert own.delta_upper(e) >= max(profile(p, o, e), profile(o, p, e)) - 1e-11
    assert not own.tight


# ---- operators on masses


EDGES = np.linspace(-3, 3, 241)


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize("q", [1e-9, 1e-3, 0.5, 0.999])
def test_poisson_operator_is_the_closed_form(direction, q):
    operator = sampling.PoissonPair(GaussianPair(0.9), q, direction)
    closed = SubsampledGaussianPair(0.9, q, direction)
    edges = EDGES * max(q, 1e-6)
    mine, theirs = operator.masses(edges), closed.masses(edges)
    assert mine.p == pytest.approx(theirs.p, rel=1e-6, abs=1e-12)
    assert mine.q == pytest.approx(theirs.q, rel=1e-6, abs=1e-12)
    for tail in (-5.0, -50.0, -120.0):
        low, high = operator.span(tail)
        cells = closed.masses(np.array([low, high]))
        assert cells.p[0] <= math.exp(tail) * (1 + 1e-6) + 1e-300
        assert cells.p[-1] <= math.exp(tail) * (1 + 1e-6) + 1e-300


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_poisson_operator_keeps_what_is_lost_for_sure(direction):
    pair = price(ev.Subsample(ev.NonPrivate(), ev.Poisson(0.25)), Move()).at(0 if direction == "remove" else 1)
    cells = pair.masses(np.array([-1.0, 0.0, 1.0]))
    assert cells.p.sum() + cells.p_inf == pytest.approx(1.0)
    if direction == "remove":
        assert cells.p_inf == 0.25
    else:
        assert cells.p_inf == 0.0
        assert pair.span(-50.0)[1] == pytest.approx(-math.log(0.75))
    assert loss(ev.Subsample(ev.NonPrivate(), ev.Poisson(0.25))).delta(5.0).upper == pytest.approx(0.25)


@pytest.mark.parametrize(
    "pair",
    [
        sampling.PoissonPair(LaplacePair(0.7), 0.3, "remove"),
        sampling.PoissonPair(LaplacePair(0.7), 0.3, "add"),
        sampling.without_replacement(LaplacePair(0.7), 0.3),
        sampling.without_replacement(GaussianPair(0.7), 0.3),
        sampling.MixPair((0.3, 0.7), (GaussianPair(1.0), LaplacePair(2.0))),
        sampling.MaxPair((GaussianPair(1.0), LaplacePair(0.9))),
        sampling.ReplacedGaussianPair(0.7, 0.2),
        sampling.ReplacedGaussianPair(0.05, 1e-4),
    ],
    ids=repr,
)
def test_operators_keep_the_contract(pair):
    cells = pair.masses(EDGES)
    assert (cells.p >= 0).all()
    assert (cells.q >= 0).all()
    assert cells.p.sum() + cells.p_inf == pytest.approx(1, abs=1e-12)
    assert cells.q.sum() <= 1 + 1e-12
    inner = slice(1, -1)
    assert (cells.p[inner] <= np.exp(EDGES[1:]) * cells.q[inner] * (1 + 1e-9) + 1e-15).all(), "losses lie in their cells"
    assert (cells.p[inner] >= np.exp(EDGES[:-1]) * cells.q[inner] * (1 - 1e-9) - 1e-15).all()
    coarse = pair.masses(EDGES[::8])
    assert coarse.p[1:-1] == pytest.approx(np.add.reduceat(cells.p[1:-1], np.arange(0, 240, 8)), rel=1e-9, abs=1e-15)
    for tail in (-3.0, -40.0, -100.0):
        low, high = pair.span(tail)
        ends = pair.masses(np.array([low, high]))
        assert ends.p[0] <= math.exp(tail) * (1 + 1e-6) + 1e-300
        assert ends.p[-1] <= math.exp(tail) * (1 + 1e-6) + 1e-300
    assert pair.std() > 0


def test_the_largest_profile_is_pointwise():
    one, two = GaussianPair(1.0), LaplacePair(0.9)
    both = sampling.MaxPair((one, two)).masses(EDGES)

    def heights(cells):
        p, q = cells.p[::-1].cumsum()[-2::-1], cells.q[::-1].cumsum()[-2::-1]
        return p - np.exp(EDGES) * q

    assert heights(both) == pytest.approx(np.maximum(heights(one.masses(EDGES)), heights(two.masses(EDGES))), abs=1e-12)


def test_the_largest_of_finite_laws_keeps_those_that_are_somewhere_above():
    wide, narrow = randomized_response(1.0, 2), randomized_response(0.5, 2)
    failing = approx_dp(0.5, 1e-3)
    assert sampling.largest((narrow, wide)) is wide
    kept = sampling.largest((wide, narrow, failing))
    assert isinstance(kept, sampling.MaxPair)
    assert set(kept.pairs) == {wide, failing}
    mixed = ev.Parallel((ev.PureDp(1.0), ev.ApproxDp(0.5, 1e-3), ev.ApproxDp(0.7, 1e-4)))
    bound = loss(mixed, neighbors="replace").epsilon(1e-2)  # its composition needs a lattice far finer than it is long
    assert 1.0 - 0.05 < bound.lower <= bound.upper <= 2.0


def test_halves_are_the_two_profiles():
    share = 0.3
    pair = sampling.without_replacement(GaussianPair(1.0), share)
    cells = pair.masses(EDGES)
    p, q = cells.p[::-1].cumsum()[-2::-1], cells.q[::-1].cumsum()[-2::-1]
    height = p - np.exp(EDGES) * q
    up = SubsampledGaussianPair(1.0, share, "remove").masses(EDGES)
    down = SubsampledGaussianPair(1.0, share, "add").masses(EDGES)
    for cells, side in ((up, EDGES >= 0), (down, EDGES < 0)):
        own = cells.p[::-1].cumsum()[-2::-1] - np.exp(EDGES) * cells.q[::-1].cumsum()[-2::-1]
        assert height[side] == pytest.approx(own[side], abs=1e-12)


def test_replaced_gaussian_deep_in_the_tail():
    pair = sampling.ReplacedGaussianPair(1.0, 0.01)
    low, high = pair.span(math.log(1e-40))
    cells = pair.masses(np.array([low, high]))
    assert 0 < cells.p[-1] <= 1e-40
    assert cells.p[-1] == pytest.approx(0.01 * ndtr(1 - pair._output(np.array([high]))[0]), rel=1e-2)


def test_times_drawn_is_binomial():
    share, law, lost = sampling.times_drawn(5, 3)
    assert share == pytest.approx(1 - (2 / 3) ** 5)
    assert lost == 0
    for k, weight in law:
        assert weight == pytest.approx(math.comb(5, k) * (1 / 3) ** k * (2 / 3) ** (5 - k) / share)
    share, law, lost = sampling.times_drawn(10**6, 10)
    assert len(law) == 64
    assert sum(w for _, w in law) == pytest.approx(1)
    assert 0 < lost < 1e-50
    assert sum(k * w for k, w in law) == pytest.approx(1e5, rel=0.02)
    assert sum(k * w for k, w in law) > 1e5, "copies are rounded up"


# ---- bounds from the shape


@pytest.mark.parametrize(
    ("event", "relation"),
    [
        (ev.Subsample(ev.Laplace(1.0), ev.Poisson(0.2)), "add_remove"),
        (ev.Subsample(ev.Laplace(1.0), ev.Poisson(0.2)), "replace"),
        (ev.Subsample(ev.Laplace(1.0), ev.FixedSize(2, 10)), "replace"),
        (ev.Subsample(ev.PureDp(1.0), ev.WithReplacement(2, 10)), "add_remove"),
        (ev.Subsample(ev.Laplace(1.0), ev.TruncatedPoisson(0.2, 3, 10)), "add_remove"),
        (ev.Parallel((ev.Laplace(1.0), ev.PureDp(2.0))), "add_remove"),
    ],
    ids=repr,
)
def test_pure_epsilon_is_where_the_profile_ends(event, relation):
    move = Move(replace=relation == "replace")
    pure = pure_epsilon(event, move)
    own = price(event, move)
    for pair in own.upper:
        cells = pair.masses(np.array([pure * (1 + 1e-9)]))
        assert cells.p[-1] + cells.p_inf <= 1e-9
    assert any(float(pair.masses(np.array([pure * 0.9])).p[-1]) > 0 for pair in own.upper)
    assert rho(event, move) <= 0.5 * pure**2


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize(("sigma", "q"), [(1.0, 0.3), (0.6, 0.05), (3.0, 0.8)])
def test_groups_replaced_in_poisson_batches(sigma, q, k):
    """Each unit moves its sum from 1 to −1, or to anything between; all k, each in the batch on its own."""
    own = loss(ev.Subsample(ev.Gaussian(sigma), ev.Poisson(q)), group=k, neighbors="replace")
    law = [math.comb(k, j) * q**j * (1 - q) ** (k - j) for j in range(k + 1)]
    chain = 0
    for e in EPSILONS:
        bound = own.delta_upper(e)
        for a, b in ((1, -1), (1, 0), (0, 1), (0.5, -1), (-1, 1)):
            truth = integral(density(law, [a * j for j in range(k + 1)], sigma), density(law, [b * j for j in range(k + 1)], sigma), e)
            assert bound >= truth - 2e-7
        half = loss(ev.Subsample(ev.Gaussian(sigma), ev.Poisson(q)), neighbors="replace").delta_upper(e / k)
        chain += bound <= 1.002 * half * sum(math.exp(i * e / k) for i in range(k)) + 1e-9
    assert chain == len(EPSILONS), "never above the general bound on groups"


def test_groups_of_shuffled_reports_without_a_pure_epsilon():
    own = loss(ev.ShuffledReports(ev.Gaussian(2.0), 3), group=1000)
    assert own.epsilon(1e-5).upper == pytest.approx(loss(ev.Repeat(ev.Gaussian(2.0), 1000)).epsilon(1e-5).upper)
    assert own.epsilon(1e-5).lower == 0.0


def test_zcdp_in_shuffled_batches_adds_before_it_is_converted():
    epochs = ev.Repeat(ev.Subsample(ev.Zcdp(0.01), ev.Shuffled(10, 100)), 50)
    assert loss(epochs, group=3).epsilon(1e-6).upper == pytest.approx(loss(ev.Zcdp(0.05 * 9)).epsilon(1e-6).upper)


def test_fewer_units_than_a_float_counts_are_drawn_as_often_as_they_are():
    """Differences of log-gammas are off by 0.004 at 10¹² draws; incomplete beta functions are not."""
    share, law, lost = sampling.times_drawn(10**12, 2 * 10**12)
    assert lost < 1e-59
    assert share == pytest.approx(-math.expm1(-0.5), rel=1e-12)
    for k, weight in law[:12]:
        assert weight * share == pytest.approx(math.exp(-0.5) * 0.5**k / math.factorial(k), rel=1e-9)
    for size, population in ((10**12, 2), (10**9, 7), (10**6, 1000)):
        share, law, lost = sampling.times_drawn(size, population)
        assert share == pytest.approx(1.0)
        assert len(law) <= 64
        assert 1 <= sum(k * w for k, w in law) / (size / population) < 1.02
        assert sum(w for _, w in law) + lost == pytest.approx(1, abs=1e-12)
        middle = next(i for i, (k, _) in enumerate(law) if k >= size / population)
        half = sum(w for _, w in law[: middle + 1])
        assert 0.5 - 1e-3 <= half <= 0.7


NESTS = (
    lambda event: ev.Subsample(event, ev.Poisson(0.95)),
    lambda event: ev.Subsample(event, ev.FixedSize(95, 100)),
    lambda event: ev.Subsample(event, ev.WithReplacement(2, 3)),
    lambda event: ev.Subsample(event, ev.TruncatedPoisson(0.95, 95, 100)),
)


def nested(leaf, layer, depth):
    for _ in range(depth):
        leaf = layer(leaf)
    return leaf


@pytest.mark.parametrize("relation", ["add_remove", "replace"])
@pytest.mark.parametrize("layer", NESTS)
def test_samplers_within_samplers_do_not_double_the_work(layer, relation):
    """Each layer asks the one below under several moves, so that 40 of them would never end."""
    event = nested(ev.Laplace(5.0), layer, 40)
    found = loss(event, neighbors=relation).epsilon_upper(1e-6)
    assert 0 <= found <= pure_epsilon(event, Move(replace=relation == "replace")) * (1 + 1e-9)
    assert np.isfinite(rdp.curve(event, [2.0, 8.0], neighbors=relation)).all()
    assert np.isfinite(rdp.curve(event, [2.0, 8.0], neighbors=relation, group=3)).all()


@pytest.mark.parametrize("depth", [2, 4, 40])
@pytest.mark.parametrize("leaf", [ev.Laplace(0.5), ev.Gaussian(1.0)])
def test_poisson_batches_of_poisson_batches_are_poisson_batches(leaf, depth):
    event, same = nested(leaf, NESTS[0], depth), ev.Subsample(leaf, ev.Poisson(0.95**depth))
    for share in (1e-2, 1e-6):
        truth = loss(same).epsilon(share)
        assert truth.lower * (1 - 1e-9) <= loss(event).epsilon_upper(share) <= truth.upper * 1.01
    assert (rdp.curve(event, [1.5, 2.0, 8.0, 30.5]) >= rdp.curve(same, [1.5, 2.0, 8.0, 30.5]) * (1 - 1e-9)).all()
