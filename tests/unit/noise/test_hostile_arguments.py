"""Whatever is passed for an argument, the answer is a value or an error of the house: never a bare Python error, never a hang.

One argument at a time is replaced by everything hostile; a public error is all that may come of it.
"""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from dither.core.errors import DitherError
from dither.noise import classic_gaussian_noise_multiplier, gaussian_noise_multiplier
from dither.noise.gridsum import GridSum
from dither.noise.linear import LinearQueries, haar_strategy, hierarchical_strategy, optimised_strategy, prefix_workload, range_workload
from dither.noise.numeric import DiscreteGaussianMechanism, DiscreteLaplaceMechanism, GaussianMechanism, LaplaceMechanism
from dither.noise.robust import ProposeTestRelease, SampleAndAggregate, SmoothSensitivityMedian, median_statistic, spread_statistic
from dither.noise.sensitivity import (
    Contribution,
    count,
    distinct_units,
    grid_sum,
    grouped_sums,
    linear_queries,
    sensitivity_of,
    variance_parts,
)
from dither.noise.stream import MatrixCounter, TreeCounter, banded_coefficients, square_root_coefficients

HOSTILE = [
    *(math.nan, math.inf, -math.inf, -1, -1.0, 0, 0.0, -0.0, 5e-324, 1e-310, 1e-3, 0.5, 0.999999999999, 1 - 2.0**-53, 1, 2),
    *(1000, 1e12, 10**12, 10**13, 2**53 + 1, 1e308, 1.7e308, 10**400, -(10**400), True, False, None, "1", "", b"1", 1j, Decimal(1)),
    *([1], (1, 2), {}, object(), Fraction(1, 3), np.float32(0.5), np.float64(math.nan), np.int64(5), np.longdouble(1)),
    *(np.array(1.0), np.array([1.0, 2.0]), lambda given: 1),
    *(np.timedelta64(5, "s"), [np.timedelta64("NaT")], np.datetime64("2020"), np.array(["x"]), [None], [[1], [1, 2]]),
]
FIXED = Contribution(neighbors="replace", rows_fixed=True)


def measured(kind, value):
    """A function that builds a mechanism from its arguments, asks what it costs, and runs it."""

    def made(**given):
        mechanism = kind(**given)
        return mechanism.event, mechanism.measure(value)

    return made


def counted(kind):
    def made(**given):
        counter = kind(**given)
        wide = counter.dimension is not None
        return counter.event, counter.interval(), counter.noise_std(1), None if wide else counter.measure([1, 2, 3])

    return made


def discrete(**given):
    return DiscreteLaplaceMechanism(noise_scale=1.0).interval(**given), DiscreteGaussianMechanism(noise_std=1.0).interval(**given)


NUMBERS = {"noise_multiplier": 1.0, "sensitivity": 1.0, "bounds": (0, 1)}
STREAM = {"noise_multiplier": 1.0, "steps": 8, "sensitivity": 1.0, "dimension": None, "participations": 2, "min_separation": 2}
BLOCKS = {"function": len, "blocks": 4, "lower": 0, "upper": 1, "epsilon": 1.0}
INTERVAL = {"confidence": 0.95, "dimension": 3, "joint": True}

