"""The only randomness of the house: secure bits, exact samplers, and mechanisms that return a value with the event that prices it.

>>> from dither import noise
>>> type(noise.discrete_laplace(scale=2.0))
<class 'int'>
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dither.noise.noisy import Noisy as Noisy
    from dither.noise.noisy import noisy as noisy
    from dither.noise.rng import SecureRng as SecureRng
    from dither.noise.rng import UnsafeSeededRng as UnsafeSeededRng
    from dither.noise.rng import system_rng as system_rng
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

_HOMES = {
    "noisy": ("Noisy",),
    "rng": ("SecureRng", "UnsafeSeededRng", "system_rng"),
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
