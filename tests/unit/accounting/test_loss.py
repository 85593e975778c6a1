"""The public price: table of leaves, directions, groups, nesting, refusals, both sides of every bound."""

import math
import subprocess
import sys

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from dither import events as ev
from dither.accounting import Loss, delta, epsilon, loss
from dither.accounting._price import COUNT_TOTAL_MAX, terms
from dither.core.errors import InputError, UnknownNameError
from dither.core.units import Bound, Neighbors

LEAVES = [
    ev.Laplace(2.0),
    ev.Gaussian(3.0),
    ev.DiscreteLaplace(2.0, 1),
    ev.DiscreteGaussian(4.0, 2),
    ev.RandomizedResponse(0.5, 2),
    ev.RandomizedResponse(0.5, 7),
    ev.PureDp(0.4),
    ev.ApproxDp(0.3, 1e-7),
    ev.Zcdp(0.05),
    ev.ExponentialMechanism(0.6),
    ev.TreeGaussian(8.0, 64, 2, 16),
    ev.MatrixGaussian(5.0, (1.0, 0.5, 0.25), 20, 3, 4),
]
STEP = ev.Subsample(ev.Gaussian(1.0), ev.Poisson(0.01))


def width(bound):
    return bound.upper / bound.lower - 1 if bound.lower else math.inf


@pytest.mark.parametrize("neighbors", list(Neighbors))
@pytest.mark.parametrize("event", LEAVES, ids=repr)
def test_repeat_is_a_sequence_for_every_leaf(event, neighbors):
    for n in (1, 2, 5):
        one = loss(ev.Repeat(event, n), neighbors=neighbors)
        other = loss(ev.Sequence((event,) * n), neighbors=neighbors)
        nested = loss(ev.Sequence((ev.Repeat(event, n - 1), event)), neighbors=neighbors) if n > 1 else other
        assert one.epsilon(1e-5).upper == pytest.approx(other.epsilon(1e-5).upper, rel=1e-9)
        assert one.epsilon(1e-5).upper == pytest.approx(nested.epsilon(1e-5).upper, rel=1e-9)


@pytest.mark.parametrize("event", LEAVES, ids=repr)
def test_a_forgotten_count_would_show(event):
    assert loss(ev.Repeat(event, 50)).epsilon(1e-6).lower > 2 * loss(event).epsilon(1e-6).upper


@pytest.mark.parametrize("event", LEAVES, ids=repr)
@pytest.mark.parametrize("neighbors", list(Neighbors))
def test_both_sides_and_the_cheap_side_agree(event, neighbors):
    own = loss(ev.Repeat(event, 10), neighbors=neighbors)
    both = own.epsilon(1e-6)
    assert both.lower <= both.upper
    if own.tight:
        assert width(both) <= 1e-3
    assert own.epsilon_upper(1e-6) == pytest.approx(both.upper, rel=1e-3)
    shares = own.delta(both.upper)
    assert shares.lower <= 1e-6 * (1 + 1e-6)
    assert own.delta_upper(both.upper) == pytest.approx(shares.upper, rel=1e-2)


@pytest.mark.parametrize(
    ("event", "truth"),
    [
        (ev.Gaussian(1.0), 4.3771781),
        (ev.Repeat(ev.Gaussian(5.0), 100), 10.0),
        (ev.Repeat(ev.Laplace(10.0), 100), 4.6926674),
        (ev.Repeat(ev.RandomizedResponse(0.5), 50), 20.301001),
        (ev.Repeat(ev.RandomizedResponse(1.0, 16), 20), 11.781612),
        (ev.Sequence((ev.Repeat(ev.Laplace(2.0), 10), ev.Repeat(ev.Gaussian(5.0), 20))), 8.02091),
    ],
)
def test_known_figures(event, truth):
    share = 1e-5 if event == ev.Gaussian(1.0) else 1e-6
    truth = 10.997151 if truth == 10.0 else truth
    found = loss(event).epsilon(share)
    assert found.lower * (1 - 1e-4) <= truth <= found.upper * (1 + 1e-4)
    assert width(found) <= 1e-3


def test_directions_differ_and_the_worse_one_is_the_price():
    own = loss(ev.Repeat(STEP, 200))
    sides = [above.epsilon(1e-6).upper for above, _ in own._sides]
    assert len(sides) == 2
    assert abs(sides[0] - sides[1]) > 0.01 * max(sides)
    assert own.epsilon(1e-6).upper == max(sides)


