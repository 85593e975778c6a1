"""The contract of randomness. The only implementations live in ``dither.noise``; other rooms are handed one."""

from __future__ import annotations

from typing import Protocol


class Rng(Protocol):
    """A source of uniform bits."""

    @property
    def private(self) -> bool:
        """False for a predictable source: whatever it touches is released as ``NonPrivate()``."""
        ...

    def bytes(self, count: int) -> bytes:
        """``count`` uniform bytes."""
        ...

    def bits(self, count: int) -> int:
        """A uniform integer in [0, 2**count)."""
        ...

    def below(self, bound: int) -> int:
        """A uniform integer in [0, bound), exactly."""
        ...
