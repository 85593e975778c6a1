"""The one path of a request: plan → reserve → open → run → commit → release. Whoever wants an answer from rows comes through here.

What a caller can rely on, whatever the engine does:

* Before the receipt nothing is opened; a source that does not open gives the charge back (void), for no row was read.
* From ``engine.run`` on every ending is spent: an exception, an interrupt, an exit. Then ``RunError`` says so and nothing else; the
  exception itself, and the frames that saw rows, are let go. Nor is any warning shown while a run is on.
* A release leaves only after it is committed, with its body, in one durable transaction. What is returned is read back from that
  body, so that the first answer and every later one under the same id are the same.
* The same id with the same request gives the stored release: nothing is spent, opened or drawn.

A plan may have two things more than ``Plan`` asks for. ``shortened(count)`` is the same plan with fewer steps, for ``up_to=True``.
``stops_early`` is a text that names the theorem by which less than the whole event may be charged when a run ended before its last step;
without it a release must come with exactly the planned event.
"""

from __future__ import annotations

import importlib.metadata
import platform
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar, cast

import dither
from dither.core import events
from dither.core.encoding import canonical_json, parse_json
from dither.core.errors import ConflictError, DitherError, InputError, LedgerError, RefusedError, RunError, shown
from dither.core.events import Event, Repeat
from dither.core.plans import Accuracy, Charge, Plan, Receipt, Release, State
from dither.core.rng import Rng
from dither.core.units import PrivacyUnit
from dither.gate import engines
from dither.gate.engines import Engine, Facts, Request
from dither.ledger.blocks import stamp
from dither.ledger.book import Ledger
from dither.ledger.rules import RELEASE_MAX, is_prefix
from dither.ledger.terms import Dataset, unit_from_dict, unit_to_dict
from dither.noise.rng import system_rng

T_co = TypeVar("T_co", covariant=True)
_ATTEMPTS_MAX: Final = 1_000
_NOT_OPENED: Final = "The source could not be opened; no row was read."
_NOT_SHORTENED: Final = "The plan could not be cut short; no row was read."


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortRelease(Release[T_co]):
    """A release of fewer steps than were asked for: no more fitted the limits, or the run ended early. ``planned`` is the whole event."""

    planned: Event | None = None

    def __str__(self) -> str:
        done, asked = (e.count if isinstance(e, Repeat) else 0 for e in (self.event, self.planned))
        return f"Cut short: {done} of {asked} steps were run."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reserved:
    """A charge with its receipt, and what there was room for."""

    charge: Charge
    receipt: Receipt
    event: Event


def execute(ledger: Ledger, request: Request, facts: Facts, *, rng: Rng | None = None, up_to: bool = False) -> Release[Any]:
    r"""Answer a request, or refuse it: see the head of this module.

    With ``up_to`` as many steps are reserved and run as the limits have room for, and a ``ShortRelease`` says so where they are
    fewer than planned. ``rng`` is for tests; a predictable one is refused.

    >>> import tempfile
    >>> from pathlib import Path
    >>> made = tempfile.TemporaryDirectory()
    >>> folder = Path(made.name)
    >>> _ = (folder / "visits.csv").write_text("age\n31\n64\n")
    >>> unit, age = PrivacyUnit(dataset="visits"), engines.Column(name="age", type="int")
    >>> visits = Facts(name="visits", source="visits.csv", folder=folder, unit=unit, columns=(age,))
    >>> ledger = Ledger.open("sqlite://")
    >>> _ = ledger.add_dataset(visits.terms), ledger.grant("clinic", "visits", epsilon=1)
    >>> options = {"statistic": "count", "epsilon": 0.5}
    >>> request = Request.of("measure", dataset="visits", account="clinic", purpose="report", options=options, id="r1")
    >>> first, again = execute(ledger, request, visits), execute(ledger, request, visits)
    >>> first.value == again.value, again.receipt.replayed, again.receipt.remaining.epsilon
    (True, True, 0.5)
    >>> made.cleanup()
    """
    source = system_rng() if rng is None else rng
    if not source.private:
        raise RefusedError("A predictable source of noise protects nobody: leave rng out, and noise comes from the system.")
    engine = engines.engine(request.engine)
    plan = _planned(engine, request, facts)
    if up_to and not callable(getattr(plan, "shortened", None)):
        raise InputError(f"The engine {shown(request.engine)} cannot run a part of this plan: leave up_to out.")
    _compare(ledger, facts)
    reserved = _reserve(ledger, request, plan, source, up_to=up_to)
    if reserved.receipt.replayed:
        return _replayed(ledger, reserved)
    if reserved.event != plan.event:
        plan = _shortened(ledger, reserved, plan)
    data = _opened(ledger, reserved, engine, facts)
    try:
        return _settled(ledger, request, reserved, engine, plan, data, source)
    except BaseException as error:  # noqa: BLE001 - it is raised again, bare
        error.__context__ = error.__cause__ = None  # neither what failed inside nor a frame that saw rows is handed on
        del data
        raise error.with_traceback(None) from None