def test_replaced_is_two_moves_in_poisson_batches_and_one_move_outside():
    assert loss(ev.Gaussian(1.0), neighbors="replace").epsilon(1e-5) == loss(ev.Gaussian(1.0)).epsilon(1e-5)
    whole = ev.Subsample(ev.Gaussian(2.0), ev.Poisson(1.0))
    assert loss(whole).epsilon(1e-5).upper == pytest.approx(loss(ev.Gaussian(2.0)).epsilon(1e-5).upper)
    assert loss(whole, neighbors="replace").epsilon(1e-5).upper == pytest.approx(loss(ev.Gaussian(1.0)).epsilon(1e-5).upper)
    every = ev.Subsample(ev.Gaussian(2.0), ev.FixedSize(7, 7))
    assert loss(every, neighbors="replace").epsilon(1e-5).upper == pytest.approx(loss(ev.Gaussian(2.0)).epsilon(1e-5).upper)


@pytest.mark.parametrize("k", [2, 5])
def test_groups_scale_what_can_be_scaled(k):
    for event, same in [
        (ev.Gaussian(6.0), ev.Gaussian(6.0 / k)),
        (ev.Laplace(6.0), ev.Laplace(6.0 / k)),
        (ev.DiscreteLaplace(6.0, 1), ev.DiscreteLaplace(6.0, k)),
        (ev.DiscreteGaussian(6.0, 1), ev.DiscreteGaussian(6.0, k)),
        (ev.PureDp(0.1), ev.PureDp(0.1 * k)),
        (ev.Zcdp(0.01), ev.Zcdp(0.01 * k * k)),
        (ev.ExponentialMechanism(0.1), ev.ExponentialMechanism(0.1 * k)),
    ]:
        assert loss(event, group=k).epsilon(1e-6).upper == pytest.approx(loss(same).epsilon(1e-6).upper, rel=1e-9, abs=1e-12)
    grouped = loss(ev.Repeat(STEP, 50), group=k)
    assert grouped.tight
    assert grouped.epsilon(1e-5).upper > 1.5 * loss(ev.Repeat(STEP, 50)).epsilon(1e-5).upper


def test_parallel_costs_the_worst_part():
    parts = (ev.Gaussian(2.0), ev.Gaussian(1.0), ev.Laplace(3.0))
    own = loss(ev.Parallel(parts))
    assert own.epsilon(1e-6).upper == pytest.approx(max(loss(p).epsilon(1e-6).upper for p in parts))
    assert own.tight
    for e in (0.0, 0.1, 0.3, 1.0):
        assert own.delta_upper(e) == pytest.approx(max(loss(p).delta_upper(e) for p in parts))
    many = ev.Repeat(ev.Parallel((ev.Gaussian(10.0), ev.Laplace(5.0))), 10)
    assert loss(many).epsilon(1e-6).upper >= loss(ev.Repeat(ev.Laplace(5.0), 10)).epsilon(1e-6).lower
    assert loss(many).epsilon(1e-6).upper >= loss(ev.Repeat(ev.Gaussian(10.0), 10)).epsilon(1e-6).lower
    assert loss(ev.Parallel((ev.Gaussian(2.0),) * 5)).epsilon(1e-6) == loss(ev.Gaussian(2.0)).epsilon(1e-6)
    assert loss(ev.Parallel((ev.Gaussian(2.0), ev.Gaussian(3.0))), group=3).epsilon(1e-6).upper == pytest.approx(
        loss(ev.Gaussian(2.0), group=3).epsilon(1e-6).upper
    )


def test_parallel_under_replacement_may_cost_two_parts():
    own = loss(ev.Parallel((ev.Gaussian(2.0), ev.Gaussian(1.0), ev.Gaussian(1.5))), neighbors="replace")
    both = loss(ev.Sequence((ev.Gaussian(1.0), ev.Gaussian(1.5))))
    assert own.epsilon(1e-6).upper == pytest.approx(both.epsilon(1e-6).upper)
    assert loss(ev.Parallel((ev.PureDp(1.0), ev.PureDp(0.25), ev.PureDp(0.5))), neighbors="replace").pure_epsilon == 1.5
    mixed = loss(ev.Parallel((ev.Gaussian(2.0), ev.Laplace(1.0))), neighbors="replace")
    truth = loss(ev.Sequence((ev.Gaussian(2.0), ev.Laplace(1.0)))).epsilon(1e-6)
    assert mixed.epsilon(1e-6).upper >= truth.lower


