"""The only randomness of the house: secure bits, exact samplers, and mechanisms that return a value with the event that prices it.

>>> from dither import noise
>>> type(noise.discrete_laplace(scale=2.0))
<class 'int'>
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dither.noise._analytic import classic_gaussian_noise_multiplier as classic_gaussian_noise_multiplier
    from dither.noise._analytic import gaussian_noise_multiplier as gaussian_noise_multiplier
    from dither.noise.gridsum import GridSum as GridSum
    from dither.noise.linear import LinearQueries as LinearQueries
    from dither.noise.noisy import Noisy as Noisy
    from dither.noise.numeric import DiscreteGaussianMechanism as DiscreteGaussianMechanism
    from dither.noise.numeric import DiscreteLaplaceMechanism as DiscreteLaplaceMechanism
    from dither.noise.numeric import GaussianMechanism as GaussianMechanism
    from dither.noise.numeric import LaplaceMechanism as LaplaceMechanism
    from dither.noise.partition import OptimalPartitionSelection as OptimalPartitionSelection
    from dither.noise.partition import StableHistogram as StableHistogram
    from dither.noise.quantiles import Quantile as Quantile
    from dither.noise.quantiles import Quantiles as Quantiles
    from dither.noise.response import KaryResponseMechanism as KaryResponseMechanism
    from dither.noise.response import RandomizedResponseMechanism as RandomizedResponseMechanism
    from dither.noise.rng import SecureRng as SecureRng
    from dither.noise.rng import UnsafeSeededRng as UnsafeSeededRng
    from dither.noise.rng import system_rng as system_rng
    from dither.noise.robust import ProposeTestRelease as ProposeTestRelease
    from dither.noise.robust import SampleAndAggregate as SampleAndAggregate
    from dither.noise.robust import SmoothSensitivityMedian as SmoothSensitivityMedian
    from dither.noise.samplers import add_noise as add_noise
    from dither.noise.samplers import bernoulli as bernoulli
    from dither.noise.samplers import bernoulli_exp as bernoulli_exp
    from dither.noise.samplers import discrete_gaussian as discrete_gaussian
    from dither.noise.samplers import discrete_laplace as discrete_laplace
    from dither.noise.samplers import gaussian as gaussian
    from dither.noise.samplers import grid_step as grid_step
    from dither.noise.samplers import laplace as laplace
    from dither.noise.samplers import rounded_gaussian as rounded_gaussian
    from dither.noise.samplers import rounded_laplace as rounded_laplace
    from dither.noise.samplers import snap as snap
    from dither.noise.samplers import snapped_sensitivity as snapped_sensitivity
    from dither.noise.samplers import uniform_below as uniform_below
    from dither.noise.selection import ExponentialSelection as ExponentialSelection
    from dither.noise.selection import PermuteAndFlip as PermuteAndFlip
    from dither.noise.selection import ReportNoisyMax as ReportNoisyMax
    from dither.noise.selection import TopK as TopK
    from dither.noise.sensitivity import Contribution as Contribution
    from dither.noise.sensitivity import Sensitivity as Sensitivity
    from dither.noise.sensitivity import sensitivity_of as sensitivity_of
    from dither.noise.stream import MatrixCounter as MatrixCounter
    from dither.noise.stream import TreeCounter as TreeCounter
    from dither.noise.threshold import AboveThreshold as AboveThreshold
    from dither.noise.vote import EnsembleVote as EnsembleVote
    from dither.noise.weighted import WeightedSelection as WeightedSelection

_HOMES: dict[str, tuple[str, ...]] = {
    "_analytic": ("classic_gaussian_noise_multiplier", "gaussian_noise_multiplier"),
    "gridsum": ("GridSum",),
    "linear": ("LinearQueries",),
    "noisy": ("Noisy",),
    "numeric": ("DiscreteGaussianMechanism", "DiscreteLaplaceMechanism", "GaussianMechanism", "LaplaceMechanism"),
    "partition": ("OptimalPartitionSelection", "StableHistogram"),
    "quantiles": ("Quantile", "Quantiles"),
    "response": ("KaryResponseMechanism", "RandomizedResponseMechanism"),
    "rng": ("SecureRng", "UnsafeSeededRng", "system_rng"),
    "robust": ("ProposeTestRelease", "SampleAndAggregate", "SmoothSensitivityMedian"),
    "samplers": (
        "add_noise",
        "bernoulli",
        "bernoulli_exp",
        "discrete_gaussian",
        "discrete_laplace",
        "gaussian",
        "grid_step",
        "laplace",
        "rounded_gaussian",
        "rounded_laplace",
        "snap",
        "snapped_sensitivity",
        "uniform_below",
    ),
    "selection": ("ExponentialSelection", "PermuteAndFlip", "ReportNoisyMax", "TopK"),
    "sensitivity": ("Contribution", "Sensitivity", "sensitivity_of"),
    "stream": ("MatrixCounter", "TreeCounter"),
    "threshold": ("AboveThreshold",),
    "vote": ("EnsembleVote",),
    "weighted": ("WeightedSelection",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)  # noqa: PLE0605 - one table says what is public and where it lives


def __getattr__(name: str) -> object:
    """Import a name on first use, so that ``import dither`` stays light."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'dither.noise' has no attribute {name!r}")
    value: object = getattr(importlib.import_module(f"dither.noise.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF})
