"""``dither demo``: price, calibrate, plan, explain and draw noise on one story, with plots, in under a minute.

The story: train a model on 60,000 people for 20 passes, in batches of 256, and publish one count about them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dither
from dither import events as ev
from dither.app import plots, text
from dither.core.events import Event, to_dict
from dither.core.units import Guarantee, PrivacyUnit, Trust
from dither.noise.numeric import DiscreteGaussianMechanism
from dither.noise.samplers import discrete_gaussian

POPULATION, BATCH, EPOCHS, DELTA, TARGET, NOISE = 60_000, 256, 20, 1e-6, 2.0, 1.1
DRAWS = 1_000_000
HIDES = f"{PrivacyUnit(dataset='the data')}; {Trust.CENTRAL} trust"


@dataclass(frozen=True, slots=True)
class _Tour:
    """Where the files go, and what has been found so far."""

    folder: Path
    results: dict[str, Any]
    quiet: bool

    def say(self, page: str) -> None:
        if not self.quiet:
            text.show(page)

    def file(self, name: str) -> Path:
        return self.folder / name


def run(folder: Path, *, as_json: bool = False) -> None:
    """The whole tour; files are written to ``folder``, which is made if it is not there."""
    started = time.perf_counter()
    folder.mkdir(parents=True, exist_ok=True)
    tour = _Tour(folder, {}, as_json)
    schedule = dither.accounting.Schedule(population=POPULATION, epochs=EPOCHS, batch=BATCH)
    training = schedule.event(NOISE)
    _price(tour, training)
    meets = _calibrate(tour, schedule)
    _plan(tour)
    event = ev.Sequence((schedule.event(meets), _draw(tour)))
    told = _explain(tour, event)
    tour.results["seconds"] = round(time.perf_counter() - started, 1)
    tour.results["files"] = sorted(str(p) for p in folder.iterdir() if p.suffix == ".png")
    if as_json:
        text.show_json(tour.results)
        return
    tour.say(_last_page(tour, told.guarantee))


def _last_page(tour: _Tour, guarantee: Guarantee) -> str:
    tables = dither.accounting.tables
    price = f"ε ≤ {tables.up(guarantee.epsilon)} at δ = {tables.number(guarantee.delta)}"
    happened = f"a training run was priced, calibrated and planned, a count released, {DRAWS:,} noise values drawn"
    known = [
        ("happened", happened),
        ("cost", f"training and the count together: {price}, hiding {guarantee.unit}, {guarantee.trust} trust (of made-up people)"),
        ("files", f"{len(tour.results['files'])} plots in {tour.folder}/"),
        ("next", f"dither explain --epsilon {tables.up(guarantee.epsilon)} --delta {DELTA:g} --population {POPULATION}"),
    ]
    return f"\nDone in {tour.results['seconds']:.0f} s\n\n{tables.facts(known)}"


def _price(tour: _Tour, training: Event) -> None:
    accounting = dither.accounting
    text.progress("1/5 price: a training run, by every way of accounting")
    found = accounting.compare(training, DELTA)
    story = f"{POPULATION:,} people, batches of {BATCH}, {EPOCHS} epochs, noise multiplier {NOISE}"
    tour.say(f"\n1  What does a training run cost?\n\n  {story}\n  hides {HIDES}\n\n{found.to_text()}")
    counts = [1, 10, 47, 235, 938, 2_344, 4_688, 9_375, 23_438]
    step = training.event if isinstance(training, ev.Repeat) else training
    runs = [accounting.compare(ev.Repeat(step, k), DELTA) for k in counts]
    plots.comparison(tour.file("1-price.png"), counts, runs, delta=DELTA, hides=HIDES)
    bound = dither.epsilon(training, DELTA)
    tour.results["price"] = {"lower": bound.lower, "upper": bound.upper, "delta": DELTA, "event": to_dict(training)}


def _calibrate(tour: _Tour, schedule: Any) -> float:  # noqa: ANN401 - Schedule, which --help must not wait for
    tables = dither.accounting.tables
    text.progress("2/5 calibrate: the noise for a target ε")
    targets = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0]
    values = [dither.calibrate(schedule.event, epsilon=e, delta=DELTA) for e in targets]
    meets = values[targets.index(TARGET)]
    path, chosen = tour.file("2-calibrate.png"), (TARGET, meets)
    plots.calibration(path, targets, values, name="noise_multiplier", delta=DELTA, chosen=chosen, hides=HIDES)
    rows = [(tables.number(e), tables.up(v, 5)) for e, v in zip(targets, values, strict=True)]
    tour.say(f"\n2  How much noise meets a target, at δ = {DELTA:g}?\n\n{tables.table(rows, ('ε ≤', 'noise multiplier'), left=())}")
    tour.results["calibrate"] = dict(zip(map(str, targets), values, strict=True))
    return meets


def _plan(tour: _Tour) -> None:
    text.progress("3/5 plan: what more data, larger batches or longer training would buy")
    made = dither.accounting.plan_training(population=POPULATION, epochs=EPOCHS, batch=BATCH, epsilon=TARGET, delta=DELTA)
    plots.plan(tour.file("3-plan.png"), made)
    tour.say(f"\n3  {made.to_text()}")
    tour.results["plan"] = made.to_dict()


def _draw(tour: _Tour) -> Event:
    tables = dither.accounting.tables
    text.progress(f"4/5 noise: a count released, and {DRAWS:,} draws")
    mechanism = DiscreteGaussianMechanism(noise_std=25.0)
    released = mechanism.measure(4_213)
    accuracy = mechanism.interval(0.95)
    begun = time.perf_counter()
    draws = discrete_gaussian(25.0, size=DRAWS)
    seconds = time.perf_counter() - begun
    plots.drawn(tour.file("4-noise.png"), draws.tolist(), scale=25.0, title="Discrete Gaussian noise, as drawn and as priced")
    facts = [
        ("released", f"{released.value:,} (made-up truth: 4,213), {accuracy}"),
        ("event", repr(released.event)),
        ("speed", f"{DRAWS / seconds / 1e6:,.0f} million exact draws per second"),
    ]
    tour.say(f"\n4  One count, with exact noise from the system's entropy\n\n{tables.facts(facts)}")
    tour.results["noise"] = {"released": int(released.value), "event": to_dict(released.event), "draws_per_second": round(DRAWS / seconds)}
    return released.event


def _explain(tour: _Tour, event: Event) -> Any:  # noqa: ANN401 - Explanation, which --help must not wait for
    text.progress("5/5 explain: what all of it means for one person")
    told = dither.explain(event, delta=DELTA, population=POPULATION)
    plots.trade_off(tour.file("5-explain.png"), told)
    tour.say(f"\n5  What training and the count together mean\n\n{told.to_text(nearest=3)}")
    tour.results["explain"] = told.to_dict()
    return told
