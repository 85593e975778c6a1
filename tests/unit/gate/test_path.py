"""The one path: what is spent when, what leaves and what does not, whatever an engine does."""

import gc
import json
import signal
import sys
import traceback
import warnings
import weakref
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count

import pytest

import dither
from dither.core import events as ev
from dither.core.errors import ConflictError, DitherError, InputError, LedgerError, OverBudgetError, RefusedError, UnknownNameError
from dither.core.plans import Accuracy, Receipt, Release, State
from dither.core.units import PrivacyUnit
from dither.gate import engines, path
from dither.gate.engines import Facts, Request
from dither.gate.path import RunError, ShortRelease, execute
from dither.ledger.book import Ledger
from dither.ledger.terms import Blocks
from dither.noise import UnsafeSeededRng

SECRET = "row-of-alice"
UNIT = PrivacyUnit(dataset="t")
FACTS = Facts(name="t", source="t.csv", unit=UNIT)
_NUMBERS = count()


@dataclass(frozen=True)
class Planned:
    event: object = ev.PureDp(0.25)
    unit: object = UNIT
    digest: str = "sha256:plan"

    def explain(self):
        return "a test"


@dataclass(frozen=True)
class Shortable(Planned):
    def shortened(self, k):
        return replace(self, event=ev.Repeat(self.event.event, k), digest=f"{self.digest}:{k}")


@dataclass(frozen=True)
class Stopping(Planned):
    stops_early: str = "a filter's theorem"


@dataclass
class Engine:
    """An engine that does as it is told, and counts what was asked of it."""

    planned: object = field(default_factory=Planned)
    value: object = 42
    opening: BaseException | None = None
    running: BaseException | None = None
    release: object = None
    asked: list = field(default_factory=list)
    name: str = ""

    def plan(self, request, dataset):
        self.asked.append("plan")
        return self.planned

    def open(self, dataset):
        self.asked.append("open")
        if self.opening is not None:
            raise self.opening
        return Source()

    def run(self, plan, data, rng):
        self.asked.append("run")
        row = data.rows[0]
        if self.running is not None:
            try:
                raise KeyError(row)
            except KeyError as cause:
                raise self.running from cause
        rng.bytes(8)
        made = Release(
            value=self.value, event=plan.event, unit=plan.unit, plan_digest=plan.digest, accuracy=Accuracy(half_width=2, confidence=0.9)
        )
        return made if self.release is None else self.release(made)


class Source:
    def __init__(self):
        self.rows = [SECRET]


@pytest.fixture
def ledger():
    with Ledger.open("sqlite://") as made:
        made.add_dataset(FACTS.terms)
        made.grant("acme", "t", epsilon=1)
        yield made


@pytest.fixture
def engine():
    made = Engine()
    made.name = f"path test {next(_NUMBERS)}"
    engines.register(made.name, made)
    yield made
    engines._REGISTERED.pop(made.name)


def ask(engine, **more):
    return Request.of(engine.name, **{"dataset": "t", "account": "acme", "purpose": "a test", **more})


def spent(ledger):
    (standing,) = ledger.standings()
    return round(standing.share, 9), round(standing.reserved, 9)


# ------------------------------------------------------------------------------------------------ a request that succeeds


def test_a_release_comes_with_its_receipt_and_is_kept(ledger, engine):
    made = execute(ledger, ask(engine, id="r1", options={"a": [1, "x"]}), FACTS)
    assert engine.asked == ["plan", "open", "run"]
    assert type(made) is Release
    assert (made.value, made.event, made.unit, made.plan_digest) == (42, ev.PureDp(0.25), UNIT, "sha256:plan")
    assert isinstance(made.receipt, Receipt)
    assert (made.receipt.charge_id, made.receipt.state, made.receipt.replayed) == ("r1", State.COMMITTED, False)
    assert spent(ledger) == (0.25, 0)
    kept = json.loads(ledger.stored("r1"))
    assert kept["value"] == 42
    assert kept["event"] == ev.to_dict(made.event) == kept["planned"]
    assert kept["plan_digest"] == "sha256:plan"
    assert kept["accuracy"] == {"half_width": 2.0, "confidence": 0.9}
    assert kept["request"] == {
        "account": ["acme"],
        "blocks": [],
        "dataset": "t",
        "engine": engine.name,
        "id": "r1",
        "options": {"a": [1, "x"]},
        "purpose": "a test",
    }
    assert kept["versions"]["dither"] == dither.__version__
    assert set(kept["versions"]) == {"dither", "python", "numpy"}
    assert kept["at"].endswith("Z")
    assert path.stored(ledger, "r1").value == 42


