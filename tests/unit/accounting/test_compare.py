"""Every row against its formula or an oracle; no bound below the tight figure; silence is explained."""

import json
import math

import numpy as np
import pytest
from scipy.special import ndtr

from dither import events as ev
from dither.accounting import rdp, tables
from dither.accounting._pairs import gaussian_epsilon
from dither.accounting.compare import APPROXIMATION, TIGHT, compare
from dither.accounting.loss import loss
from dither.core.errors import InputError

STEP = ev.Subsample(ev.Gaussian(1.1), ev.Poisson(256 / 60_000))
TRAINING = ev.Repeat(STEP, 4_700)
CASES = [
    (TRAINING, 1e-5, {}),
    (ev.Gaussian(1.0), 1e-5, {}),
    (ev.Repeat(ev.Laplace(10.0), 100), 1e-6, {}),
    (ev.Repeat(ev.RandomizedResponse(0.5, 2), 50), 1e-6, {"neighbors": "replace"}),
    (ev.Sequence((ev.Repeat(ev.Laplace(2.0), 10), ev.Repeat(ev.Gaussian(5.0), 20))), 1e-6, {}),
    (ev.Sequence((ev.Repeat(ev.ApproxDp(0.1, 1e-9), 30), ev.PureDp(0.2))), 1e-6, {}),
    (ev.Repeat(ev.Subsample(ev.Gaussian(1.0), ev.FixedSize(256, 60_000)), 600), 1e-5, {"neighbors": "replace"}),
    (ev.Repeat(ev.Subsample(ev.Gaussian(2.0), ev.Shuffled(100, 1_000)), 30), 1e-6, {}),
    (ev.TreeGaussian(10.0, 1_024), 1e-6, {}),
    (ev.Repeat(ev.Gaussian(9.0), 3), 1e-6, {"group": 3}),
    (ev.SelectBest(ev.Gaussian(4.0), ev.NegativeBinomialRuns(1, 0.1)), 1e-6, {}),
    (ev.PureDp(1.0), 0.0, {}),
    (ev.NonPrivate(), 1e-6, {}),
]


@pytest.mark.parametrize(("event", "delta", "kw"), CASES)
def test_no_bound_is_below_the_tight_figure_and_silence_is_explained(event, delta, kw):
    found = compare(event, delta, **kw)
    assert found.tight is found.rows[-1]
    assert found.tight.name == TIGHT
    truth = loss(event, **kw).epsilon(delta)
    assert (found.tight.epsilon, found.tight.lower) == (truth.upper, truth.lower) or math.isinf(truth.upper)
    for row in found.rows:
        if row.epsilon is None:
            assert row.note
        elif row.kind != APPROXIMATION:
            assert row.epsilon >= truth.lower * (1 - 1e-9)
    text = found.to_text()
    assert max(map(len, text.splitlines())) <= 80
    assert all(row.name in text for row in found.rows)
    again = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert [row["name"] for row in again["rows"]] == [row.name for row in found.rows]


def test_the_lecture_example():
    """Findings: 1.3206 in truth, 1.779 by the old conversion, −4.3 % by the central limit, hundreds by naive ways."""
    found = {row.name: row for row in compare(TRAINING, 1e-5).rows}
    assert found[TIGHT].epsilon == pytest.approx(1.3206352, rel=1e-3)
    assert found["moments accountant"].epsilon == pytest.approx(1.779, abs=2e-3)
    assert found["moments accountant"].order == 12
    assert found["Rényi (RDP)"].epsilon == pytest.approx(1.4612, abs=1e-3)
    central = found["GDP central limit"]
    assert central.kind == APPROXIMATION
    assert central.epsilon == pytest.approx(1.264, abs=1e-3)
    assert "under-report" in central.note
    assert found["basic composition"].epsilon > found["advanced composition"].epsilon > found["optimal composition"].epsilon > 300


def test_basic_and_advanced_by_hand():
    found = {row.name: row.epsilon for row in compare(ev.Repeat(ev.PureDp(0.1), 100), 1e-6).rows}
    assert found["basic composition"] == pytest.approx(10.0, abs=1e-12)
    assert found["advanced composition"] == pytest.approx(math.sqrt(2 * 100 * math.log(1e6)) * 0.1 + 100 * 0.1 * math.expm1(0.1))
    shared = {row.name: row.epsilon for row in compare(ev.Repeat(ev.Gaussian(10.0), 4), 1e-6).rows}
    assert shared["basic composition"] == pytest.approx(4 * loss(ev.Gaussian(10.0)).epsilon(2.5e-7).upper, rel=1e-6)


