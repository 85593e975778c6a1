"""Figures of dp-accounting 0.6.0 (PLD at interval 1e-4, or RDP where it has no other), computed once with its public functions."""

import pytest

from dither import events as ev
from dither.accounting import loss

RATE = ev.Poisson(256 / 60_000)

PLD = [
    (ev.Repeat(ev.DiscreteGaussian(5.0, 2), 20), {}, 1e-6, 9.617349082634155),
    (ev.Repeat(ev.DiscreteLaplace(4.0, 3), 12), {}, 1e-6, 8.998995972179577),
    (ev.Repeat(ev.Subsample(ev.Gaussian(1.2), ev.Poisson(0.02)), 300), {"group": 3}, 1e-6, 6.020444615409552),
    (ev.Repeat(ev.Subsample(ev.Laplace(2.0), ev.Poisson(0.05)), 200), {}, 1e-6, 1.470455170135967),
    (ev.Repeat(ev.Subsample(ev.Gaussian(1.0), RATE), 600), {"neighbors": "replace"}, 1e-5, 0.8493715382985094),
    (ev.Repeat(ev.Subsample(ev.Gaussian(1.0), RATE), 600), {}, 1e-5, 0.577329),
]


@pytest.mark.parametrize(("event", "options", "share", "truth"), PLD, ids=range(len(PLD)))
def test_same_as_another_accountant(event, options, share, truth):
    found = loss(event, **options).epsilon(share)
    assert found.lower * (1 - 1e-4) <= truth <= found.upper * (1 + 1e-4)
    assert found.upper / found.lower - 1 <= 1e-3


RDP = [
    (ev.Repeat(ev.Subsample(ev.Gaussian(1.0), ev.FixedSize(256, 60_000)), 600), "replace", 1.2578580059121816),
    (ev.Repeat(ev.Subsample(ev.Gaussian(2.0), ev.FixedSize(600, 60_000)), 1000), "replace", 1.4453),
    (ev.TreeGaussian(10.0, 1024), "add_remove", 1.3785),
]


@pytest.mark.parametrize(("event", "neighbors", "their"), RDP, ids=["fixed 256", "fixed 600", "tree"])
def test_better_than_renyi_and_not_too_good(event, neighbors, their):
    found = loss(event, neighbors=neighbors).epsilon(1e-5)
    assert 0.4 * their < found.upper < 0.95 * their


def test_truncated_poisson_beside_theirs():
    """Theirs, 0.60699, is for exactly 60 000 units; ours also covers every smaller number."""
    event = ev.Repeat(ev.Subsample(ev.Gaussian(1.0), ev.TruncatedPoisson(256 / 60_000, 320, 60_000)), 600)
    assert 0.6069913 * (1 - 1e-4) < loss(event).epsilon(1e-5).upper < 0.6069913 * 1.002