def test_the_same_id_again_gives_the_stored_release_and_spends_nothing(ledger, engine):
    first = execute(ledger, ask(engine, id="r1"), FACTS)
    before = ledger.tail()
    engine.value, engine.asked, engine.opening = 43, [], OSError("not there")
    again = execute(ledger, ask(engine, id="r1"), FACTS)
    assert engine.asked == ["plan"]
    assert again.receipt.replayed
    assert replace(again, receipt=None) == replace(first, receipt=None)
    assert ledger.tail() == before
    assert spent(ledger) == (0.25, 0)


def test_what_is_returned_is_what_is_kept(ledger, engine):
    engine.value = {"b": (1, 2.5), "a": None}
    first = execute(ledger, ask(engine, id="r1"), FACTS)
    assert first.value == {"a": None, "b": [1, 2.5]} == execute(ledger, ask(engine, id="r1"), FACTS).value


def test_without_an_id_every_request_is_a_new_charge(ledger, engine):
    names = {execute(ledger, ask(engine), FACTS).receipt.charge_id for _ in range(3)}
    assert len(names) == 3
    assert all(len(name) == 32 for name in names)
    assert spent(ledger) == (0.75, 0)


def test_the_same_id_for_something_else_is_a_conflict(ledger, engine):
    execute(ledger, ask(engine, id="r1"), FACTS)
    engine.asked = []
    with pytest.raises(ConflictError):
        execute(ledger, ask(engine, id="r1", purpose="another"), FACTS)
    engine.planned = replace(engine.planned, digest="sha256:other")
    with pytest.raises(ConflictError):
        execute(ledger, ask(engine, id="r1"), FACTS)
    assert "open" not in engine.asked
    assert spent(ledger) == (0.25, 0)


# ------------------------------------------------------------------------------------------------ before any row


def test_what_the_ledger_refuses_is_never_opened(ledger, engine):
    engine.planned = replace(engine.planned, event=ev.PureDp(1.5))
    with pytest.raises(OverBudgetError):
        execute(ledger, ask(engine), FACTS)
    with pytest.raises(UnknownNameError):
        execute(ledger, ask(engine, account="nobody"), FACTS)
    assert engine.asked == ["plan", "plan"]
    assert spent(ledger) == (0, 0)


@pytest.mark.parametrize("error", [InputError("no such file"), OSError("disk"), KeyboardInterrupt(), SystemExit(1)])
def test_a_source_that_does_not_open_costs_nothing(ledger, engine, error):
    engine.opening = error
    with pytest.raises(type(error)) as caught:
        execute(ledger, ask(engine, id="r1"), FACTS)
    assert caught.value is error
    assert ledger.state("r1") is State.VOIDED
    assert spent(ledger) == (0, 0)


def test_after_a_void_the_same_id_can_be_asked_again(ledger, engine):
    engine.opening = InputError("no such file")
    for _ in range(2):
        with pytest.raises(InputError):
            execute(ledger, ask(engine, id="r1"), FACTS)
    engine.opening = None
    first = execute(ledger, ask(engine, id="r1"), FACTS)
    assert first.receipt.charge_id == "r1~3"
    engine.asked = []
    again = execute(ledger, ask(engine, id="r1"), FACTS)
    assert (again.value, again.receipt.replayed, engine.asked) == (42, True, ["plan"])
    assert spent(ledger) == (0.25, 0)


def test_a_long_id_can_be_asked_again_too(ledger, engine):
    name = "x" * 195
    with pytest.raises(InputError, match="expected a printable text of 1 to 195 characters"):
        ask(engine, id=name + "x")
    engine.opening = InputError("no such file")
    for _ in range(2):
        with pytest.raises(InputError, match="no such file"):
            execute(ledger, ask(engine, id=name), FACTS)


