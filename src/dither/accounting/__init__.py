"""Accounting: from events to privacy loss, from budgets to noise, in plain words.

Names are imported here, not on first use: several functions share a name with the module they live in, and a module
imported first would hide its function. ``import dither`` stays light: it imports this room when it is used.

>>> from dither import accounting, events as ev
>>> accounting.loss(ev.PureDp(1.0)).epsilon(0.0).upper
1.0
"""

from dither.accounting.calibrate import calibrate
from dither.accounting.compare import Comparison, compare
from dither.accounting.explain import Explanation, deployments, explain
from dither.accounting.loss import Loss, TradeOff, delta, epsilon, loss
from dither.accounting.plan import Schedule, TrainingPlan, plan_training

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
    "loss",
    "plan_training",
]