@pytest.mark.parametrize("neighbors", list(Neighbors))
@pytest.mark.parametrize(
    "event",
    [
        ev.Subsample(ev.Sequence((ev.Gaussian(3.0), ev.Laplace(4.0))), ev.Poisson(0.1)),
        ev.Subsample(ev.Repeat(ev.Subsample(ev.Gaussian(2.0), ev.Poisson(0.5)), 3), ev.Poisson(0.1)),
        ev.Subsample(ev.Repeat(ev.Laplace(4.0), 3), ev.FixedSize(5, 50)),
        ev.Subsample(ev.Subsample(ev.Laplace(2.0), ev.Poisson(0.5)), ev.WithReplacement(3, 50)),
        ev.Parallel((ev.Sequence((ev.Gaussian(3.0), ev.Laplace(4.0))), ev.Repeat(ev.PureDp(0.1), 4))),
        ev.ShuffledReports(ev.Repeat(ev.RandomizedResponse(0.5), 3), 1000),
        ev.Repeat(ev.Subsample(ev.Sequence((ev.PureDp(0.3), ev.Gaussian(4.0))), ev.Shuffled(5, 50)), 20),
        ev.Repeat(ev.Subsample(ev.Gaussian(1.0), ev.TruncatedPoisson(0.1, 20, 100)), 5),
        ev.Repeat(ev.Subsample(ev.DiscreteGaussian(5.0, 1), ev.WithReplacement(3, 50)), 5),
    ],
    ids=repr,
)
def test_anything_goes_in_anything(event, neighbors):
    own = loss(event, neighbors=neighbors)
    found = own.epsilon(1e-5)
    assert 0 <= found.lower <= found.upper < 60
    again = loss(ev.Repeat(event, 4), neighbors=neighbors).epsilon(1e-5)
    assert again.upper >= found.upper * (1 - 1e-6)
    assert own.tight or own.notes


@pytest.mark.parametrize("q", [0.05, 0.5])
def test_sampling_a_composition_is_between_its_parts(q):
    """Subsample(Repeat) of Gaussians merges to one, so the nested price has an exact twin."""
    nested = loss(ev.Subsample(ev.Sequence((ev.Gaussian(4.0), ev.Gaussian(4.0))), ev.Poisson(q)))
    twin = loss(ev.Subsample(ev.Gaussian(4.0 / math.sqrt(2)), ev.Poisson(q)))
    assert nested.epsilon(1e-6).upper == pytest.approx(twin.epsilon(1e-6).upper, rel=1e-9)
    mixed = loss(ev.Subsample(ev.Sequence((ev.Gaussian(4.0), ev.Laplace(1e6))), ev.Poisson(q)))
    alone = loss(ev.Subsample(ev.Gaussian(4.0), ev.Poisson(q)))
    assert mixed.epsilon(1e-6).upper == pytest.approx(alone.epsilon(1e-6).upper, rel=5e-3)
    assert mixed.epsilon(1e-6).upper >= alone.epsilon(1e-6).lower


# ---- edges


def test_nothing_private_costs_everything():
    own = loss(ev.Sequence((ev.Gaussian(1.0), ev.NonPrivate())))
    assert own.epsilon(1e-5).upper == math.inf == own.epsilon(0.0).lower
    assert own.delta(3.0).lower == 1.0
    assert own.epsilon_upper(0.5) == math.inf
    assert (own.trade_off([0.0, 0.5]).lower == 0).all()


def test_nothing_at_all_costs_nothing():
    for event in (ev.PureDp(0.0), ev.Zcdp(0.0), ev.ApproxDp(0.0, 0.0), ev.RandomizedResponse(0.0, 3), ev.ExponentialMechanism(0.0)):
        own = loss(ev.Repeat(event, 10**9))
        assert own.epsilon(0.0).upper == 0.0
        assert own.delta(0.0).upper == 0.0
        assert loss(ev.Repeat(ev.Sequence((event, ev.Gaussian(10.0))), 4)).epsilon(1e-6).upper == pytest.approx(
            loss(ev.Gaussian(5.0)).epsilon(1e-6).upper
        )


