import json

import pytest

from dither import events as ev
from dither.accounting import Schedule, calibrate, compare, explain, loss, plan_training, tables
from dither.core.errors import DitherError
from dither.core.events import from_dict
from dither.core.units import Neighbors, PrivacyUnit, Trust

FACTS = {"population": 60_000, "epochs": 20, "batch": 256, "epsilon": 3.0, "delta": 1e-6}


@pytest.fixture(scope="module")
def plan():
    return plan_training(**FACTS)


def test_the_plan_meets_its_target_and_no_more(plan):
    assert plan.steps == 4_688
    assert plan.sampling_probability == 256 / 60_000
    assert plan.price.upper <= 3.0
    assert plan.price.upper >= 3.0 * 0.999
    assert plan.noise_multiplier == calibrate(plan.schedule.event, epsilon=3.0, delta=1e-6)
    assert plan.noise_to_signal == pytest.approx(plan.noise_multiplier / 256)
    assert loss(plan.event).epsilon(1e-6) == plan.price


def test_what_doubling_buys(plan):
    options = {o.name: o for o in plan.options}
    assert list(options) == ["this plan", "batch ×2", "epochs ×2", "population ×2", "ε ×2"]
    assert options["batch ×2"].schedule.batch == 512
    assert options["batch ×2"].schedule.steps == 2_344
    assert options["epochs ×2"].schedule.steps == 9_375
    assert options["population ×2"].schedule.sampling_probability == pytest.approx(256 / 120_000)
    assert options["ε ×2"].epsilon == 6.0
    now = plan.noise_to_signal
    assert options["batch ×2"].noise_to_signal < now
    assert options["population ×2"].noise_to_signal < now
    assert options["ε ×2"].noise_to_signal < now
    assert options["epochs ×2"].noise_to_signal > now
    for option in plan.options:
        priced = loss(option.schedule.event(option.noise_multiplier)).epsilon(1e-6).upper
        assert option.epsilon * 0.999 <= priced <= option.epsilon
        kept = loss(option.schedule.event(plan.noise_multiplier)).epsilon_upper(1e-6)
        assert option.epsilon_at_plan_noise == kept


def test_it_is_a_page_and_a_json_value(plan):
    assert max(map(len, plan.to_text().splitlines())) <= 80
    value = json.loads(json.dumps(plan.to_dict(), allow_nan=False))
    assert from_dict(value["event"]) == plan.event
    assert value["target"]["unit"]["neighbors"] == "add_remove"
    assert value["target"]["delta"] == 1e-6


def test_a_printed_noise_multiplier_is_enough(plan):
    line = next(line for line in plan.to_text().splitlines() if line.strip().startswith("noise multiplier"))
    printed = float(line.split()[2])
    assert plan.noise_multiplier <= printed <= plan.noise_multiplier * 1.0001


def test_the_batch_is_not_doubled_past_the_population():
    names = [o.name for o in plan_training(population=100, epochs=1, batch=60, epsilon=2, delta=1e-3).options]
    assert "batch ×2" not in names


def test_a_fixed_batch_replaces_one_arrow_by_another():
    fixed = plan_training(population=10_000, epochs=1, batch=1_000, epsilon=2, delta=1e-6, sampling="fixed_size")
    assert fixed.target.unit.neighbors is Neighbors.REPLACE
    assert fixed.noise_to_signal == pytest.approx(2 * fixed.noise_multiplier / 1_000)


def test_a_shuffled_run_is_not_given_the_poisson_figure():
    facts = {"population": 10_000, "epochs": 1, "batch": 1_000, "epsilon": 2, "delta": 1e-6}
    shuffled, poisson = (plan_training(**facts, sampling=s) for s in ("shuffled", "poisson"))
    assert shuffled.noise_multiplier > 1.2 * poisson.noise_multiplier
    assert any("Poisson" in note for note in shuffled.notes)
    assert max(map(len, shuffled.to_text().splitlines())) <= 80


def test_the_unit_may_be_a_user():
    unit = PrivacyUnit(dataset="events", key="user_id")
    assert "one user_id of events" in plan_training(**FACTS | {"epochs": 1}, unit=unit).to_text()


def test_it_warns_of_a_useless_delta_and_a_weak_epsilon():
    told = plan_training(population=1_000, epochs=1, batch=100, epsilon=12, delta=1e-3)
    assert len(told.warnings) == 2
    assert told.warnings[0] in " ".join(told.to_text().split())


def test_steps_are_rounded_up():
    assert Schedule(population=1_000, epochs=1, batch=100).steps == 10
    assert Schedule(population=1_001, epochs=1, batch=100).steps == 11
    assert Schedule(population=1_000, epochs=0.001, batch=100).steps == 1
    assert Schedule(population=3, epochs=0.1 * 3 / 0.3, batch=1).steps == 3


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"population": 0}, "population=0"),
        ({"population": 1.5}, "population=1.5"),
        ({"batch": 60_001}, "batch=60001"),
        ({"epochs": 0}, "epochs=0"),
        ({"epochs": float("nan")}, "epochs=nan"),
        ({"epochs": 1e9, "population": 10**12, "batch": 1}, "epochs="),
        ({"epsilon": 0}, "epsilon=0"),
        ({"epsilon": float("inf")}, "epsilon=inf"),
        ({"delta": 0}, "delta=0"),
        ({"sampling": "lottery"}, "sampling 'lottery'"),
        ({"unit": "user_id"}, "unit='user_id'"),
    ],
)
def test_wrong_input_is_told(changed, said):
    with pytest.raises(DitherError) as caught:
        plan_training(**FACTS | changed)
    assert said in str(caught.value)


def test_what_cannot_be_doubled_is_said_not_dropped():
    made = plan_training(population=100, epochs=1, batch=60, epsilon=600, delta=1e-3)
    assert [o.name for o in made.options] == ["this plan", "epochs ×2", "population ×2"]
    told = " ".join(made.to_text().split())
    assert "batch ×2 is left out: batch=120 is not allowed" in told
    assert "ε ×2 is left out: epsilon=1200.0 is not allowed" in told


def test_the_trust_model_is_kept():
    made = plan_training(population=100, epochs=1, batch=60, epsilon=2, delta=1e-3, trust=Trust.DISTRIBUTED)
    assert made.to_dict()["target"]["trust"] == "distributed"
    assert "distributed" in made.to_text()


@pytest.mark.parametrize("population", [3, 49, 1_000, 999_983])
def test_a_delta_of_one_over_the_population_warns(population):
    made = plan_training(population=population, epochs=1, batch=1, epsilon=2, delta=1 / population)
    assert "1/population" in made.warnings[0]


def test_what_is_printed_is_the_page(plan):
    compared, told = compare(ev.PureDp(1.0), 1e-6), explain(ev.PureDp(1.0))
    assert (str(plan), str(compared), str(told)) == (plan.to_text(), compared.to_text(), told.to_text())


def test_every_option_is_a_row_of_the_page(plan):
    rows = {o.name: next(line for line in plan.to_text().splitlines() if line.strip().startswith(o.name + "  ")) for o in plan.options}
    for option in plan.options:
        change = option.noise_to_signal / plan.noise_to_signal - 1
        row = rows[option.name]
        assert f"{option.schedule.steps:,}" in row
        assert tables.up(option.noise_multiplier) in row
        assert tables.up(option.epsilon_at_plan_noise) in row
        assert ("%" not in row) if option is plan.options[0] else (f"{100 * change:+.0f} %".replace("-", "−") in row)


def test_a_run_has_a_step_however_short():
    assert Schedule(population=1, epochs=1e-300, batch=1).steps == 1