def preview(request: Request, facts: Facts) -> Plan:
    """The plan that a request would run, for free: nothing is reserved, opened or drawn."""
    return _planned(engines.engine(request.engine), request, facts)


# ------------------------------------------------------------------------------------------------ before any row


def _planned(engine: Engine, request: Request, facts: Facts) -> Plan:
    if facts.name != request.dataset:
        raise InputError(
            f"The request is for dataset {shown(request.dataset)}: expected the facts of that one, not of {shown(facts.name)}."
        )
    if facts.unit is None:
        raise InputError(f"The dataset {shown(facts.name)} is public: it has no privacy unit, and no budget is kept of it.")
    plan = engine.plan(request, facts)
    if plan.unit != facts.unit or not events.is_event(plan.event):
        raise InputError(
            f"The engine {shown(request.engine)} planned for another unit, or no event: expected those of {shown(facts.name)}."
        )
    return plan


def _compare(ledger: Ledger, facts: Facts) -> None:
    """The book must divide the dataset as the facts do: a block is charged by name, and must be of the same rows."""
    known: Mapping[str, Dataset] = ledger.terms().datasets
    agreed, stated = known.get(facts.name), facts.terms
    if agreed is None:
        return  # the ledger refuses, and says which there are
    if agreed.blocks is not None and stated.blocks is not None and set(stated.blocks.partitions) <= set(agreed.blocks.partitions):
        stated = replace(stated, blocks=replace(stated.blocks, partitions=agreed.blocks.partitions))
    if stated != agreed:
        raise ConflictError(
            f"The dataset {shown(facts.name)} has another unit, trust or division into blocks in the ledger: expected the same as there."
        )


def _reserve(ledger: Ledger, request: Request, plan: Plan, rng: Rng, *, up_to: bool) -> _Reserved:
    """Reserve under the request's id; where that was voided, which nothing was read under, under the next one (id~2 and so on)."""
    first = rng.bytes(16).hex() if request.id is None else request.id
    for attempt in range(1, _ATTEMPTS_MAX + 1):
        charge = Charge(
            id=first if attempt == 1 else f"{first}~{attempt}",
            account=request.account,
            unit=plan.unit,
            blocks=request.blocks,
            event=plan.event,
            plan_digest=plan.digest,
            purpose=request.purpose,
        )
        if up_to:
            found = ledger.reserve_up_to(charge)
            receipt, event = found.receipt, found.event
        else:
            receipt, event = ledger.reserve(charge), plan.event
        if receipt.state is not State.VOIDED:
            return _Reserved(charge=charge, receipt=receipt, event=event)
    raise ConflictError(f"The source failed to open {_ATTEMPTS_MAX} times under the id {shown(first)}: use a new id.")


def _shortened(ledger: Ledger, reserved: _Reserved, plan: Plan) -> Plan:
    """The plan of as many steps as were reserved."""
    try:
        made: Plan = cast("Any", plan).shortened(cast("Repeat", reserved.event).count)
        if made.event != reserved.event or made.unit != plan.unit:
            raise InputError("The plan was not cut short to the steps that were reserved: expected exactly these.")
    except BaseException:
        ledger.void(reserved.charge.id, _NOT_SHORTENED)
        raise
    return made


def _opened(ledger: Ledger, reserved: _Reserved, engine: Engine, facts: Facts) -> Any:  # noqa: ANN401 - whatever its run reads from
    try:
        return engine.open(facts)
    except BaseException as error:
        try:
            ledger.void(reserved.charge.id, _NOT_OPENED)
        except LedgerError:
            error.add_note("The ledger could not be told: the charge stays reserved, which counts as spent.")
        raise


# ------------------------------------------------------------------------------------------------ after the first row


def _settled(
    ledger: Ledger,
    request: Request,
    reserved: _Reserved,
    engine: Engine,
    plan: Plan,
    data: Any,  # noqa: ANN401 - the engine's own
    rng: Rng,
) -> Release[Any]:
    """Run and commit; whatever ends this early is spent."""
    name, ran, running = reserved.charge.id, False, object()
    try:
        _RUNS.add(running)
        _silence()
        made = _checked(engine.run(plan, data, rng), plan, reserved.event)
        body = _body(request, reserved, plan, made)
        ran = True
        receipt = ledger.commit(name, event=None if made.event == reserved.event else made.event, release=body)
    except BaseException as error:
        if ran and isinstance(error, DitherError):
            raise  # the ledger's own words: without its receipt the release stays here
        ledger.commit(name)
        if isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        raise RunError(
            f"The run of charge {shown(name)} (engine {shown(request.engine)}) failed after rows were read: it is spent, there is no "
            "release, and what went wrong is not told, for it may depend on the rows. Try the request on made-up rows, then ask again "
            "under a new id."
        ) from None
    finally:
        _RUNS.discard(running)
    return _rebuilt(body, receipt)