def test_delta_zero():
    for event in (ev.Gaussian(1.0), ev.Zcdp(1.0), ev.ApproxDp(1.0, 1e-9), STEP, ev.TreeGaussian(1.0, 4), ev.DiscreteGaussian(1.0)):
        with pytest.raises(InputError, match="delta=0 is not allowed for this event"):
            loss(event).epsilon(0.0)
        assert loss(event).epsilon_upper(0.0) == math.inf
    assert epsilon(ev.Repeat(ev.Laplace(2.0), 10), 0.0).upper == 5.0
    q = 0.01
    assert epsilon(ev.Repeat(ev.Subsample(ev.Laplace(1.0), ev.Poisson(q)), 10), 0.0).upper == pytest.approx(
        10 * math.log1p(q * math.expm1(1))
    )


def test_delta_down_to_the_pure_end():
    own = loss(ev.Repeat(ev.Laplace(2.0), 10))
    assert own.delta(5.0).upper == 0.0
    assert own.epsilon(1e-30).upper <= 5.0
    assert own.epsilon(1e-300).upper == pytest.approx(5.0, rel=1e-3)


def test_approximate_events_have_no_epsilon_below_their_delta():
    own = loss(ev.Repeat(ev.ApproxDp(0.1, 1e-6), 10))
    assert own.epsilon(9e-6).upper == math.inf
    assert own.epsilon(1.1e-5).upper < 1.0
    assert own.delta(50.0).upper == pytest.approx(1 - (1 - 1e-6) ** 10, rel=1e-6)


@pytest.mark.parametrize("bad", [math.nan, -1e-9, 1.0, 2.0, "1e-5", None, True, math.inf])
def test_bad_delta(bad):
    with pytest.raises(InputError, match="delta="):
        loss(ev.Gaussian(1.0)).epsilon(bad)


@pytest.mark.parametrize("bad", [math.nan, -1e-9, "1", None, math.inf, 1e10])
def test_bad_epsilon(bad):
    with pytest.raises(InputError, match="epsilon="):
        delta(ev.Gaussian(1.0), bad)


def test_bad_arguments():
    with pytest.raises(InputError, match="an event"):
        loss("Gaussian")
    with pytest.raises(UnknownNameError, match="neighbors"):
        loss(ev.Gaussian(1.0), neighbors="swap")
    for bad in (0, -1, 1.5, 10**7, True):
        with pytest.raises(InputError, match="group="):
            loss(ev.Gaussian(1.0), group=bad)
    with pytest.raises(InputError, match="false_positive_rates"):
        loss(ev.Gaussian(1.0)).trade_off([1.5])


def test_counts_are_exact_and_capped():
    deep = ev.Repeat(ev.Repeat(ev.PureDp(1e-9), 10**7), 10**7)
    assert terms(deep).counts == {ev.PureDp(1e-9): 10**14}
    with pytest.raises(InputError, match="expected at most"):
        loss(ev.Repeat(deep, 11))
    assert COUNT_TOTAL_MAX == 10**15
    assert loss(ev.Repeat(ev.Gaussian(1e9), 10**12)).epsilon(1e-6).upper == pytest.approx(loss(ev.Gaussian(1e3)).epsilon(1e-6).upper)
    many = ev.Sequence(tuple(ev.Gaussian(100.0 + i % 7) for i in range(50_000)))
    assert loss(many).epsilon(1e-6).upper < 20


def test_noise_finer_than_an_event_may_hold_still_merges():
    assert loss(ev.Repeat(ev.Gaussian(1e-3), 10**6)).epsilon(1e-6).upper == pytest.approx(0.5e12, rel=1e-3)


def test_select_best_inside_a_replaced_batch():
    best = ev.SelectBest(ev.Gaussian(5.0), ev.NegativeBinomialRuns(1.0, 0.1))
    twice = ev.SelectBest(ev.Gaussian(2.5), ev.NegativeBinomialRuns(1.0, 0.1))
    whole = loss(ev.Subsample(best, ev.Poisson(1.0)), neighbors="replace").epsilon(1e-5).upper
    assert whole == pytest.approx(loss(twice, neighbors="replace").epsilon(1e-5).upper, rel=1e-6), "replaced is two moves inside a batch"
    sampled = loss(ev.Subsample(best, ev.Poisson(0.1)), neighbors="replace").epsilon(1e-5).upper
    assert 0 < sampled < whole


