"""Mechanisms that answer by a script and remember what they were given: so one sees what of the rows reaches an answer beside noise."""

from fractions import Fraction
from random import Random

import numpy as np

from dither.accounting.loss import loss
from dither.core.errors import DitherError
from dither.core.units import Neighbors
from dither.noise import DiscreteLaplaceMechanism, GaussianMechanism, LaplaceMechanism
from dither.noise.weighted import GRID, WeightedSelection
from dither.query.answer import answer

HUGE = (0, 1, -1, 2**61, -(2**61), 10**6, -(10**6), 5 * 2**20)


class Script:
    """Answers in place of mechanisms, by seed and place alone; remembers what each was given."""

    def __init__(self, seed, shown=None):
        self.random = Random(seed)
        self.shown = None if shown is None else list(shown)
        self.given = []
        self.chosen = []

    def look(self, mechanism, counts):
        self.given.append(("look", mechanism, [int(c) for c in counts]))
        top = self.random.choice((0, 50, 3000))
        return np.array([round(top * 0.7**n) + self.random.randint(-9, 9) for n in range(len(counts))]), mechanism.event

    def measure(self, mechanism, values):
        given = np.asarray(values)
        self.given.append(("measure", mechanism, given.shape, [int(v) for v in given.ravel()]))
        made = [self.random.choice(HUGE) if self.random.random() < 0.2 else self.random.randint(-5000, 10**6) for _ in range(given.size)]
        return np.array(made, dtype=np.int64).reshape(given.shape), mechanism.event

    def select(self, mechanism, weights):
        self.given.append(("select", mechanism, dict(weights)))
        if self.shown is None:  # keys that stay whoever goes, and by no other sign
            found = [k for k, w in weights.items() if w > GRID and len(repr(k)) % 3 != len(self.chosen) % 2]
        else:
            found = self.shown[len(self.chosen)]
            assert all(weights.get(k, 0) > 0 for k in found)
        self.chosen.append(found)
        return dict.fromkeys(found, GRID), mechanism.event


def scripting(monkeypatch):
    """``run(plan, source, script)``: what is told, by a script in place of every mechanism."""
    now = []
    monkeypatch.setattr(DiscreteLaplaceMechanism, "measure", lambda self, counts, _=None: now[-1].look(self, counts))
    for mechanism in (LaplaceMechanism, GaussianMechanism):
        monkeypatch.setattr(mechanism, "measure_integers", lambda self, values, _=None: now[-1].measure(self, values))
    monkeypatch.setattr(WeightedSelection, "measure", lambda self, weights, _=None: now[-1].select(self, weights))

    def run(plan, source, script):
        now.append(script)
        try:
            made = answer(plan, source)
        except DitherError as error:
            return type(error).__name__, str(error)
        finally:
            now.pop()
        return str(made), made.plain(), made.event

    return run


def covered(mine, other, neighbors):
    """Whether two things that one mechanism was given are as near as its noise covers."""
    twice = neighbors is Neighbors.REPLACE
    assert mine[:2] == other[:2]
    kind, mechanism = mine[:2]
    if kind == "look":
        moved = sum(abs(a - b) for a, b in zip(mine[2], other[2], strict=True))
        assert moved <= 1 + twice
        assert loss(mechanism.event).epsilon_upper(0) >= (1 + twice) / mechanism.noise_scale * (1 - 1e-12)
        return
    if kind == "measure":
        assert mine[2] == other[2]
        moved = [abs(a - b) for a, b in zip(mine[3], other[3], strict=True)]
        reach = Fraction(mechanism.sensitivity)
        if isinstance(mechanism, LaplaceMechanism):
            assert sum(moved) <= reach
        else:
            assert sum(m * m for m in moved) <= reach * reach
        return
    keys = {*mine[2], *other[2]}
    moved = [(mine[2].get(k, 0), other[2].get(k, 0)) for k in keys]
    assert sum((a - b) ** 2 for a, b in moved) <= GRID**2 * (1 + twice)
    for one, two in ((mine[2], other[2]), (other[2], mine[2])):
        alone = [w for k, w in one.items() if w > 0 and k not in two]
        assert len(alone) <= mechanism.keys_max
        assert sum(w * w for w in alone) <= GRID**2


def frame(columns):
    import pyarrow as pa  # noqa: PLC0415 - heavy

    kinds = {
        "bool": pa.bool_(),
        "int": pa.int64(),
        "float": pa.float64(),
        "text": pa.string(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us"),
    }
    return pa.table({n: pa.array(values, type=kinds[kind]) for n, (kind, values) in columns.items()})
