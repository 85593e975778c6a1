"""What every mechanism returns: the noisy value and the event that prices it, made together by one object."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from dither.core.events import Event, NonPrivate
from dither.core.rng import Rng

T = TypeVar("T")


class Noisy(NamedTuple, Generic[T]):
    """A value that may be released, and the event that prices it."""

    value: T
    event: Event


def noisy(value: T, event: Event, rng: Rng) -> Noisy[T]:
    """Pair a value with its event; a predictable source of noise makes the event ``NonPrivate()``."""
    return Noisy(value, event if rng.private else NonPrivate())