def test_select_best_costs_more_than_one_run_and_composes():
    one = ev.Repeat(STEP, 100)
    for runs in (ev.NegativeBinomialRuns(1.0, 0.1), ev.NegativeBinomialRuns(0.0, 0.1), ev.PoissonRuns(10.0)):
        best = ev.SelectBest(one, runs)
        found = loss(best).epsilon(1e-5)
        assert loss(one).epsilon(1e-5).upper < found.upper < 8 * loss(one).epsilon(1e-5).upper
        assert loss(ev.Sequence((best, ev.Gaussian(20.0)))).epsilon(1e-5).upper > found.upper
    pure = ev.SelectBest(ev.PureDp(0.5), ev.NegativeBinomialRuns(1.0, 0.01))
    assert loss(pure).epsilon(0.0).upper == pytest.approx(0.5 + 2 * math.log((math.exp(0.5) + 0.01) / (1 + 0.01 * math.exp(0.5))))
    assert 1.4 < loss(pure).epsilon(0.0).upper < 1.5
    assert loss(pure).epsilon(1e-6).upper <= 1.5


# ---- the trade-off curve, Rényi figures, ρ


def test_trade_off_of_a_gaussian_is_the_normal_curve():
    rates = np.array([1e-3, 0.01, 0.1, 0.3, 0.5, 0.9])
    truth = ndtr(ndtri(1 - rates) - 1.0)
    curve = loss(ev.Gaussian(1.0)).trade_off(rates)
    assert (curve.lower <= truth + 1e-9).all()
    assert (curve.upper >= truth - 1e-9).all()
    assert curve.lower == pytest.approx(truth, abs=2e-3)
    assert curve.upper == pytest.approx(truth, abs=2e-2)
    ends = loss(ev.Gaussian(1.0)).trade_off([0.0, 1.0])
    assert ends.upper[1] == 0.0
    assert ends.lower[0] <= 1.0


def test_trade_off_of_a_sampled_run_brackets():
    curve = loss(ev.Repeat(STEP, 300)).trade_off(np.linspace(0, 1, 11))
    assert (curve.lower <= curve.upper).all()
    assert (np.diff(curve.lower) <= 1e-12).all()
    assert float((curve.upper - curve.lower).max()) < 0.05
    assert (curve.lower <= 1 - np.linspace(0, 1, 11) + 1e-12).all()


def test_zcdp_figures():
    assert loss(ev.Repeat(ev.Gaussian(2.0), 4)).zcdp().upper == pytest.approx(0.5)
    assert loss(ev.Repeat(ev.Gaussian(2.0), 4)).zcdp().lower == pytest.approx(0.5)
    assert loss(ev.PureDp(2.0)).zcdp().upper == 2.0
    assert loss(ev.ExponentialMechanism(2.0)).zcdp().upper == 0.5
    assert loss(ev.ApproxDp(1.0, 1e-6)).zcdp().upper == math.inf
    assert loss(ev.Repeat(STEP, 10)).zcdp().upper == pytest.approx(5.0)
    mixed = ev.Sequence((ev.Zcdp(0.1), ev.Laplace(2.0), ev.DiscreteGaussian(4.0, 2)))
    assert loss(mixed).zcdp().upper == pytest.approx(0.1 + 0.125 + 0.125)


def test_renyi_figures_of_a_gaussian():
    assert loss(ev.Repeat(ev.Gaussian(2.0), 4)).rdp([2.0, 5.0]) == pytest.approx([1.0, 2.5])


def test_a_loss_is_a_value():
    own = loss(ev.Gaussian(1.0))
    assert isinstance(own, Loss)
    assert loss(ev.Gaussian(1.0)) is own
    with pytest.raises(AttributeError):
        own.group = 2


EXTREME = [
    ev.Subsample(ev.Gaussian(1.0), ev.Poisson(1e-12)),
    ev.Subsample(ev.Gaussian(1.0), ev.FixedSize(1, 10**12)),
    ev.Subsample(ev.PureDp(1.0), ev.WithReplacement(10**6, 10)),
    ev.Subsample(ev.Gaussian(1.0), ev.WithReplacement(10**12, 10**12)),
    ev.Subsample(ev.Laplace(1.0), ev.TruncatedPoisson(1e-6, 1, 10**12)),
    ev.Subsample(ev.ApproxDp(0.1, 1e-9), ev.Shuffled(7, 7)),
    ev.Zcdp(1000.0),
    ev.Zcdp(1e-12),
    ev.ApproxDp(1000.0, 0.5),
    ev.RandomizedResponse(1e-9, 10**12),
    ev.ShuffledReports(ev.PureDp(1000.0), 10**12),
    ev.ShuffledReports(ev.RandomizedResponse(3.0, 10**6), 10**7),
    ev.TreeGaussian(1.0, 10**7, 100, 1000),
    ev.DiscreteGaussian(1e12, 10**12),
]