CASES = {
    "laplace": (measured(LaplaceMechanism, 1.0), NUMBERS),
    "gaussian": (measured(GaussianMechanism, [1, 2]), NUMBERS),
    "gaussian integers": (lambda **given: GaussianMechanism(**given).measure_integers(3), NUMBERS),
    "laplace calibrated": (measured(LaplaceMechanism.calibrated, 1.0), {"epsilon": 1.0, "sensitivity": 1.0}),
    "gaussian calibrated": (measured(GaussianMechanism.calibrated, 1.0), {"epsilon": 1.0, "delta": 1e-5, "sensitivity": 1.0}),
    "laplace by scale": (measured(LaplaceMechanism.from_noise_scale, 1.0), {"noise_scale": 1.0, "sensitivity": 1.0}),
    "gaussian by std": (measured(GaussianMechanism.from_noise_std, 1.0), {"noise_std": 1.0, "sensitivity": 1.0}),
    "discrete laplace": (measured(DiscreteLaplaceMechanism, 1), {"noise_scale": 1.0, "sensitivity": 1, "changes": 1}),
    "discrete gaussian": (measured(DiscreteGaussianMechanism, 1), {"noise_std": 1.0, "sensitivity": 1, "changes": 1}),
    "discrete laplace calibrated": (measured(DiscreteLaplaceMechanism.calibrated, 1), {"epsilon": 1.0, "sensitivity": 1, "changes": 1}),
    "discrete gaussian calibrated": (measured(DiscreteGaussianMechanism.calibrated, 1), {"epsilon": 1.0, "delta": 1e-5, "sensitivity": 1}),
    "discrete interval": (discrete, INTERVAL),
    "gaussian interval": (GaussianMechanism(noise_multiplier=1.0).interval, INTERVAL),
    "laplace interval": (LaplaceMechanism(noise_multiplier=1.0).interval, INTERVAL),
    "gaussian noise": (gaussian_noise_multiplier, {"epsilon": 1.0, "delta": 1e-5}),
    "classic noise": (classic_gaussian_noise_multiplier, {"epsilon": 1.0, "delta": 1e-5}),
    "tree": (counted(TreeCounter), {**STREAM, "noise": "gaussian"}),
    "whole tree": (counted(TreeCounter), {"noise_multiplier": 1.0, "steps": 8, "sensitivity": 1.0, "noise": "discrete_laplace"}),
    "matrix": (counted(MatrixCounter), {**STREAM, "coefficients": (1.0, 0.5)}),
    "first coefficient": (lambda c: MatrixCounter(noise_multiplier=1.0, steps=8, coefficients=(c, 0.5)), {"c": 1.0}),
    "second coefficient": (lambda c: MatrixCounter(noise_multiplier=1.0, steps=8, coefficients=(1.0, c)), {"c": 1.0}),
    "square root": (square_root_coefficients, {"bands": 3}),
    "bands": (banded_coefficients, {"steps": 9, "bands": 3}),
    "median": (measured(SmoothSensitivityMedian, [1, 2]), {"epsilon": 1.0, "lower": 0, "upper": 1, "delta": 1e-5, "smoothing": 0.5}),
    "propose": (
        measured(ProposeTestRelease, [1, 2]),
        {"epsilon": 1.0, "delta": 1e-5, "statistic": median_statistic(0, 9), "bound": 0.1, "test_share": 0.5},
    ),
    "median statistic": (lambda lower, upper: median_statistic(lower, upper).distance([1, 2], 3), {"lower": 0, "upper": 9}),
    "spread statistic": (lambda lower, upper: spread_statistic(lower, upper).distance([1, 2] * 9, 0), {"lower": 0, "upper": 9}),
    "aggregate": (
        measured(SampleAndAggregate, [1, 2]),
        {**BLOCKS, "delta": 0.0, "aggregate": "mean", "dimension": None, "default": 0.5, "steady": False},
    ),
    "aggregated median": (measured(SampleAndAggregate, [1, 2]), {**BLOCKS, "delta": 1e-5, "aggregate": "median"}),
    "linear": (
        measured(LinearQueries, [1, 2]),
        {"workload": [[1, 2]], "law": "gaussian", "noise_multiplier": 1.0, "strategy": np.eye(2), "contribution": Contribution()},
    ),
    "linear calibrated": (measured(LinearQueries.calibrated, [1, 2]), {"workload": [[1, 2]], "epsilon": 1.0, "delta": 0.0}),
    "optimised": (optimised_strategy, {"workload": [[1, 2]], "law": "gaussian", "extra_rows": 1, "steps": 3}),
    "hierarchy": (hierarchical_strategy, {"cells": 5, "branching": 2}),
    "haar": (haar_strategy, {"cells": 5}),
    "prefixes": (prefix_workload, {"cells": 5}),
    "ranges": (range_workload, {"cells": 5}),
    "grid": (lambda **given: GridSum(**given).total([1, 2.5]), {"lower": 0, "upper": 1, "step": 0.25}),
    "grid total": (GridSum(lower=0, upper=1).total, {"values": [1]}),
    "grid totals": (GridSum(lower=0, upper=1).totals, {"values": [1], "groups": [0], "count": 1}),
    "grid sum": (grid_sum, {"grid": GridSum(lower=0, upper=1), "contribution": Contribution()}),
    "contribution": (
        Contribution,
        {"rows_per_unit": 1, "groups_per_unit": 1, "rows_per_group": 1, "neighbors": "replace", "rows_fixed": True},
    ),
    "count": (count, {"contribution": Contribution()}),
    "units": (distinct_units, {"contribution": Contribution()}),
    "mean": (sensitivity_of, {"statistic": "mean", "contribution": FIXED, "lower": 0, "upper": 1, "rows": 3}),
    "histogram": (sensitivity_of, {"statistic": "histogram", "contribution": FIXED, "bins": 3}),
    "grouped": (grouped_sums, {"lower": 0, "upper": 1, "contribution": Contribution()}),
    "parts": (variance_parts, {"lower": 0, "upper": 1, "contribution": Contribution()}),
    "queries": (linear_queries, {"workload": [[1, 2]], "contribution": Contribution()}),
    "a number": (GaussianMechanism(noise_multiplier=1.0).measure, {"value": 1.0}),
    "a whole number": (DiscreteGaussianMechanism(noise_std=1.0).measure, {"value": 1}),
    "a histogram": (LinearQueries(workload=[[1, 2]], law="laplace", noise_multiplier=1.0).measure, {"value": [1, 2]}),
    "a step": (lambda value: TreeCounter(noise_multiplier=1.0, steps=3).open().push(value), {"value": 1}),
    "a stream": (TreeCounter(noise_multiplier=1.0, steps=3).measure, {"values": [1]}),
    "rows for a median": (SmoothSensitivityMedian(epsilon=1.0, lower=0, upper=1).measure, {"rows": [1]}),
    "rows for a proposal": (
        ProposeTestRelease(epsilon=1.0, delta=1e-5, statistic=median_statistic(0, 9)).measure,
        {"rows": [1]},
    ),
    "rows for blocks": (SampleAndAggregate(**BLOCKS).measure, {"rows": [1]}),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("case", "argument"), [(case, name) for case, (_, given) in CASES.items() for name in given])
def test_every_argument_is_answered_with_a_value_or_an_error_of_the_house(case, argument):
    run, given = CASES[case]
    run(**given)
    for hostile in HOSTILE:
        try:
            run(**{**given, argument: hostile})
        except DitherError as error:
            assert str(error).strip()  # noqa: PT017 - that nothing else is raised is what is tested; a text is all that is asked of it
