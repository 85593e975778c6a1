"""What (ε, δ) means: every figure against a computation of its own, on mechanisms small enough to see through."""

import json
import math
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_ndtr, ndtr, ndtri

from dither import events as ev
from dither.accounting import deployments, explain, loss, tables
from dither.core.errors import DitherError, InputError
from dither.core.units import Guarantee, Neighbors, PrivacyUnit, Trust

UNIT = PrivacyUnit(dataset="the data")


def bare(epsilon, delta=0.0, **options):
    return explain(Guarantee(epsilon, delta, UNIT), **options)


def worst_pair(epsilon, delta):
    """The pair that meets (ε, δ) everywhere: the answer shown with probability δ, else randomised response."""
    yes = (1 - delta) * math.exp(epsilon) / (1 + math.exp(epsilon))
    no = (1 - delta) / (1 + math.exp(epsilon))
    return [(delta, 0.0), (yes, no), (no, yes), (0.0, delta)]


def best_test(outcomes, rate):
    """Most probable detection at a false positive rate, by taking outcomes in order of their likelihood ratio."""
    found, spent = 0.0, 0.0
    for p, q in sorted(outcomes, key=lambda o: o[0] / o[1] if o[1] else math.inf, reverse=True):
        share = 1.0 if spent + q <= rate else (rate - spent) / q
        found, spent = found + share * p, spent + share * q
        if share < 1:
            break
    return found


@given(epsilon=st.floats(0, 12), delta=st.sampled_from([0.0, 1e-9, 1e-5, 1e-2, 0.3]))
@settings(deadline=None, derandomize=True, max_examples=60)
def test_a_bare_guarantee_is_its_worst_pair(epsilon, delta):
    told, outcomes = bare(epsilon, delta), worst_pair(epsilon, delta)
    for attack in told.attacks:
        assert attack.true_positive_rate == pytest.approx(best_test(outcomes, attack.false_positive_rate), rel=1e-9)
        assert attack.true_positive_rate == attack.by_line
    assert told.advantage == pytest.approx(sum(max(p - q, 0) for p, q in outcomes), rel=1e-9, abs=1e-12)


@given(epsilon=st.floats(0, 20), prior=st.floats(1e-6, 1 - 1e-6))
@settings(deadline=None, derandomize=True, max_examples=60)
def test_beliefs_move_by_bayes(epsilon, prior):
    belief = bare(epsilon, prior=prior).beliefs[0]
    odds = prior / (1 - prior)
    for factor, posterior in ((math.exp(epsilon), belief.highest), (math.exp(-epsilon), belief.lowest)):
        assert posterior == pytest.approx(odds * factor / (1 + odds * factor), rel=1e-9)


@pytest.mark.parametrize("noise", [0.3, 1.0, 4.0, 50.0])
def test_attacks_on_a_gaussian_are_neyman_and_pearsons(noise):
    told = explain(ev.Gaussian(noise), delta=1e-5)
    for attack in told.attacks:
        exact = ndtr(ndtri(attack.false_positive_rate) + 1 / noise)
        assert exact * (1 - 1e-12) <= attack.true_positive_rate <= exact * 1.002
        assert attack.true_positive_rate <= attack.by_line
    assert told.advantage == pytest.approx(2 * ndtr(0.5 / noise) - 1, rel=1e-3)
    assert told.advantage >= (2 * ndtr(0.5 / noise) - 1) * (1 - 1e-12)


def test_attacks_on_repeated_randomized_response_are_brute_forces():
    epsilon, count = 0.5, 8
    p = math.exp(epsilon) / (1 + math.exp(epsilon))
    outcomes = []
    for bits in product([0, 1], repeat=count):
        ones = sum(bits)
        outcomes.append((p**ones * (1 - p) ** (count - ones), (1 - p) ** ones * p ** (count - ones)))
    told = explain(ev.Repeat(ev.RandomizedResponse(epsilon), count), delta=1e-6, unit=PrivacyUnit(dataset="d", neighbors=Neighbors.REPLACE))
    for attack in told.attacks:
        exact = best_test(outcomes, attack.false_positive_rate)
        assert exact * (1 - 1e-9) <= attack.true_positive_rate <= exact * 1.02


