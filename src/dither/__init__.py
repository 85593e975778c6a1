"""dither: differential privacy for machine learning, end to end, on one ledger.

>>> import dither
>>> from dither import events as ev
>>> step = ev.Subsample(ev.Gaussian(noise_multiplier=1.1), ev.Poisson(256 / 60_000))
>>> price = dither.epsilon(ev.Repeat(step, 4_700), delta=1e-5)
>>> 1.319 < price.lower <= price.upper < 1.323
True
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dither import accounting as accounting
    from dither import events as events
    from dither import noise as noise
    from dither.accounting import Loss as Loss
    from dither.accounting import calibrate as calibrate
    from dither.accounting import delta as delta
    from dither.accounting import epsilon as epsilon
    from dither.accounting import explain as explain
    from dither.accounting import loss as loss
    from dither.core import errors as errors
    from dither.core.units import Bound as Bound
    from dither.core.units import Guarantee as Guarantee
    from dither.core.units import Neighbors as Neighbors
    from dither.core.units import PrivacyUnit as PrivacyUnit
    from dither.core.units import Trust as Trust
    from dither.gate.project import Project as Project
    from dither.gate.quick import sql as sql
    from dither.ledger.book import Ledger as Ledger

__version__ = "0.1.0"

_HOMES = {
    "accounting": "dither.accounting",
    "errors": "dither.core.errors",
    "events": "dither.events",
    "noise": "dither.noise",
    "Loss": "dither.accounting:Loss",
    "calibrate": "dither.accounting:calibrate",
    "delta": "dither.accounting:delta",
    "epsilon": "dither.accounting:epsilon",
    "explain": "dither.accounting:explain",
    "loss": "dither.accounting:loss",
    "sql": "dither.gate.quick:sql",
    "Bound": "dither.core.units:Bound",
    "Guarantee": "dither.core.units:Guarantee",
    "Ledger": "dither.ledger.book:Ledger",
    "Neighbors": "dither.core.units:Neighbors",
    "PrivacyUnit": "dither.core.units:PrivacyUnit",
    "Project": "dither.gate.project:Project",
    "Trust": "dither.core.units:Trust",
}

__all__ = [
    "Bound",
    "Guarantee",
    "Ledger",
    "Loss",
    "Neighbors",
    "PrivacyUnit",
    "Project",
    "Trust",
    "__version__",
    "accounting",
    "calibrate",
    "delta",
    "epsilon",
    "errors",
    "events",
    "explain",
    "loss",
    "noise",
    "sql",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - PEP 562: a module attribute is anything
    """Import a public name when it is first used, so that ``import dither`` stays light."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"dither has no {name!r}: expected one of {', '.join(sorted(_HOMES))}.")
    module, _, attribute = home.partition(":")
    found: Any = importlib.import_module(module)
    if attribute:
        found = getattr(found, attribute)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return list(__all__)