def optimal_by_search(epsilon, runs, delta):
    """k-fold randomised response, all 2^k outcomes counted, ε by bisection."""
    p = math.exp(epsilon) / (1 + math.exp(epsilon))
    j = np.arange(runs + 1)
    mass = np.array([math.comb(runs, int(i)) for i in j]) * p ** (runs - j) * (1 - p) ** j
    low, high = 0.0, runs * epsilon
    for _ in range(200):
        middle = (low + high) / 2
        at = (mass * np.maximum(0, -np.expm1(middle - (runs - 2 * j) * epsilon))).sum()
        low, high = (middle, high) if at > delta else (low, middle)
    return high


@pytest.mark.parametrize(
    ("epsilon", "runs", "delta"), [(0.1, 100, 1e-6), (0.5, 50, 1e-6), (1.0, 20, 1e-6), (2.0, 1, 0.1), (0.3, 7, 1e-3), (0.01, 4, 0.5)]
)
def test_optimal_homogeneous_is_exact(epsilon, runs, delta):
    found = compare(ev.Repeat(ev.PureDp(epsilon), runs), delta).row("optimal composition").epsilon
    assert found == pytest.approx(optimal_by_search(epsilon, runs, delta), rel=1e-9, abs=1e-9)
    tight = loss(ev.Repeat(ev.PureDp(epsilon), runs)).epsilon(delta)
    assert tight.lower * (1 - 1e-9) <= found * (1 + 1e-9)
    assert found <= tight.upper * 1.002 + 1e-6


def test_optimal_heterogeneous_is_the_closed_bound():
    e, delta = np.array([0.1] * 30 + [0.2] * 20), 1e-6
    event = ev.Sequence(tuple(ev.PureDp(float(x)) for x in e))
    squares = float((e * e).sum())
    drift = float((e * np.tanh(e / 2)).sum())
    by_hand = drift + math.sqrt(2 * squares * min(math.log(math.e + math.sqrt(squares) / delta), math.log(1 / delta)))
    assert compare(event, delta).row("optimal composition").epsilon == pytest.approx(min(by_hand, e.sum()))


def test_zcdp_and_central_limit_of_gaussians():
    found = compare(ev.Repeat(ev.Gaussian(5.0), 100), 1e-6)
    assert found.row("GDP central limit").epsilon == pytest.approx(10.997151, rel=1e-6)
    assert found.row("GDP central limit").kind != APPROXIMATION
    assert found.row("zCDP").epsilon == pytest.approx(rdp.epsilon_of_zcdp(2.0, 1e-6).value)
    assert compare(TRAINING, 1e-5, neighbors="replace").row("GDP central limit").epsilon is None
    fixed = ev.Repeat(ev.Subsample(ev.Gaussian(1.0), ev.FixedSize(256, 60_000)), 600)
    assert compare(fixed, 1e-5, neighbors="replace").row("GDP central limit").kind == APPROXIMATION
    assert compare(fixed, 1e-5).row("GDP central limit").epsilon is None


def test_counts_and_noise_reach_every_row():
    one, many = compare(TRAINING, 1e-5), compare(ev.Repeat(STEP, 18_800), 1e-5)
    louder = compare(ev.Repeat(ev.Subsample(ev.Gaussian(2.2), ev.Poisson(256 / 60_000)), 4_700), 1e-5)
    for row in one.rows:
        assert many.row(row.name).epsilon > row.epsilon * 1.5
        assert louder.row(row.name).epsilon < row.epsilon


def test_arguments_are_checked():
    for delta in (math.nan, -1e-9, 1.0, "1e-5"):
        with pytest.raises(InputError, match="delta"):
            compare(TRAINING, delta)
    with pytest.raises(InputError, match="event"):
        compare("training", 1e-5)
    with pytest.raises(InputError, match="neighbors"):
        compare(TRAINING, 1e-5, neighbors="edit")
    with pytest.raises(InputError, match="group"):
        compare(TRAINING, 1e-5, group=1.5)