def test_halving_the_noise_shows_in_every_figure():
    safe, unsafe = (explain(ev.Repeat(ev.Gaussian(noise), 10), delta=1e-5) for noise in (8.0, 4.0))
    assert unsafe.guarantee.epsilon > 1.5 * safe.guarantee.epsilon
    assert unsafe.advantage > 1.5 * safe.advantage
    assert all(b.true_positive_rate > 1.3 * a.true_positive_rate for a, b in zip(safe.attacks, unsafe.attacks, strict=True))
    assert all(b.highest > a.highest for a, b in zip(safe.beliefs, unsafe.beliefs, strict=True))
    assert all(b.epsilon > 1.5 * a.epsilon for a, b in zip(safe.groups, unsafe.groups, strict=True))


def test_groups_of_an_event_are_priced_and_of_a_guarantee_bounded():
    event = explain(ev.Gaussian(4.0), delta=1e-5, group=[1, 3]).groups
    assert event[0].epsilon == pytest.approx(loss(ev.Gaussian(4.0)).epsilon_upper(1e-5))
    assert event[1].epsilon == pytest.approx(loss(ev.Gaussian(4.0 / 3)).epsilon_upper(1e-5), rel=1e-6)
    plain = bare(0.5, 1e-6, group=3).groups[0]
    assert plain.epsilon == 1.5
    assert plain.delta == pytest.approx(1e-6 * (1 + math.exp(0.5) + math.exp(1.0)))
    assert bare(500, 1e-6, group=3).groups[0].delta == 1.0
    assert bare(0.0, 1e-6, group=3).groups[0].delta == pytest.approx(3e-6)


def test_an_event_without_a_price_for_groups_is_told_by_the_rule_and_with_the_reason():
    event = ev.Sequence((ev.DiscreteGaussian(2.0), ev.ApproxDp(0.0, 8e-7, one_unit=True)))
    told = explain(event, delta=1e-5, group=[2, 3])
    epsilon = told.guarantee.epsilon
    assert [g.epsilon for g in told.groups] == [2 * epsilon, 3 * epsilon]
    assert told.groups[0].delta == pytest.approx(1e-5 * (1 + math.exp(epsilon)), rel=1e-9)
    assert any("proved for one unit only" in note and "rule for any (ε, δ)" in note for note in told.notes)
    assert not any("one unit only" in note for note in explain(event, delta=1e-5, group=1).notes)
    assert not any("rule for any" in note for note in explain(ev.Gaussian(2.0), delta=1e-5).notes)


def test_the_general_group_rule_holds_for_the_gaussian():
    noise, k = 3.0, 4
    delta = 1e-6
    epsilon = loss(ev.Gaussian(noise)).epsilon_upper(delta)
    rule = bare(epsilon, delta, group=k).groups[0]
    mu = k / noise
    true = ndtr(mu / 2 - rule.epsilon / mu) - math.exp(rule.epsilon + log_ndtr(-mu / 2 - rule.epsilon / mu))
    assert true <= rule.delta


def test_warnings_are_given_where_they_are_due_and_nowhere_else():
    assert bare(1, 1e-6, population=1_000).warnings == ()
    assert "1/population" in bare(1, 1e-3, population=1_000).warnings[0]
    assert "above 10" in bare(10.1).warnings[0]
    assert bare(10).warnings == ()
    assert "no guarantee" in explain(ev.NonPrivate()).warnings[0]
    assert any("population" in note for note in bare(1, 1e-6).notes)


def test_no_guarantee_is_told_as_such():
    told = explain(ev.NonPrivate())
    assert told.guarantee.epsilon == math.inf
    assert told.advantage == 1.0
    assert [a.true_positive_rate for a in told.attacks] == [1.0] * 3
    assert told.beliefs[0].highest == 1.0
    assert told.to_dict()["epsilon"] is None
    assert "∞" in told.to_text()
    assert "Nothing is promised" in told.to_text()
    assert "e^∞" not in told.to_text()


@pytest.mark.parametrize(
    "told",
    [
        lambda: bare(1.0),
        lambda: bare(700.0, 0.5, population=3),
        lambda: explain(ev.Laplace(1.0), unit="customer identifier", trust="local"),
        lambda: explain(ev.Repeat(ev.Gaussian(30.0), 100), delta=1e-9, population=10**6, prior=[0.001, 0.999], group=[2, 1_000]),
    ],
)
def test_it_is_a_page_and_a_json_value(told):
    found = told()
    assert max(map(len, found.to_text(nearest=30).splitlines())) <= 80
    json.dumps(found.to_dict(), allow_nan=False)


def test_the_page_names_delta_unit_and_trust():
    text = " ".join(explain(ev.Laplace(1.0), unit="user_id", trust=Trust.SHUFFLE).to_text().split())
    for part in ("ε = 1 at δ = 0", "one user_id of the data (present or absent)", "shuffle:", "cannot be compared"):
        assert part in text


