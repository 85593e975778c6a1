"""An accountant of its own: reads exported lines with json and hashlib alone, and adds up what the events truly cost.

It shares no code with the book. It knows the events whose price is their own number, and limits of kind pure and approx on
datasets whose neighbours are add_remove; that is what the races and the kills are run with.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

Price = tuple[Fraction, Fraction]
ZERO: Price = (Fraction(0), Fraction(0))


def digest_of(value: object) -> str:
    """The digest of a JSON value in the one form it has."""
    return "sha256:" + hashlib.sha256(canonical(value).encode("ascii")).hexdigest()


def canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def price(event: dict[str, Any]) -> Price:
    """The true (ε, δ) of an event; decimals as they are written, noise as the float that runs."""
    match event["event"]:
        case "PureDp" | "RandomizedResponse" | "ExponentialMechanism":
            return Fraction(repr(event["epsilon"])), Fraction(0)
        case "ApproxDp":
            return Fraction(repr(event["epsilon"])), Fraction(repr(event["delta"]))
        case "Laplace":
            return 1 / Fraction(event["noise_multiplier"]), Fraction(0)
        case "Repeat":
            epsilon, delta = price(event["of"])
            return epsilon * event["count"], delta * event["count"]
        case "Sequence":
            return tuple(sum(column, Fraction(0)) for column in zip(*map(price, event["of"]), strict=True))
        case other:
            raise AssertionError(other)


class Audit:
    """What the lines say, replayed one by one; an assertion fails at the first that breaks a promise.

    ``known`` gives the events behind the digests in refusals, so that a refusal is checked too: what was refused did not fit.
    """

    def __init__(self, lines: Iterable[str] = (), *, known: Iterable[dict[str, Any]] = ()) -> None:
        self.count, self.head, self.at = 0, "0" * 64, ""
        self.kinds: Counter[str] = Counter()
        self.charges: dict[str, dict[str, Any]] = {}
        self.states: dict[str, str] = {}
        self.recovered: set[str] = set()
        self.releases: dict[str, str | None] = {}
        self.refused: Counter[str] = Counter()
        self.limits: dict[str, dict[str, Any]] = {}
        self.datasets: dict[str, dict[str, Any]] = {}
        self.accounts: set[tuple[str, ...]] = set()
        self.spent: dict[tuple[str, str], Price] = {}
        self.events = {digest_of(event): event for event in known}
        self._prices: dict[str, Price] = {}
        self.feed(lines)

    def feed(self, lines: Iterable[str]) -> Audit:
        """Replay more lines."""
        for line in lines:
            body = json.loads(line)
            assert canonical(body) == line, "one text per entry"
            assert body["n"] == self.count
            assert body["prev"] == self.head, "the chain is whole"
            assert body["at"] >= self.at, "time never goes back"
            assert (body["kind"] == "checkpoint") == (self.count > 0 and self.count % 1024 == 0)
            self.count, self.head, self.at = self.count + 1, hashlib.sha256(line.encode("ascii")).hexdigest(), body["at"]
            self.kinds[body["kind"]] += 1
            taken: Callable[[dict[str, Any]], None] | None = getattr(self, f"_{body['kind']}", None)
            if taken is not None:
                taken(body)
        return self

    # ------------------------------------------------------------------------------------------------ terms

    def _dataset(self, body: dict[str, Any]) -> None:
        assert body["dataset"]["unit"]["neighbors"] == "add_remove"
        self.datasets[body["dataset"]["name"]] = body["dataset"]

    def _account(self, body: dict[str, Any]) -> None:
        account = tuple(body["account"])
        assert account not in self.accounts
        assert len(account) == 1 or account[:-1] in self.accounts
        self.accounts.add(account)

    def _limit(self, body: dict[str, Any]) -> None:
        limit = body["limit"]
        assert limit["id"] not in self.limits
        assert limit["filter"]["kind"] in {"pure", "approx"}
        self.limits[limit["id"]] = limit

    def _move(self, body: dict[str, Any]) -> None:
        before = [_most(self.limits[i]) for i in (body["source"], body["target"])]
        for i in (body["source"], body["target"]):
            self.limits[i] = {**self.limits[i], "filter": body["filters"][i]}
        after = [_most(self.limits[i]) for i in (body["source"], body["target"])]
        moved = Fraction(body["epsilon"]), Fraction(body["delta"])
        assert [_added(before[0], moved, -1), _added(before[1], moved)] == after
        self.within()

    # ------------------------------------------------------------------------------------------------ charges

    def _balances(self, charge: dict[str, Any]) -> list[tuple[str, str]]:
        """The balances that a charge meets."""
        account, dataset = tuple(charge["account"]), charge["unit"]["dataset"]
        assert account in self.accounts
        divided, disjoint = self.datasets[dataset]["blocks"] is not None, self.datasets[dataset]["disjoint"]
        assert bool(charge["blocks"]) == divided
        found = []
        for name, limit in self.limits.items():
            if limit["dataset"] == dataset and tuple(limit["account"]) == account[: len(limit["account"])]:
                each = divided and (disjoint or limit["per"] == "block")
                found += [(name, block) for block in (charge["blocks"] if each else [""])]
        assert found, "a charge meets at least one limit"
        return found

    def _reserve(self, body: dict[str, Any]) -> None:
        charge = body["charge"]
        assert charge["id"] not in self.charges, "a charge is taken once"
        assert body["digest"] == digest_of(charge)
        self.events[digest_of(charge["event"])] = charge["event"]
        self.charges[charge["id"]], self.states[charge["id"]] = charge, "reserved"
        self._prices[charge["id"]] = price(charge["event"])
        self._add(charge, self._prices[charge["id"]])

    def _add(self, charge: dict[str, Any], amount: Price, sign: int = 1) -> None:
        for place in self._balances(charge):
            self.spent[place] = _added(self.spent.get(place, ZERO), amount, sign)
            assert _fits(self.spent[place], self.limits[place[0]]), f"{place} is overspent at entry {self.count - 1}"
            assert min(self.spent[place]) >= 0

    def _commit(self, body: dict[str, Any]) -> None:
        name = body["charge"]
        assert self.states[name] == "reserved", "settled once"
        self.states[name], self.releases[name] = "committed", body["release"]
        if body["recovered"]:
            self.recovered.add(name)
        if body["event"] is not None:
            self._add(self.charges[name], self._prices[name], -1)
            paid = price(body["event"])
            assert all(a <= b for a, b in zip(paid, self._prices[name], strict=True))
            self._prices[name] = paid
            self._add(self.charges[name], paid)

    def _void(self, body: dict[str, Any]) -> None:
        name = body["charge"]
        assert self.states[name] == "reserved", "settled once"
        self.states[name] = "voided"
        self._add(self.charges[name], self._prices.pop(name), -1)

    def _refusal(self, body: dict[str, Any]) -> None:
        if body["what"] != "charge":
            return
        self.refused[body["charge"]] += 1
        event = self.events.get(body["event"])
        if body["code"] == "over_budget" and event is not None:
            account, amount = tuple(body["account"]), price(event)
            meets = [
                i for i, x in self.limits.items() if x["dataset"] == body["dataset"] and tuple(x["account"]) == account[: len(x["account"])]
            ]
            places = [p for p in {*self.spent, *((i, "") for i in meets)} if p[0] in meets]
            assert any(not _fits(_added(self.spent.get(p, ZERO), amount), self.limits[p[0]]) for p in places), "refused though it fits"

    def within(self) -> None:
        """Every balance within its limit."""
        for (name, _), used in self.spent.items():
            assert _fits(used, self.limits[name])

    def standing(self) -> dict[str, int]:
        """How many charges are reserved, committed and voided."""
        return dict(Counter(self.states.values()))


def _most(limit: dict[str, Any]) -> Price:
    return Fraction(limit["filter"]["epsilon"]), Fraction(limit["filter"]["delta"])


def _added(one: Price, other: Price, sign: int = 1) -> Price:
    return one[0] + sign * other[0], one[1] + sign * other[1]


def _fits(used: Price, limit: dict[str, Any]) -> bool:
    most = _most(limit)
    return used[0] <= most[0] and used[1] <= most[1]
