"""Accounting: from events to privacy loss, from budgets to noise, in plain words. Names are imported when first used.

>>> from dither import accounting, events as ev
>>> accounting.loss(ev.PureDp(1.0)).epsilon(0.0).upper
1.0
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dither.accounting import filters as filters
    from dither.accounting import rdp as rdp
    from dither.accounting import tables as tables
    from dither.accounting.calibrate import calibrate as calibrate
    from dither.accounting.compare import Comparison as Comparison
    from dither.accounting.compare import compare as compare
    from dither.accounting.explain import Explanation as Explanation
    from dither.accounting.explain import deployments as deployments
    from dither.accounting.explain import explain as explain
    from dither.accounting.loss import Loss as Loss
    from dither.accounting.loss import TradeOff as TradeOff
    from dither.accounting.loss import delta as delta
    from dither.accounting.loss import epsilon as epsilon
    from dither.accounting.loss import loss as loss
    from dither.accounting.plan import Schedule as Schedule
    from dither.accounting.plan import TrainingPlan as TrainingPlan
    from dither.accounting.plan import plan_training as plan_training

_HOMES = {
    "Comparison": "compare",
    "Explanation": "explain",
    "Loss": "loss",
    "Schedule": "plan",
    "TradeOff": "loss",
    "TrainingPlan": "plan",
    "calibrate": "calibrate",
    "compare": "compare",
    "delta": "loss",
    "deployments": "explain",
    "epsilon": "loss",
    "explain": "explain",
    "loss": "loss",
    "plan_training": "plan",
}
_MODULES = ("filters", "rdp", "tables")

__all__ = [
    "Comparison",
    "Explanation",
    "Loss",
    "Schedule",
    "TradeOff",
    "TrainingPlan",
    "calibrate",
    "compare",
    "delta",
    "deployments",
    "epsilon",
    "explain",
    "filters",
    "loss",
    "plan_training",
    "rdp",
    "tables",
]


class _Package(ModuleType):
    """Several functions share their module's name: importing such a module must not put it in the function's place."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:  # noqa: ANN401 - PEP 562: a module attribute is anything
    """Import a public name when it is first used."""
    if name in _MODULES:
        return importlib.import_module(f"dither.accounting.{name}")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"dither.accounting has no {name!r}: expected one of {', '.join(__all__)}.")
    found: Any = getattr(importlib.import_module(f"dither.accounting.{home}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return list(__all__)
