"""ε at δ = 0 and ρ from the shape of an event alone: groups, replaced units, mean numbers of runs."""

import math

import mpmath
import pytest

from dither.accounting._bounds import SWAP, Move, mean_runs, pure_epsilon, rho
from dither.core import events as ev

LEAVES = [
    (ev.Laplace(0.5), 2.0),
    (ev.DiscreteLaplace(4.0, 3), 0.75),
    (ev.RandomizedResponse(0.7, 5), 0.7),
    (ev.PureDp(0.3), 0.3),
    (ev.ApproxDp(0.3, 0.0), 0.3),
    (ev.ExponentialMechanism(0.3), 0.3),
    (ev.Parallel((ev.PureDp(0.3), ev.PureDp(0.2))), 0.3),
]


@pytest.mark.parametrize(("event", "one"), LEAVES, ids=repr)
def test_a_group_costs_its_size(event, one):
    for size in (1, 2, 7):
        assert pure_epsilon(event, Move(group=size)) == pytest.approx(size * one, rel=1e-15)
    assert pure_epsilon(ev.Sequence((ev.Repeat(event, 3), event)), Move(group=2)) == pytest.approx(8 * one, rel=1e-15)


def test_a_unit_replaced_within_one_part_or_across_two():
    """A swap within a sampled part can tell 2ε at once: more than leaving one part and entering another, each at ε."""
    for q in (0.01, 0.5):
        sampled = ev.Subsample(ev.PureDp(1.0), ev.Poisson(q))
        present, swapped = (math.log1p(q * math.expm1(scale)) for scale in (1.0, 2.0))
        assert pure_epsilon(sampled, SWAP) == pytest.approx(swapped)
        assert pure_epsilon(ev.Parallel((sampled, sampled)), SWAP) == pytest.approx(max(2 * present, swapped))
        assert pure_epsilon(ev.Parallel((sampled, sampled, sampled)), Move(replace=True, group=3)) == pytest.approx(
            3 * max(2 * present, swapped)
        )
        assert swapped > 2 * present
    parts = ev.Parallel((ev.PureDp(1.0), ev.PureDp(0.25), ev.PureDp(0.5)))
    assert pure_epsilon(parts, Move(replace=True, group=2)) == pytest.approx(2 * 1.5)


@pytest.mark.parametrize("shape", [0.0, 1.0, -0.5, 3.0])
def test_the_mean_number_of_runs_is_never_too_small(shape):
    """Shape 0 is the logarithmic law; at least one run, so the negative binomial is cut at 0."""
    with mpmath.workdps(40):
        for gamma in (0.9, 0.5, 1 / 3, 0.1, 0.01, 1e-5, *(i / 97 for i in range(1, 97))):
            g = mpmath.mpf(gamma)
            exact = (1 / g - 1) / -mpmath.log(g) if not shape else shape * (1 - g) / (g * (1 - g ** mpmath.mpf(shape)))
            assert exact <= mean_runs(ev.NegativeBinomialRuns(shape, gamma)) <= exact * (1 + 3e-9)


@pytest.mark.parametrize("sampler", [ev.Poisson(0.5), ev.TruncatedPoisson(0.5, 3, 10)], ids=repr)
def test_a_unit_replaced_in_a_batch_moves_twice_what_presence_moves(sampler):
    """Both units may be in their batches: two Gaussians at distance 2, which Rényi divergence meets as q goes to 1."""
    assert rho(ev.Subsample(ev.Gaussian(1.0), sampler), SWAP) == pytest.approx(2.0)
    assert rho(ev.Subsample(ev.Gaussian(1.0), ev.Poisson(0.5))) == pytest.approx(0.5)
