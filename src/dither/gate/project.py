"""A project: the datasets, accounts and jobs of a ``dither.yaml``, with its ledger open. What outside code starts from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from dither.core.errors import ConflictError, InputError, RefusedError, UnknownNameError
from dither.core.plans import Plan, Release
from dither.core.rng import Rng
from dither.gate import file, path
from dither.gate.engines import Facts, Request
from dither.gate.file import Declared, Terms
from dither.gate.marked import Loc
from dither.ledger.book import Ledger
from dither.ledger.paths import Account, text

if TYPE_CHECKING:
    from dither.gate.ask import SqlRelease

DEFAULT = "dither.yaml"


@dataclass(frozen=True, slots=True)
class Project:
    """A loaded project file and its open ledger. ``Project.load`` declares in the ledger what the file says; use ``with``."""

    file: Path
    ledger: Ledger
    declared: Declared

    @classmethod
    def load(
        cls,
        file_path: str | Path = DEFAULT,
        *,
        actor: str | None = None,
        clock: Callable[[], datetime] | None = None,
    ) -> Self:
        """Read the file, open its ledger, and declare datasets, accounts and limits there: the same file again changes nothing.

        A limit that is wider than the one the book has already is refused, and so is a dataset that is divided anew: what was
        promised is not taken back.
        """
        found = file.load(where := Path(file_path))
        with _placed(found, "ledger"):
            ledger = Ledger.open(found.url, key=found.key, anchor=found.anchor, channels=found.channels, actor=actor, clock=clock)
        try:
            _declare(ledger, found)
        except BaseException:
            ledger.close()
            raise
        return cls(where, ledger, found)

    @property
    def datasets(self) -> Mapping[str, Facts]:
        """What is publicly known of each dataset."""
        return MappingProxyType(dict(self.declared.datasets))

    @property
    def accounts(self) -> tuple[Account, ...]:
        """Every account of the file, parents first."""
        return self.declared.accounts

    @property
    def jobs(self) -> Mapping[str, Request]:
        """The requests of the file, by name."""
        return MappingProxyType(dict(self.declared.jobs))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the jobs, in the order of the file."""
        return tuple(self.declared.jobs)

    def facts(self, dataset: str) -> Facts:
        """What is publicly known of one dataset."""
        if dataset not in self.declared.datasets:
            raise UnknownNameError("dataset", dataset, self.declared.datasets or ["(none)"])
        public = tuple(f for name, f in self.declared.datasets.items() if f.unit is None and name != dataset)
        return replace(self.declared.datasets[dataset], beside=public)

    def job(self, name: str) -> Request:
        """The request of one job."""
        if name not in self.declared.jobs:
            raise UnknownNameError("job", name, self.declared.jobs or ["(the file has no jobs)"])
        return self.declared.jobs[name]

    # -------------------------------------------------------------------------------------------- asking

    def request(self, engine: str, *, dataset: str, account: object, purpose: str, **more: Any) -> Request:  # noqa: ANN401 - id, blocks, and the engine's fields
        """A request to any engine: ``id`` and ``blocks`` are the path's, everything else is the engine's."""
        own = {key: more.pop(key) for key in ("id", "blocks", "name") if key in more}
        options = {key: value for key, value in more.items() if value is not None}
        return Request.of(engine, dataset=dataset, account=account, purpose=purpose, options=options, **own)

    def plan(self, request: Request) -> Plan:
        """What a request would run and cost, for free: nothing is reserved, opened or drawn."""
        return path.preview(request, self.facts(request.dataset))

    def run(self, request: Request, *, rng: Rng | None = None, up_to: bool = False) -> Release[Any]:
        """Answer a request on the one path (``gate.path``)."""
        return path.execute(self.ledger, request, self.facts(request.dataset), rng=rng, up_to=up_to)

    def run_job(self, name: str, *, rng: Rng | None = None, up_to: bool = False) -> Release[Any]:
        """Answer one job of the file; what is wrong with it is told by its place there."""
        request = self.job(name)
        with _placed(self.declared, "jobs", name):
            self.plan(request)
        return self.run(request, rng=rng, up_to=up_to)

    def measure(
        self,
        statistic: str,
        *,
        dataset: str,
        account: object,
        purpose: str,
        epsilon: float | None = None,
        **options: Any,  # noqa: ANN401 - id, blocks, and fields of the engine
    ) -> Release[Any]:
        """A count, sum, mean, median, histogram or quantiles of one table, with noise (``gate.measure``)."""
        asked = {"dataset": dataset, "account": account, "purpose": purpose}
        return self.run(self.request("measure", **asked, statistic=statistic, epsilon=epsilon, **options))  # type: ignore[arg-type]  # checked by Request

    def sql(
        self,
        sql: str,
        *,
        account: object,
        purpose: str,
        epsilon: float | None = None,
        bounds: Mapping[str, int] | None = None,
        **more: Any,  # noqa: ANN401 - delta, id, blocks
    ) -> SqlRelease:
        """The answer to a SELECT over one dataset, each number with its interval (``gate.ask``)."""
        from dither.gate.ask import SqlRelease, dataset_of  # noqa: PLC0415 - an extra

        asked = {"dataset": dataset_of(sql, self.declared.datasets.values()), "account": account, "purpose": purpose}
        return SqlRelease.of(self.run(self.request("sql", **asked, sql=sql, epsilon=epsilon, **dict(bounds or {}), **more)))  # type: ignore[arg-type]  # checked by Request

    # -------------------------------------------------------------------------------------------- the end

    def close(self) -> None:
        """Close the ledger."""
        self.ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _declare(ledger: Ledger, found: Declared) -> None:
    """Tell the ledger of everything in the file, parents first."""
    for name, facts in found.datasets.items():
        if facts.unit is not None:
            with _placed(found, "datasets", name):
                ledger.add_dataset(facts.terms)
    for account in found.accounts:
        with _placed(found, "accounts", text(account), key=text(account)):
            ledger.add_account(account)
    for terms in found.limits:
        _grant(ledger, found, terms)
    for terms in found.limits:  # only now, for a split divides every limit of its account, also one that comes after it in the file
        if terms.split:
            with _placed(found, *terms.loc, "split"):
                ledger.split(terms.limit.account, terms.limit.dataset, terms.split, alert_at=terms.limit.alert_at)


def _grant(ledger: Ledger, found: Declared, terms: Terms) -> None:
    limit, spec = terms.limit, terms.limit.filter
    with _placed(found, *terms.loc, "epsilon"):
        ledger.grant(
            limit.account,
            limit.dataset,
            epsilon=spec.epsilon,
            delta=spec.delta,
            kind=spec.kind,
            side_delta=spec.side_delta,
            orders=spec.orders or None,
            per=limit.per.value,
            starts=limit.starts,
            ends=limit.ends,
            alert_at=limit.alert_at,
        )


@contextmanager
def _placed(found: Declared, *loc: str | int, key: str | None = None) -> Iterator[None]:
    """Give what is refused inside its place in the file, and leave its kind as it is."""
    try:
        yield
    except (InputError, RefusedError) as error:
        place: Loc = _real(found, loc)
        kind = next(k for k in (ConflictError, InputError, RefusedError) if isinstance(error, k))
        told = str(found.marked.refuse(place if key is None else place[:-1], str(error), key=key))
        raise kind(told) from None


def _real(found: Declared, loc: tuple[str | int, ...]) -> Loc:
    """The location as it is written: a job of a list stands at its index."""
    if loc[0] == "jobs" and isinstance(found.marked.value["jobs"], list):
        return ("jobs", list(found.jobs).index(str(loc[1])), *loc[2:])
    return loc