def test_the_curve_starts_and_ends_and_holds():
    curve = explain(ev.Gaussian(1.0), delta=1e-5).curve(41)
    assert curve.false_positive_rates[0] == pytest.approx(1e-4)
    assert curve.false_positive_rates[-1] == pytest.approx(1.0)
    for rate, found, line in zip(curve.false_positive_rates, curve.true_positive_rates, curve.by_line, strict=True):
        assert ndtr(ndtri(rate) + 1) * (1 - 1e-9) <= found <= min(line, ndtr(ndtri(rate) + 1) * 1.02) + 1e-12


# ------------------------------------------------------------------------------------------------ published figures


def test_every_published_figure_is_complete():
    found = deployments()
    assert len({d.name for d in found}) == len(found) >= 20
    for d in found:
        assert 2014 <= d.year <= 2026
        assert d.epsilon is not None or d.rho is not None
        assert d.epsilon is None or d.epsilon > 0
        assert (d.epsilon is None) == (d.delta is None)
        assert d.unit
        assert d.source
        assert d.url.startswith("https://")
        assert len(d.unit) <= 74
        assert len(d.name) <= 40


def cks(rho, delta):
    """zCDP to (ε, δ) (Canonne, Kamath & Steinke 2020, Proposition 7), by brute force over the order."""
    orders = [1 + 10 ** (i / 200) / 100 for i in range(1_200)]
    return min(rho * a + math.log1p(-1 / a) - math.log(delta * a) / (a - 1) for a in orders)


def test_published_figures_agree_with_each_other():
    by_name = {d.name: d for d in deployments()}
    for name, slack in (("US Census 2020, redistricting: persons", 0.03), ("Google Gboard, Spanish next word", 0.03)):
        d = by_name[name]
        assert cks(d.rho, d.delta) == pytest.approx(d.epsilon, abs=slack)
    census = [by_name[f"US Census 2020, redistricting: {part}"].epsilon for part in ("persons", "housing", "total")]
    assert census[0] + census[1] == pytest.approx(census[2])
    assert by_name["Google Chrome, RAPPOR"].epsilon == pytest.approx(2 * 2 * math.log(0.75 / 0.25))
    for d in deployments():
        if d.epsilon_per_day is not None:
            assert (d.epsilon_per_day / d.epsilon) == pytest.approx(round(d.epsilon_per_day / d.epsilon))


def test_the_nearest_are_the_nearest():
    near = bare(2.0).nearest(3)
    assert len(near) == 3
    assert all(1.6 < d.epsilon < 2.5 for d in near)
    assert bare(2.0).nearest(0) == ()


# ------------------------------------------------------------------------------------------------ tables


@given(value=st.floats(1e-300, 1e300), digits=st.integers(1, 8))
@settings(deadline=None, derandomize=True, max_examples=200)
def test_printed_bounds_are_rounded_to_their_side(value, digits):
    assert float(tables.up(value, digits)) >= value
    assert float(tables.down(value, digits)) <= value
    assert float(tables.up(value, digits)) == pytest.approx(value, rel=10.0 ** (1 - digits))
    assert float(tables.number(value, digits)) == pytest.approx(value, rel=10.0 ** (1 - digits))


def test_numbers_are_written_as_people_write_them():
    assert [tables.up(x) for x in (1e-5, 0.1, 2.71828, 1_234_567.0, math.inf, 0.0)] == ["1e-05", "0.1", "2.719", "1235000", "∞", "0"]
    assert [tables.percent(x) for x in (0.0, 0.00226, 0.5, 0.99999, 1.0, 1.5)] == ["0 %", "0.226 %", "50 %", "100 %", "100 %", "100 %"]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: explain("Gaussian"), "expected an event or a Guarantee"),
        (lambda: explain(ev.Gaussian(1.0)), "no finite ε at δ = 0. Give a delta well below 1/population"),
        (lambda: explain(ev.ApproxDp(1.0, 1e-3), delta=1e-6), "no finite ε at δ = 1e-06. Give a delta above 0.001"),
        (lambda: explain(ev.ApproxDp(1.0, 0.9)), "Give a delta above 0.9"),
        (lambda: explain(ev.Gaussian(1.0), delta=1.0), "delta=1.0"),
        (lambda: explain(ev.Gaussian(1.0), delta=math.nan), "delta=nan"),
        (lambda: bare(1, prior=0), "prior=0"),
        (lambda: bare(1, prior=[0.5, 1]), "prior=1"),
        (lambda: bare(1, prior=[]), "prior=[]"),
        (lambda: bare(1, prior="half"), "prior="),
        (lambda: bare(1, population=0), "population=0"),
        (lambda: bare(1, group=0), "group=0"),
        (lambda: bare(1, group=[2, 1.5]), "group=1.5"),
        (lambda: explain(ev.PureDp(1.0), unit=7), "unit=7"),
        (lambda: explain(ev.PureDp(1.0), trust="blind"), "Unknown trust 'blind'"),
        (lambda: explain(Guarantee(1.0, 0.0, UNIT), delta=0.1), "already has its delta"),
        (lambda: bare(1).curve(1), "points=1"),
    ],
)
def test_wrong_input_is_told(call, said):
    with pytest.raises(DitherError) as caught:
        call()
    assert said in str(caught.value)