def _checked(given: Any, plan: Plan, reserved: Event) -> Release[Any]:  # noqa: ANN401 - whatever the engine returned
    """A release that is what was planned and reserved, looked at once: nothing else is stored, paid or leaves."""
    if not isinstance(given, Release):
        raise InputError("The engine returned no release.")
    made = Release(value=given.value, event=given.event, unit=given.unit, plan_digest=given.plan_digest, accuracy=given.accuracy)
    if made.unit != plan.unit or made.plan_digest != plan.digest:
        raise InputError("The engine returned a release of another plan.")
    if made.event != reserved and not (getattr(plan, "stops_early", "") and is_prefix(made.event, reserved)):
        raise InputError("The engine ran another event than it planned.")
    return made


_RUNS: set[object] = set()  # one for each run that is on


class _WhileRunning:
    """Matches every warning while a run is on, whosever it is: filters are the whole process's, not a thread's."""

    def match(self, _: str) -> bool:
        return bool(_RUNS)


_SILENT: Final[Any] = ("ignore", _WhileRunning(), Warning, None, 0)


def _silence() -> None:
    """Put the filter first, where no other can show a warning or make it an error; it stays, and does nothing between runs."""
    shown_by: list[Any] = cast("list[Any]", warnings.filters)
    if not shown_by or shown_by[0] is not _SILENT:
        shown_by[:] = [_SILENT, *(each for each in shown_by if each is not _SILENT)]


def _body(request: Request, reserved: _Reserved, plan: Plan, made: Release[Any]) -> str:
    """The release as it is kept: canonical JSON, and no longer than can be kept."""
    accuracy = made.accuracy
    text = canonical_json(
        {
            "value": made.value,
            "event": events.to_dict(made.event),
            "planned": events.to_dict(reserved.charge.event),
            "unit": unit_to_dict(made.unit),
            "plan_digest": plan.digest,
            "accuracy": None if accuracy is None else {"half_width": accuracy.half_width, "confidence": accuracy.confidence},
            "request": {
                "account": list(request.account),
                "blocks": list(request.blocks),
                "dataset": request.dataset,
                "engine": request.engine,
                "id": reserved.charge.id,
                "options": request.fields,
                "purpose": request.purpose,
            },
            "versions": _versions(),
            "at": stamp(reserved.receipt.at),
        }
    )
    if len(text) > RELEASE_MAX or canonical_json(parse_json(text)) != text:
        raise InputError(f"A release must be at most {RELEASE_MAX} characters of JSON that reads back as it was written.")
    return text


def _versions() -> dict[str, str]:
    return {"dither": dither.__version__, "python": platform.python_version(), "numpy": importlib.metadata.version("numpy")}


# ------------------------------------------------------------------------------------------------ what is kept


def _replayed(ledger: Ledger, reserved: _Reserved) -> Release[Any]:
    """The stored release of a charge that is there already."""
    name, receipt = reserved.charge.id, reserved.receipt
    if receipt.state is State.RESERVED:
        raise ConflictError(
            f"A run under the id {shown(name)} has not ended: wait for it, or use a new id. Noise is not drawn twice under one."
        )
    body = ledger.stored(name)
    if body is None:
        raise RunError(f"Charge {shown(name)} is spent and has no release, for its run failed or was cut off: ask again under a new id.")
    return _rebuilt(body, receipt)


def _rebuilt(body: str, receipt: Receipt) -> Release[Any]:
    given: dict[str, Any] = parse_json(body)
    event, planned = (events.from_dict(given[key]) for key in ("event", "planned"))
    unit: PrivacyUnit = unit_from_dict(given["unit"])
    made: dict[str, Any] = {"value": given["value"], "event": event, "unit": unit, "plan_digest": given["plan_digest"], "receipt": receipt}
    made["accuracy"] = None if given["accuracy"] is None else Accuracy(**given["accuracy"])
    return Release(**made) if event == planned else ShortRelease(**made, planned=planned)


def stored(ledger: Ledger, charge_id: str) -> Release[Any]:
    """The release that is kept under an id, with its receipt; nothing is spent."""
    body = ledger.stored(charge_id)
    if body is None:
        raise InputError(f"Charge {shown(charge_id)} has no release: it was voided, its run failed, or it has not ended.")
    return _rebuilt(body, ledger.receipt(charge_id))