def test_a_void_that_cannot_be_written_leaves_the_charge_reserved(ledger, engine, monkeypatch):
    engine.opening = InputError("no such file")
    monkeypatch.setattr(ledger, "void", failing(LedgerError("disk full")))
    with pytest.raises(InputError, match="no such file") as caught:
        execute(ledger, ask(engine, id="r1"), FACTS)
    assert "stays reserved" in caught.value.__notes__[0]
    assert spent(ledger) == (0.25, 0.25)


def test_a_predictable_source_of_noise_is_refused(ledger, engine):
    with pytest.raises(RefusedError, match="predictable"):
        execute(ledger, ask(engine), FACTS, rng=UnsafeSeededRng(1))
    assert engine.asked == []


def test_facts_must_be_those_of_the_request_and_of_the_book(ledger, engine):
    with pytest.raises(InputError, match="for dataset 'u'"):
        execute(ledger, ask(engine, dataset="u"), FACTS)
    with pytest.raises(InputError, match="is public"):
        execute(ledger, ask(engine), Facts(name="t", source="t.csv"))
    with pytest.raises(ConflictError, match="has another unit, trust or division"):
        execute(ledger, ask(engine), replace(FACTS, blocks=Blocks(column="ts", every="day")))
    with pytest.raises(ConflictError):
        execute(ledger, ask(engine), replace(FACTS, trust="local"))
    unknown = Facts(name="u", source="u.csv", unit=PrivacyUnit(dataset="u"))
    engine.planned = replace(engine.planned, unit=unknown.unit)
    with pytest.raises(UnknownNameError):
        execute(ledger, ask(engine, dataset="u"), unknown)
    with pytest.raises(InputError, match="planned for another unit"):
        execute(ledger, ask(engine), FACTS)
    assert "open" not in engine.asked
    assert ledger.open_charges() == ()


def test_a_block_means_the_same_rows_to_the_engine_and_the_book(ledger, engine):
    def divided(column, *parts):
        return Facts(name="d", source="d.csv", unit=PrivacyUnit(dataset="d"), blocks=Blocks(column=column, partitions=parts))

    ledger.add_dataset(divided("region", "north", "south").terms)
    ledger.grant("acme", "d", epsilon=1)
    engine.planned = replace(engine.planned, unit=PrivacyUnit(dataset="d"))
    asked = ask(engine, dataset="d", blocks=["north"])
    with pytest.raises(ConflictError):
        execute(ledger, asked, divided("city", "north", "south"))
    with pytest.raises(ConflictError):
        execute(ledger, asked, divided("region", "north", "east"))
    assert execute(ledger, asked, divided("region", "north")).value == 42  # partitions that were added since are no other division
    assert execute(ledger, asked, divided("region", "north", "south")).value == 42


# ------------------------------------------------------------------------------------------------ after the first row


def failing(error):
    def fail(*_, **__):
        raise error

    return fail


@contextmanager
def run_error():
    with pytest.raises(RunError) as caught:
        yield caught
    told = "".join(traceback.format_exception(caught.value))
    assert SECRET not in told
    assert "after rows were read: it is spent" in str(caught.value)
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    "error",
    [
        *(kind(SECRET) for kind in (ValueError, InputError, LedgerError, OverBudgetError, RunError, SystemExit)),
        MemoryError(),
        GeneratorExit(),
    ],
    ids=lambda e: type(e).__name__,
)
def test_a_run_that_fails_is_spent_and_tells_nothing(ledger, engine, error):
    engine.running = error
    with run_error():
        execute(ledger, ask(engine, id="r1"), FACTS)
    assert ledger.state("r1") is State.COMMITTED
    assert ledger.stored("r1") is None
    assert spent(ledger) == (0.25, 0)
    engine.running, engine.asked = None, []
    with pytest.raises(RunError, match="is spent and has no release"):
        execute(ledger, ask(engine, id="r1"), FACTS)
    assert engine.asked == ["plan"]


def test_what_failed_is_let_go(ledger, engine):
    class Told(ValueError):
        pass

    engine.running = Told(SECRET)
    kept = weakref.ref(engine.running)
    with pytest.raises(RunError) as caught:
        execute(ledger, ask(engine, id="r1"), FACTS)
    engine.running = None
    gc.collect()
    assert kept() is None
    frames = [frame.f_locals for frame, _ in traceback.walk_tb(caught.value.__traceback__)]
    assert SECRET not in repr([v.rows for f in frames for v in f.values() if isinstance(v, Source)])