def test_a_delta_of_one_over_the_population_is_found_whatever_floats_say():
    for n in (3, 7, 49, 1_000, 60_000, 999_983, 10**12):
        assert "1/population" in bare(1, 1 / n, population=n).warnings[0]
        assert not any("1/population" in w for w in bare(1, 0.999 / n, population=n).warnings)


def test_the_group_rule_is_an_upper_bound_for_tiny_epsilons_too():
    for epsilon in (0.0, 5e-324, 1e-300, 1e-13, 1e-9, 1e-3):
        for size in (2, 1_000, 1_000_000):
            exact = sum(Fraction(epsilon) * i for i in (0, size - 1)) * size / 2 + size  # Σ(1 + iε) ≤ Σe^{iε}
            assert bare(epsilon, 1e-9, group=size).groups[0].delta >= float(exact) * 1e-9 * (1 - 1e-15)


def test_a_replaced_unit_is_asked_about_as_one():
    text = bare(1.0).to_text()
    assert "is one row in the data?" in text
    swapped = explain(Guarantee(1.0, 0.0, PrivacyUnit(dataset="d", key="user_id", neighbors=Neighbors.REPLACE))).to_text()
    assert "which of two values does one user_id have?" in " ".join(swapped.split())


def test_a_figure_that_was_not_found_again_is_marked():
    doubtful = {d.name for d in deployments() if not d.confirmed}
    assert 0 < len(doubtful) < len(deployments()) / 2
    text = bare(4.0).to_text(nearest=30)
    assert text.count("[?]") == 1 + len([d for d in deployments() if d.epsilon and not d.confirmed])
    near = bare(1.0).to_text(nearest=1)
    assert ("[?]" in near) == (not bare(1.0).nearest(1)[0].confirmed)
    assert bare(1.0).to_dict()["deployments"][0]["confirmed"] is True


@pytest.mark.parametrize("bad", [b"5", "5", {2}, {2: 3}, range(2), None, [b"1"], [[2]], [2] * 1_001])
def test_priors_and_groups_are_numbers_or_lists_of_them(bad):
    for option in ("prior", "group"):
        with pytest.raises(InputError, match=f"{option}="):
            bare(1, **{option: bad})
    with pytest.raises(InputError, match="prior="):
        bare(1, prior=5e-324)


def test_the_best_guess_is_half_way_between_a_coin_and_certainty():
    for epsilon, delta in ((0.0, 0.0), (1.0, 0.0), (1.0, 0.2), (30.0, 0.0)):
        told = bare(epsilon, delta)
        outcomes = worst_pair(epsilon, delta)
        assert told.best_guess == pytest.approx(sum(max(p, q) for p, q in outcomes) / 2, rel=1e-12)


def test_the_delta_of_a_group_ends_at_one_and_is_printed_rounded_up():
    assert bare(5.0, 0.3, group=3).groups[0].delta == 1.0
    assert bare(0.1, 0.4, group=3).groups[0].delta == 1.0
    told = bare(0.5, 1e-6, group=3)
    line = next(line for line in told.to_text().splitlines() if line.split()[:1] == ["3"])
    assert float(line.split()[2]) >= told.groups[0].delta
    assert float(line.split()[1]) >= told.groups[0].epsilon


def test_no_attack_is_told_to_be_worse_than_guessing_nor_better_than_the_line():
    for event in (ev.Gaussian(1e6), ev.PureDp(1e-9), ev.Gaussian(0.05), ev.SelectBest(ev.Gaussian(4.0), ev.NegativeBinomialRuns(1, 0.1))):
        told = explain(event, delta=1e-6)
        assert told.advantage <= math.tanh(told.guarantee.epsilon / 2) * (1 - 1e-6) + 1e-6 + 1e-12
        for attack in told.attacks:
            assert attack.false_positive_rate <= attack.true_positive_rate <= attack.by_line <= 1