def test_notes_say_why_and_read_well():
    found = compare(TRAINING, 1e-5)
    assert "each of 4,700 parts" in found.row("basic composition").note
    assert "sampling does not lower ρ" in found.row("zCDP").note
    assert "sampling" not in compare(ev.Gaussian(2.0), 1e-5).row("zCDP").note


def test_parts_without_a_pure_epsilon_spend_their_share_of_delta():
    runs, delta = 4, 1e-6
    found = compare(ev.Repeat(ev.Gaussian(10.0), runs), delta)
    each = loss(ev.Gaussian(10.0)).epsilon_upper(delta / 2 / runs)
    by_hand = math.sqrt(2 * runs * math.log(2 / delta)) * each + runs * each * math.expm1(each)
    assert found.row("advanced composition").epsilon == pytest.approx(by_hand, rel=1e-9)
    assert found.row("optimal composition").epsilon == pytest.approx(min(runs * each, optimal_by_search(each, runs, delta / 2)), rel=1e-7)
    stated = compare(ev.Repeat(ev.ApproxDp(0.1, 1e-8), 30), delta)
    assert stated.row("optimal composition").epsilon == pytest.approx(optimal_by_search(0.1, 30, delta - 30e-8), rel=1e-7)
    by_hand = math.sqrt(2 * 30 * math.log(1 / (delta - 30e-8))) * 0.1 + 30 * 0.1 * math.expm1(0.1)
    assert stated.row("advanced composition").epsilon == pytest.approx(by_hand, rel=1e-9)
    assert stated.row("basic composition").epsilon == pytest.approx(3.0)


def test_a_huge_epsilon_makes_a_formula_silent_not_negative():
    found = compare(ev.Repeat(ev.PureDp(800.0), 2), 1e-6)
    assert found.row("advanced composition").epsilon is None
    assert found.row("basic composition").epsilon == 1600
    assert found.row("optimal composition").epsilon <= 1600


def test_the_closed_bound_takes_the_lesser_of_its_two():
    event, delta = ev.Sequence(tuple(ev.PureDp(x) for x in (0.05, 0.05, 0.06, 0.04, 0.05) * 30)), 0.01
    e = np.array([0.05, 0.05, 0.06, 0.04, 0.05] * 30)
    squares, drift = float((e * e).sum()), float((e * np.tanh(e / 2)).sum())
    first = drift + math.sqrt(2 * squares * math.log(math.e + math.sqrt(squares) / delta))
    assert first < drift + math.sqrt(2 * squares * math.log(1 / delta))
    assert compare(event, delta).row("optimal composition").epsilon == pytest.approx(min(first, e.sum()))


def test_the_central_limits_are_the_published_ones():
    sigma, size, population, steps, delta = 1.2, 300, 10_000, 500, 1e-5
    inside = math.exp(sigma**-2) * ndtr(1.5 / sigma) + 3 * ndtr(-0.5 / sigma) - 2
    mu = math.sqrt(2 * steps * inside) * size / population
    fixed = ev.Repeat(ev.Subsample(ev.Gaussian(sigma), ev.FixedSize(size, population)), steps)
    assert compare(fixed, delta, neighbors="replace").row("GDP central limit").epsilon == pytest.approx(
        gaussian_epsilon(mu, delta), rel=1e-9
    )
    mu = size / population * math.sqrt(steps * math.expm1(sigma**-2))
    poisson = ev.Repeat(ev.Subsample(ev.Gaussian(sigma), ev.Poisson(size / population)), steps)
    assert compare(poisson, delta).row("GDP central limit").epsilon == pytest.approx(gaussian_epsilon(mu, delta), rel=1e-9)
    for event in (ev.TreeGaussian(10.0, 1_024), ev.MatrixGaussian(4.0, (1.0, 0.5, 0.25), 16, participations=2, min_separation=4)):
        found = compare(event, delta)
        assert found.row("GDP central limit").epsilon == pytest.approx(found.tight.epsilon, rel=1e-3)


def test_the_page_shows_every_figure_rounded_up():
    found = compare(TRAINING, 1e-5)
    lines = found.to_text().splitlines()
    for row in found.rows:
        line = next(line for line in lines if line.startswith(f"  {row.name}"))
        assert tables.up(row.epsilon) in line
        assert ("≈" in line) == (row.kind == APPROXIMATION)