def test_an_interrupt_is_spent_and_goes_on(ledger, engine):
    engine.running = KeyboardInterrupt(SECRET)
    with pytest.raises(KeyboardInterrupt) as caught:
        execute(ledger, ask(engine, id="r1"), FACTS)
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert ledger.state("r1") is State.COMMITTED


def test_a_signal_in_the_middle_of_a_run_is_spent(ledger, engine):
    engine.release = lambda made: signal.raise_signal(signal.SIGINT) or made
    with pytest.raises(KeyboardInterrupt):
        execute(ledger, ask(engine, id="r1"), FACTS)
    assert ledger.state("r1") is State.COMMITTED


@pytest.mark.parametrize(
    "value",
    [object(), float("nan"), {1: 2}, {"a": {2, 3}}, b"x", [[]], lambda: 0],
    ids=["object", "nan", "key", "set", "bytes", "deep", "function"],
)
def test_a_value_that_is_no_json_is_spent_and_does_not_leave(ledger, engine, value):
    if value == [[]]:
        for _ in range(300):
            value = [value]
    engine.value = value
    with run_error():
        execute(ledger, ask(engine, id="r1"), FACTS)
    assert ledger.stored("r1") is None
    assert spent(ledger) == (0.25, 0)


def test_a_value_that_is_too_long_to_keep_does_not_leave(ledger, engine, monkeypatch):
    monkeypatch.setattr(path, "RELEASE_MAX", 2_000)
    engine.value = "x" * 2_000
    with run_error():
        execute(ledger, ask(engine), FACTS)


@pytest.mark.parametrize(
    "release",
    [
        lambda made: made.value,
        lambda made: replace(made, event=ev.PureDp(0.1)),
        lambda made: replace(made, event=ev.NonPrivate()),
        lambda made: replace(made, unit=PrivacyUnit(dataset="t", key="user")),
        lambda made: replace(made, plan_digest="sha256:other"),
    ],
)
def test_a_release_of_something_else_is_spent_and_does_not_leave(ledger, engine, release):
    engine.release = release
    with run_error():
        execute(ledger, ask(engine), FACTS)
    assert spent(ledger) == (0.25, 0)


class Changing(Release):
    """A release whose event is another one whenever it is looked at."""

    looked = None

    @property
    def event(self):
        return ev.Repeat(ev.PureDp(0.25), 3 if next(Changing.looked) == 0 else 1)


def test_a_release_is_looked_at_once(ledger, engine):
    """Else a run of three steps could be stored, and paid, as one."""

    def release(made):
        Changing.looked = count()
        changing = object.__new__(Changing)
        for name in ("value", "unit", "plan_digest", "accuracy", "receipt"):
            object.__setattr__(changing, name, getattr(made, name))
        return changing

    engine.planned, engine.release = Planned(event=ev.Repeat(ev.PureDp(0.25), 3)), release
    made = execute(ledger, ask(engine), FACTS)
    assert (type(made), made.event.count) == (Release, 3)
    assert spent(ledger) == (0.75, 0)


def test_what_ran_is_compared_with_what_was_reserved(ledger, engine):
    """A plan whose event grows after it was charged runs for nothing."""

    class Growing(Planned):
        def __getattribute__(self, name):
            grown = name == "event" and "run" in engine.asked
            return ev.PureDp(0.5) if grown else super().__getattribute__(name)

    engine.planned = Growing()
    with run_error():
        execute(ledger, ask(engine), FACTS)
    assert spent(ledger) == (0.25, 0)


@pytest.mark.parametrize("kind", [UserWarning, RuntimeWarning, ResourceWarning])
def test_no_warning_of_a_run_is_shown(ledger, engine, kind):
    """Shown, it may tell of rows; made an error (as here, by pytest), it would make the ending depend on them."""
    engine.release = lambda made: warnings.warn(SECRET, kind, stacklevel=1) or made
    for _ in range(2):
        assert execute(ledger, ask(engine), FACTS).value == 42
        warnings.simplefilter("error")
    assert warnings.filters.count(path._SILENT) == 1
    with pytest.raises(kind, match="outside"):
        warnings.warn("outside", kind, stacklevel=1)


