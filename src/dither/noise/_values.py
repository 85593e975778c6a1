"""Private numbers as arrays, by rules that never fail on what they hold.

An error tells whoever sees it something, so none may depend on a private value. Types and shapes are public and are
refused when wrong; values are not, and every one of them is mapped to a number that can be computed with: NaN counts
as 0, ±∞ and whatever is larger than ``VALUE_MAX`` as ±``VALUE_MAX``, integers are held within ±``INTEGER_MAX`` (in a
list that mixes them with floats: ±2⁵³, the integers that a float holds). Where the data is not NaN these maps move no
two values further apart, so that no sensitivity grows.
"""

from __future__ import annotations

from typing import Any, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dither.core.errors import InputError

VALUE_MAX = 2.0**960
INTEGER_MAX = 2**62
_EXACT_MAX = 2**53
_NESTED_MAX = 32

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]

_ALLOWED = "a number, a (nested) list of numbers of one shape, or a numpy array of bool, int or float (at most 64 bits)"


def numbers(value: object) -> tuple[Floats | Integers, bool]:
    """The numbers as an int64 or a float64 array, and whether one bare number was given.

    >>> numbers([1, 2**80])[0].tolist() == [1, 2**62], numbers(float("nan"))
    (True, (array(0.), True))
    """
    if isinstance(value, np.ndarray):
        if type(value) is not np.ndarray or value.dtype.kind not in "biuf" or value.dtype.itemsize > 8:
            _refuse(f"{type(value).__name__} of {value.dtype}")
        return _held(value), False
    if isinstance(value, list | tuple):
        return _listed(value), False
    one = np.empty(1, dtype=object)
    one[0] = value  # as it is: numpy would look for numbers inside of it
    return _converted(one)[0, ...], True


def integers(value: object) -> tuple[Integers, bool]:
    """As ``numbers``, where only whole-number types are allowed.

    >>> integers([True, 3])[0]
    array([1, 3])
    """
    found, single = numbers(value)
    if found.dtype.kind != "i" and (found.size or isinstance(value, np.ndarray)):
        raise InputError(
            "The value is of a floating type: expected whole numbers (int, bool, or an integer array). "
            "Use the Laplace or Gaussian mechanism for floats, or cut them to integers of a grid with GridSum."
        )
    return found.astype(np.int64, copy=False), single


def _held(array: NDArray[np.generic]) -> Floats | Integers:
    """A numpy array of a numeric type, each number within its range; always a copy."""
    if array.dtype.kind == "f":
        with np.errstate(invalid="ignore"):  # a signalling NaN would be told of
            known = array.astype(np.float64).reshape(-1)
        known[np.isnan(known)] = 0.0
        np.clip(known, -VALUE_MAX, VALUE_MAX, out=known)
        return known.reshape(array.shape)
    if array.dtype.kind == "u":
        array = np.minimum(array, np.asarray(INTEGER_MAX, dtype=np.uint64)) if array.dtype.itemsize == 8 else array
    return np.asarray(np.clip(array.astype(np.int64), -INTEGER_MAX, INTEGER_MAX), dtype=np.int64)


def _listed(value: list[object] | tuple[object, ...]) -> Floats | Integers:
    """Numbers in nested lists. The type of every element is public, and the same rule applies to each value of a type."""
    try:
        objects = np.array(value, dtype=object)
    except ValueError:
        _refuse("a list whose members differ in shape")
    if objects.ndim > _NESTED_MAX:
        _refuse(f"a list nested in more than {_NESTED_MAX} others")
    return _converted(objects)


def _converted(objects: NDArray[Any]) -> Floats | Integers:
    """An array of objects as one of numbers."""
    kinds = {type(x) for x in objects.flat}
    if not objects.size:
        return np.zeros(objects.shape)
    whole = {k for k in kinds if issubclass(k, int | np.integer | np.bool_) and not issubclass(k, np.timedelta64)}
    broken = {k for k in kinds - whole if not issubclass(k, float | np.float32 | np.float16)}
    if broken:
        _refuse("a value holding " + ", ".join(sorted(k.__name__ for k in broken)))
    if whole == kinds:
        return np.array([max(-INTEGER_MAX, min(INTEGER_MAX, int(x))) for x in objects.flat], dtype=np.int64).reshape(objects.shape)
    if whole:
        held = [max(-_EXACT_MAX, min(_EXACT_MAX, int(x))) if type(x) in whole else x for x in objects.flat]
        with np.errstate(invalid="ignore"):  # as in _held
            return _held(np.array(held, dtype=np.float64).reshape(objects.shape))
    with np.errstate(invalid="ignore"):  # as in _held
        return _held(objects.astype(np.float64))


def _refuse(given: str) -> NoReturn:
    raise InputError(f"The value is {given}: expected {_ALLOWED}.")
