"""Laws of prices: composition commutes and associates, more costs more, rules change nothing, JSON changes nothing."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dither import events as ev
from dither.accounting import loss
from dither.accounting._bounds import Move
from dither.accounting._compose import Composition
from dither.accounting._price import RULES, parts
from dither.core.units import Neighbors

multipliers = st.floats(0.7, 30.0)
small = st.floats(0.01, 1.5)
leaves = st.one_of(
    st.builds(ev.Gaussian, multipliers),
    st.builds(ev.Laplace, multipliers),
    st.builds(ev.PureDp, small),
    st.builds(ev.RandomizedResponse, small, st.integers(2, 20)),
    st.builds(ev.ExponentialMechanism, small),
    st.builds(ev.Zcdp, st.floats(1e-3, 0.5)),
    st.builds(ev.DiscreteGaussian, st.floats(2.0, 30.0), st.integers(1, 2)),
    st.builds(ev.DiscreteLaplace, st.floats(2.0, 30.0), st.integers(1, 3)),
)
relations = st.sampled_from(list(Neighbors))
noises = st.one_of(st.builds(ev.Gaussian, multipliers), st.builds(ev.Laplace, multipliers))
samplers = st.one_of(
    st.builds(ev.Poisson, st.floats(0.01, 1.0)),
    st.integers(1, 20).flatmap(lambda b: st.builds(ev.FixedSize, st.just(b), st.integers(b, 200))),
    st.builds(ev.WithReplacement, st.integers(1, 6), st.integers(1, 100)),
    st.builds(ev.TruncatedPoisson, st.floats(0.01, 0.9), st.integers(1, 30), st.integers(1, 60)),
    st.integers(1, 20).flatmap(lambda b: st.builds(ev.Shuffled, st.just(b), st.integers(b, 200))),
)
FEW = settings(max_examples=25)
SHARE = 1e-5
SLACK = 3e-3


def upper(event, **options):
    return loss(event, **options).epsilon_upper(SHARE)


def close(one, other):
    return one == other or one == pytest.approx(other, rel=SLACK, abs=2e-6)


@FEW
@given(st.lists(leaves, min_size=2, max_size=3), relations, st.randoms(use_true_random=False))
def test_order_and_nesting_do_not_matter(events, relation, shuffle):
    mixed = list(events)
    shuffle.shuffle(mixed)
    flat = upper(ev.Sequence(tuple(events)), neighbors=relation)
    nested = ev.Sequence((ev.Sequence(tuple(mixed[:1])), ev.Sequence((ev.Sequence(tuple(mixed[1:])),))))
    assert close(flat, upper(nested, neighbors=relation))


@FEW
@given(leaves, st.integers(2, 6))
def test_more_runs_cost_more_but_no_more_than_their_sum(event, n):
    once, often = loss(event).epsilon(SHARE / n), loss(ev.Repeat(event, n)).epsilon(SHARE)
    assert often.upper >= loss(event).epsilon(SHARE).lower * (1 - SLACK)
    assert often.upper <= n * once.upper * (1 + SLACK) + 1e-6


@FEW
@given(leaves, leaves)
def test_both_together_cost_at_least_either(one, other):
    both = upper(ev.Sequence((one, other)))
    assert both >= max(loss(one).epsilon(SHARE).lower, loss(other).epsilon(SHARE).lower) * (1 - SLACK) - 1e-9


@FEW
@given(multipliers, st.floats(1.05, 3.0), samplers, relations)
def test_more_noise_costs_less_under_every_sampler(sigma, factor, sampler, relation):
    event = ev.Repeat(ev.Subsample(ev.Gaussian(sigma), sampler), 3)
    calmer = ev.Repeat(ev.Subsample(ev.Gaussian(sigma * factor), sampler), 3)
    assert upper(calmer, neighbors=relation) <= upper(event, neighbors=relation) * (1 + SLACK) + 2e-6


@FEW
@given(noises, samplers, relations)
def test_sampling_never_costs_more_than_its_worst_batches(noise, sampler, relation):
    """Replacement is at most two moves, and copies are drawn at most ``size`` times."""
    copies = sampler.size if isinstance(sampler, ev.WithReplacement) else 1
    moves = 2 if isinstance(sampler, ev.Poisson | ev.TruncatedPoisson) else 1
    worst = type(noise)(noise.noise_multiplier / copies / moves)
    assert upper(ev.Subsample(noise, sampler), neighbors=relation) <= upper(worst) * (1 + SLACK) + 2e-6


@FEW
@given(noises, st.integers(1, 3), samplers)
def test_larger_groups_cost_more(noise, k, sampler):
    event = ev.Subsample(noise, sampler)
    assert upper(event, group=k + 1) >= loss(event, group=k).epsilon(SHARE).lower * (1 - SLACK)


@FEW
@given(st.lists(st.builds(ev.Gaussian, multipliers) | st.builds(ev.Zcdp, st.floats(1e-3, 0.3)), min_size=2, max_size=4), st.integers(1, 3))
def test_rules_change_no_price(events, k):
    """zCDP merged first is a better bound than its conversions composed, so that rule may only lower the price."""
    event, move = ev.Sequence(tuple(events)), Move(group=k)
    with_rules, without = (parts(event, move, rules=rules) for rules in (RULES, ()))
    one, other = (Composition([(p.at(0), c) for p, c in found.prices]).epsilon_upper(SHARE) for found in (with_rules, without))
    assert one <= other * (1 + SLACK) + 2e-6
    if not any(isinstance(e, ev.Zcdp) for e in events):
        assert close(one, other)


@FEW
@given(leaves | st.builds(ev.Subsample, noises, samplers), relations, st.integers(1, 3))
def test_a_price_survives_json(event, relation, k):
    assert upper(ev.from_json(ev.to_json(event)), neighbors=relation, group=k) == upper(event, neighbors=relation, group=k)


@FEW
@given(leaves | st.builds(ev.Subsample, noises, samplers), relations)
def test_the_profile_falls_and_inverts(event, relation):
    own = loss(event, neighbors=relation)
    heights = [own.delta_upper(e) for e in (0.0, 0.1, 0.5, 1.0, 2.0)]
    assert heights == sorted(heights, reverse=True)
    for share in (1e-3, 1e-8):
        found = own.epsilon(share)
        if math.isfinite(found.upper):
            assert own.delta(found.upper).lower <= share * (1 + 1e-6)