def test_warnings_stay_silent_until_the_last_run_has_ended(ledger, engine):
    """A run within a run ends first, and shows nothing of the other; nor does one that fails."""

    def release(made):
        with run_error():
            execute(ledger, ask(inner), FACTS)
        warnings.warn(SECRET, stacklevel=1)
        return made

    inner = Engine(running=ValueError(SECRET), name=f"path test {next(_NUMBERS)}")
    engines.register(inner.name, inner)
    engine.release = release
    assert execute(ledger, ask(engine), FACTS).value == 42
    engines._REGISTERED.pop(inner.name)
    with pytest.raises(UserWarning, match="outside"):
        warnings.warn("outside", stacklevel=1)


def test_an_interrupt_at_any_line_leaves_nothing_free_and_nothing_open(engine):
    """Every line of the path is cut off once; when rows were read the charge is spent or stays reserved, and no row is told."""

    def interrupting(frame, event, _):
        nonlocal passed
        if frame.f_code.co_filename == path.__file__:
            passed += event == "line"
            if passed == line and event == "line":
                raise KeyboardInterrupt
            return interrupting
        return None

    before, ends = sys.gettrace(), set()
    with Ledger.open("sqlite://") as ledger:
        ledger.add_dataset(FACTS.terms)
        ledger.grant("acme", "t", epsilon=1_000)
        for line in count(1):
            passed, engine.asked = 0, []
            request = ask(engine, id=f"r{line}")
            sys.settrace(interrupting)
            try:
                made = execute(ledger, request, FACTS)
            except KeyboardInterrupt as error:
                made = None
                told = "".join(traceback.format_exception(error))
            finally:
                sys.settrace(before)
            if made is not None:
                break
            assert SECRET not in told
            state = ledger.state(f"r{line}")
            ends.add(state)
            assert "run" not in engine.asked or state in (State.COMMITTED, State.RESERVED)
            assert state in (None, State.COMMITTED) or ledger.stored(f"r{line}") is None
            path._RUNS.clear()  # where the very line was cut off that lets warnings be shown again
    assert line > 60
    assert ends == {None, State.RESERVED, State.COMMITTED, State.VOIDED}


@pytest.mark.parametrize("error", [LedgerError("disk full"), ConflictError("gone")])
def test_what_could_not_be_committed_does_not_leave(ledger, engine, monkeypatch, error):
    try:
        raise ValueError(SECRET)
    except ValueError as cause:
        error.__cause__ = error.__context__ = cause
    monkeypatch.setattr(ledger, "commit", failing(error))
    with pytest.raises(type(error)) as caught:
        execute(ledger, ask(engine, id="r1"), FACTS)
    assert caught.value is error
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert ledger.stored("r1") is None
    assert spent(ledger) == (0.25, 0.25)
    monkeypatch.undo()
    with pytest.raises(ConflictError, match="has not ended"):
        execute(ledger, ask(engine, id="r1"), FACTS)


def test_a_failed_run_whose_commit_fails_stays_reserved(ledger, engine, monkeypatch):
    engine.running = ValueError(SECRET)
    monkeypatch.setattr(ledger, "commit", failing(LedgerError("disk full")))
    with pytest.raises(LedgerError, match="disk full") as caught:
        execute(ledger, ask(engine, id="r1"), FACTS)
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert spent(ledger) == (0.25, 0.25)


@pytest.mark.parametrize("error", [SystemExit(1), MemoryError(), RecursionError(), OSError("disk"), GeneratorExit()], ids=repr)
@pytest.mark.parametrize("fails", [True, False])
def test_whatever_ends_a_commit_takes_nothing_of_the_run_with_it(ledger, engine, monkeypatch, error, fails):
    engine.running = ValueError(SECRET) if fails else None
    monkeypatch.setattr(ledger, "commit", failing(error))
    with pytest.raises(type(error)) as caught:
        execute(ledger, ask(engine, id="r1"), FACTS)
    assert caught.value is error
    assert (error.__context__, error.__cause__) == (None, None)
    assert not any(isinstance(v, Source) for frame, _ in traceback.walk_tb(error.__traceback__) for v in frame.f_locals.values())
    assert spent(ledger) == (0.25, 0.25)