@pytest.mark.parametrize("options", [{}, {"neighbors": "replace"}, {"group": 3}], ids=repr)
@pytest.mark.parametrize("event", EXTREME, ids=repr)
def test_extremes_have_a_price(event, options):
    found = loss(event, **options).epsilon(1e-6)
    assert 0 <= found.lower <= found.upper
    assert loss(event, **options).delta(1.0).upper >= 0


def test_a_small_epsilon_is_zero_only_where_that_is_certain():
    assert loss(ev.PureDp(1e-12)).epsilon(1e-6).upper == 0.0
    assert loss(ev.PureDp(1e-12)).epsilon(1e-30).upper >= 1e-12 * (1 - 1e-9)
    assert loss(ev.Repeat(ev.Gaussian(1e6), 4)).epsilon(1e-6).upper == 0.0
    assert loss(ev.Repeat(ev.Gaussian(1e6), 4)).epsilon(1e-7).upper > 0.0


@pytest.mark.parametrize("first", ["dither.accounting.loss", "dither.accounting.explain", "dither.accounting._price", "dither"])
def test_functions_are_not_shadowed_by_their_modules(first):
    code = f"import importlib; importlib.import_module({first!r}); import dither; from dither.accounting import loss, explain, calibrate\n"
    code += "assert callable(loss) and callable(explain) and callable(calibrate) and callable(dither.loss) and callable(dither.explain)"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_a_bound_that_says_nothing_claims_nothing_from_below():
    own = loss(ev.SelectBest(ev.ApproxDp(1.0, 0.5), ev.NegativeBinomialRuns(1.0, 0.1)))
    assert not own.tight
    assert own.epsilon(1e-6) == Bound(0.0, math.inf)
    assert own.delta(1.0) == Bound(0.0, 1.0)
    assert own.trade_off([0.5]).upper[0] == 0.5
    assert loss(ev.NonPrivate()).epsilon(1e-6) == Bound(math.inf, math.inf)


@pytest.mark.parametrize("epsilon", [0.0028, 0.01, 0.02, 1.0, 4.125, 8.0])
@pytest.mark.parametrize("leaf", [ev.PureDp, lambda e: ev.Laplace(1 / e), lambda e: ev.DiscreteLaplace(1 / e)])
def test_sampling_two_runs_is_priced_by_what_two_runs_cost(leaf, epsilon):
    """H of ((1−q)Q + qP, Q) at α is q times that of (P, Q) at 1 + (α − 1)/q, whatever P and Q are composed of."""
    q, twice = 0.3, ev.Repeat(leaf(epsilon), 2)
    for share in (1e-2, 0.3):
        inner = share * loss(twice).delta(0.0).lower
        whole = loss(twice).epsilon(inner).lower
        assert loss(ev.Subsample(twice, ev.Poisson(q))).epsilon(q * inner).upper >= math.log1p(q * math.expm1(whole)) * (1 - 1e-9)


def test_parts_of_almost_the_same_price_under_replacement():
    event = ev.Parallel((ev.PureDp(0.01), ev.PureDp(0.010001)))
    truth = 0.020001 + math.log1p(-1e-6 / (0.5025 * 0.50250025))
    assert truth - 1e-9 <= loss(event, neighbors="replace").epsilon(1e-6).upper <= truth * 1.001


@pytest.mark.parametrize("epsilon", [680.0, 705.0, 720.0, 735.0, 744.0, 800.0, 1000.0])
def test_losses_whose_q_masses_no_float_holds(epsilon):
    """Masses of e^−720 have few digits and those of e^−750 none: neither is taken for what it is not."""
    for event, truth in (
        (ev.PureDp(epsilon), epsilon + math.log1p(-0.3)),
        (ev.Laplace(1 / epsilon), epsilon + 2 * math.log1p(-0.3)),
        (ev.Subsample(ev.PureDp(epsilon), ev.Poisson(0.5)), epsilon + math.log(0.5) + math.log1p(-0.6)),
    ):
        found = loss(event).epsilon(0.3)
        assert found.lower <= truth * (1 + 1e-13)
        assert truth * (1 - 1e-13) <= found.upper <= truth * 1.001