def test_an_interrupt_while_committing_is_spent(ledger, engine, monkeypatch):
    commit, calls = ledger.commit, []

    def interrupted(name, **more):
        calls.append(more)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return commit(name, **more)

    monkeypatch.setattr(ledger, "commit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        execute(ledger, ask(engine, id="r1"), FACTS)
    assert ledger.state("r1") is State.COMMITTED
    assert ledger.stored("r1") is None


def test_a_run_of_another_that_has_not_ended_is_not_run_again(ledger, engine):
    def again(made):
        with pytest.raises(ConflictError, match="has not ended"):
            execute(ledger, ask(engine, id="r1"), FACTS)
        return made

    engine.release = again
    assert execute(ledger, ask(engine, id="r1"), FACTS).value == 42
    assert engine.asked == ["plan", "open", "run", "plan"]


# ------------------------------------------------------------------------------------------------ parts of a plan


STEPS = ev.Repeat(ev.PureDp(0.25), 10)


def test_as_many_steps_run_as_fit(ledger, engine):
    engine.planned = Shortable(event=STEPS)
    with pytest.raises(OverBudgetError):
        execute(ledger, ask(engine, id="r1"), FACTS)
    made = execute(ledger, ask(engine, id="r2"), FACTS, up_to=True)
    assert isinstance(made, ShortRelease)
    assert (made.event, made.planned, made.plan_digest) == (ev.Repeat(ev.PureDp(0.25), 4), STEPS, "sha256:plan:4")
    assert str(made) == "Cut short: 4 of 10 steps were run."
    assert spent(ledger) == (1, 0)
    again = execute(ledger, ask(engine, id="r2"), FACTS, up_to=True)
    assert again.receipt.replayed
    assert replace(again, receipt=None) == replace(made, receipt=None)
    with pytest.raises(OverBudgetError):
        execute(ledger, ask(engine), FACTS, up_to=True)


def test_a_whole_plan_that_fits_is_not_cut_short(ledger, engine):
    engine.planned = Shortable(event=ev.Repeat(ev.PureDp(0.25), 4))
    made = execute(ledger, ask(engine), FACTS, up_to=True)
    assert (type(made), made.plan_digest) == (Release, "sha256:plan")


def test_a_plan_that_cannot_be_cut_short_is_refused_before_it_is_charged(ledger, engine):
    engine.planned = Planned(event=STEPS)
    with pytest.raises(InputError, match="cannot run a part"):
        execute(ledger, ask(engine), FACTS, up_to=True)

    class Wrong(Shortable):
        def shortened(self, k):
            return self

    engine.planned = Wrong(event=STEPS)
    with pytest.raises(InputError, match="was not cut short"):
        execute(ledger, ask(engine, id="r1"), FACTS, up_to=True)
    assert ledger.state("r1") is State.VOIDED
    assert spent(ledger) == (0, 0)


def test_less_is_charged_only_where_the_plan_names_a_theorem(ledger, engine):
    engine.release = lambda made: replace(made, event=ev.Repeat(ev.PureDp(0.25), 2))
    engine.planned = Planned(event=ev.Repeat(ev.PureDp(0.25), 3))
    with run_error():
        execute(ledger, ask(engine), FACTS)
    assert spent(ledger) == (0.75, 0)


def test_a_run_that_stops_early_by_a_theorem_pays_for_what_it_did(ledger, engine):
    engine.release = lambda made: replace(made, event=ev.Repeat(ev.PureDp(0.25), 2))
    engine.planned = Stopping(event=ev.Repeat(ev.PureDp(0.25), 3))
    made = execute(ledger, ask(engine, id="r1"), FACTS)
    assert (type(made), made.event.count) == (ShortRelease, 2)
    assert spent(ledger) == (0.5, 0)
    engine.planned = Stopping(event=ev.Repeat(ev.PureDp(0.25), 2))
    engine.release = lambda made: replace(made, event=ev.Repeat(ev.PureDp(0.125), 2))
    with run_error():
        execute(ledger, ask(engine, id="r2"), FACTS)


# ------------------------------------------------------------------------------------------------ looking


def test_a_plan_can_be_looked_at_for_free(ledger, engine):
    assert path.preview(ask(engine), FACTS).event == ev.PureDp(0.25)
    assert spent(ledger) == (0, 0)
    with pytest.raises(DitherError):
        path.stored(ledger, "r1")
    engine.opening = InputError("none")
    with pytest.raises(InputError):
        execute(ledger, ask(engine, id="r1"), FACTS)
    with pytest.raises(InputError, match="has no release"):
        path.stored(ledger, "r1")
