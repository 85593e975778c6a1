"""Pages of the ledger for a terminal: the tree with its bars, history, who spent what, refusals, prices beside each other.

Every line fits the terminal, counted in cells (a Chinese character takes two); bars are drawn in ASCII where the terminal
has nothing better, and painted only where a person is looking.
"""

from __future__ import annotations

import math
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from dither.accounting import tables
from dither.app import text

if TYPE_CHECKING:
    from dither.core.plans import Receipt
    from dither.core.units import Guarantee
    from dither.ledger.overview import Held, Line, Node, Overview, Sheet
    from dither.ledger.prices import Prices
    from dither.ledger.views import Part, Row

NARROWEST, WIDEST = 40, 120


# ------------------------------------------------------------------------------------------------ the terminal


@dataclass(frozen=True, slots=True)
class Look:
    """What the terminal can show: its width in cells, whether it has box and block characters, whether to paint, its alphabet."""

    width: int = 80
    blocks: bool = True
    paint: bool = False
    alphabet: str = "utf-8"

    def say(self, words: str) -> str:
        """The words as this terminal will show them: on one line, and what its alphabet lacks spelled in plain letters.

        >>> Look(alphabet="ascii").say("ε ≤ 1 für 広告")
        'eps <= 1 f?r ??'
        """
        told = plain(words)
        return told if told.isascii() else told.encode(self.alphabet, "dither_plain").decode(self.alphabet)

    @property
    def more(self) -> str:
        """The sign that something was cut."""
        return self.say("…")


def look() -> Look:
    """How to draw for whoever is reading stdout now."""
    columns = shutil.get_terminal_size((text.WIDTH, 24)).columns
    alphabet = getattr(sys.stdout, "encoding", None) or "ascii"
    try:
        "█▒░├─└│".encode(alphabet)
        able = True
    except UnicodeEncodeError:
        able = False
    except LookupError:
        able, alphabet = False, "ascii"
    return Look(min(max(columns, NARROWEST), WIDEST), able, text.painted(), alphabet)


def cells(words: str) -> int:
    r"""How many columns of a terminal a text takes.

    >>> cells("ads"), cells("広告"), cells("e\u0301")
    (3, 4, 1)
    """
    if words.isascii():
        return len(words)
    total, last = 0, 0
    for letter in words:
        if letter == "\ufe0f":  # makes a narrow sign before it an emoji
            total += 2 - last if last == 1 else 0
            last = 2
        elif unicodedata.category(letter) not in ("Mn", "Me", "Cf"):
            last = 2 if unicodedata.east_asian_width(letter) in "WF" else 1
            total += last
    return total


def fit(words: str, width: int, more: str = "…") -> str:
    """The text cut to a width, and filled up to it.

    >>> fit("advertising", 6), fit("ads", 6), fit("広告部", 5)
    ('adver…', 'ads   ', '広告…')
    """
    if cells(words) > width:
        kept = ""
        for letter in words:
            if cells(kept + letter) > width - cells(more):
                break
            kept += letter
        words = f"{kept}{more}"
    return words + " " * (width - cells(words))


def plain(words: str) -> str:
    r"""A text that steers no terminal, whatever was stored.

    >>> plain("one\x1b[2Jtwo")
    'one\\x1b[2Jtwo'
    """
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in words)


_WORDS = 6
"""Words get at least so many cells of a line, whatever stands before them."""


def wrapped(words: str, width: int, *, first: str = "", rest: str | None = None) -> list[str]:
    """Lines of at most ``width`` cells; a word longer than a line is cut over several.

    >>> wrapped("one two three", 8, first="- ")
    ['- one', '  two', '  three']
    """
    follow = " " * cells(first) if rest is None else rest
    if cells(follow) > width - _WORDS:
        follow = " " * max(min(width - _WORDS, 4), 0)
    lines, line, empty = [], first, True
    if cells(first) > width - _WORDS:
        lines, line = [_prefix(first, width).rstrip()] if first.strip() else [], follow
    for word in plain(words).split():
        left = word
        if not empty and cells(line) + 1 + cells(left) > width:
            lines.append(line.rstrip())
            line, empty = follow, True
        while left and cells(line) + (0 if empty else 1) + cells(left) > width:
            cut = _prefix(left, max(width - cells(line), 1))
            lines.append(line + cut)
            line, left, empty = follow, left[len(cut) :], True
        line += left if empty else f" {left}"
        empty = False
    return [*lines, line.rstrip()]


def _prefix(words: str, width: int) -> str:
    kept = words[:1]
    for letter in words[1:]:
        if cells(kept + letter) > width:
            break
        kept += letter
    return kept


def bar(share: float, reserved: float, width: int, how: Look) -> str:
    """Spent, reserved and free parts of a limit; never full before the limit is, never empty once something is spent.

    >>> bar(0.5, 0.25, 8, Look()), bar(0.999, 0, 8, Look(blocks=False)), bar(1e-9, 0, 8, Look())
    ('████▒▒░░', '#######.', '█░░░░░░░')
    """
    full, half, free = "█▒░" if how.blocks else "#+."
    used = _part(share, width)
    both = max(_part(share + reserved, width), used)
    drawn = full * used + half * (both - used) + free * (width - both)
    if not how.paint:
        return drawn
    colour = "red" if share + reserved >= 0.95 else "yellow" if share + reserved >= 0.8 else "green"
    return click.style(drawn[:both], fg=colour) + click.style(drawn[both:], dim=True)


def _part(share: float, width: int) -> int:
    if share >= 1:
        return width
    return 0 if share <= 0 else min(max(math.ceil(share * width - 0.5), 1), width - 1)


def grid(rows: Iterable[Sequence[str]], headings: Sequence[str], how: Look, *, right: Iterable[int] = (), indent: int = 2) -> list[str]:
    r"""Aligned columns under headings and a rule; the widest columns give way where the terminal is narrow.

    >>> print("\n".join(grid([("acme", "7"), ("acme/ads", "12")], ("account", "charges"), Look(width=40), right=[1])))
      account   charges
      ─────────────────
      acme            7
      acme/ads       12
    """
    body = [tuple(how.say(cell) for cell in row) for row in (headings, *rows)]
    widths = [max(cells(row[i]) for row in body) for i in range(len(headings))]
    room = how.width - indent - 2 * (len(widths) - 1)
    while sum(widths) > room and max(widths) > 3:
        widths[widths.index(max(widths))] -= 1
    ends = set(right)

    def line(row: Sequence[str]) -> str:
        shown = [fit(cell, w, how.more) for cell, w in zip(row, widths, strict=True)]
        shown = [" " * (w - cells(c.rstrip())) + c.rstrip() if i in ends else c for i, (c, w) in enumerate(zip(shown, widths, strict=True))]
        return f"{' ' * indent}{'  '.join(shown)}".rstrip()

    rule = " " * indent + ("─" if how.blocks else "-") * (sum(widths) + 2 * (len(widths) - 1))
    return [line(body[0]), rule, *(line(row) for row in body[1:])]


def facts(pairs: Iterable[tuple[str, str]], how: Look, *, indent: int = 2) -> list[str]:
    r"""Name and value, one pair a line, values wrapped under themselves.

    >>> print("\n".join(facts([("unit", "one row"), ("trust", "central")], Look())))
      unit   one row
      trust  central
    """
    given = [(how.say(name), how.say(value)) for name, value in pairs]
    wide = min(max((cells(name) for name, _ in given), default=0), how.width // 2)
    return [line for name, value in given for line in wrapped(value, how.width, first=f"{' ' * indent}{fit(name, wide, how.more)}  ")]


# ------------------------------------------------------------------------------------------------ how everything stands

BAR = 24
NARROW = 64
"""Below this width a name has a line of its own."""
_NAMES, _LEVELS = 26, 5


def overview_page(made: Overview, how: Look) -> list[str]:
    """``dither ledger show``: each dataset's tree with its bars, what is left in plain words, notes and the last refusals."""
    signed = "signed" if made.public_key else "unsigned"
    still = f", {made.open_charges:,} charge{'' if made.open_charges == 1 else 's'} open" if made.open_charges else ""
    lines = wrapped(how.say(f"{made.url}: {made.entries:,} entries, {signed}, last {made.at:%Y-%m-%d %H:%M} UTC{still}"), how.width)
    if not made.sheets:
        lines += [
            "",
            *wrapped(
                how.say("No dataset yet: declare datasets and accounts in dither.yaml, then  dither ledger show."), how.width, first="  "
            ),
        ]
    for sheet in made.sheets:
        lines += ["", *_sheet(sheet, how)]
    rooms = [line.room for sheet in made.sheets for node in sheet.nodes for held in node.limits for line in held.lines if line.room]
    if rooms:
        told = "A count says how many units have some property; ±5 means within 5 with 95 % confidence. Every limit above counts too."
        curved = any(held.limit.filter.kind in ("advanced", "zcdp", "rdp") for s in made.sheets for node in s.nodes for held in node.limits)
        told += " Bars show what a limit's filter adds up; there ε grows like a square root." if curved else ""
        lines += ["", *wrapped(how.say(told), how.width, first="  ")]
    for note in made.notes:
        lines += ["", *wrapped(how.say(note), how.width, first="  ! ", rest="  ! ")]
    if made.refusals:
        lines += ["", "Last refused"]
        for row in made.refusals:
            whose = f" {row.account}" if row.account else ""
            lines += wrapped(how.say(f"{row.at:%Y-%m-%d %H:%M}{whose}: {row.what}"), how.width, first="  ", rest="    ")
    return lines


def _sheet(sheet: Sheet, how: Look) -> list[str]:
    dataset = sheet.dataset
    lines = wrapped(how.say(f"{dataset.name}: hides {dataset.unit}; {dataset.trust} trust"), how.width)
    if not sheet.nodes:
        advice = f"No limit yet, so nothing may be spent: dither ledger grant ACCOUNT {dataset.name} --epsilon 1."
        return [*lines, *wrapped(how.say(advice), how.width, first="  ")]
    full, half, free = "█▒░" if how.blocks else "#+."
    lines += [how.say("  ") + f"{full} spent  {half} reserved  {free} free", ""]
    labels = [_label(node, how) for node in sheet.nodes]
    wide = min(max(cells(label) for label in labels), _NAMES)
    for i, node in enumerate(sheet.nodes):
        follows = i + 1 < len(sheet.nodes) and len(sheet.nodes[i + 1].account) > len(node.account)
        lines += _node(node, labels[i], wide, how, parent=follows)
    return lines


def _label(node: Node, how: Look) -> str:
    tee, corner, pipe = ("├─ ", "└─ ", "│  ") if how.blocks else ("|- ", "`- ", "|  ")
    ties = node.ties[-_LEVELS:]
    before = "".join(pipe if tie else "   " for tie in ties[:-1])
    here = "" if not ties else tee if ties[-1] else corner
    deep = f"{how.more}/" if len(node.ties) > _LEVELS else ""
    return f"  {before}{here}{deep}{how.say(node.account[-1])}"


def _under(node: Node, how: Look, *, parent: bool) -> str:
    """What stands before the lines that follow an account's first."""
    pipe = "│" if how.blocks else "|"
    before = "".join(f"{pipe}  " if tie else "   " for tie in node.ties[-_LEVELS:])
    return f"  {before}{pipe if parent else ' '} "


def _node(node: Node, label: str, wide: int, how: Look, *, parent: bool) -> list[str]:
    """An account: its name beside its first bar, or on a line of its own where it is long or there is little room."""
    under = _under(node, how, parent=parent)
    alone = how.width < NARROW or cells(label) > wide
    lines = [fit(label, how.width, how.more).rstrip()] if alone else []
    lead = under if alone else fit(label, wide, how.more)
    for held in node.limits:
        lines += _limit(held, lead, under, wide, how)
        lead = under
    if not node.limits and not alone:
        lines = [f"{label}  {how.say('no limit of its own')}"]
    if node.unlimited:
        lines += wrapped(how.say(f"{node.unlimited:,} below without a limit of their own"), how.width, first=under, rest=under)
    return lines


def _limit(held: Held, lead: str, under: str, wide: int, how: Look) -> list[str]:
    """A limit's lines, the first of them after ``lead``."""
    limit = held.limit
    blocked = limit.per == "block" or any(line.standing.block for line in held.lines)
    lines: list[str] = []
    if blocked:
        words = f"{limit.id} {limit.filter.kind}, for each block: hides {held.hides}"
        lines += wrapped(how.say(words), how.width, first=lead if lead == under else f"{lead}  ", rest=under)
        lead = under
    for line in held.lines:
        if blocked:
            name = f"{under}{how.say(line.standing.block or '(a new block)')}"
            alone = how.width < NARROW or cells(name) > wide
            lines += [fit(name, how.width, how.more).rstrip()] if alone else []
            lead = under if alone else name
        lines += _balance(line, held, lead, under, wide, how)
        lead = under
    if held.fold is not None:
        fold = held.fold
        left = (tables.down(each, 3) for each in (fold.least, fold.median, fold.most))
        words = "{:,} blocks used: ε {} (least), {} (middle), {} (most) is left".format(fold.blocks, *left)
        lines += wrapped(how.say(words), how.width, first=under, rest=under)
    if held.active:
        lines += wrapped(how.say(f"{limit.id} is closed: {held.active} UTC"), how.width, first=under, rest=under)
    return lines


def _balance(line: Line, held: Held, lead: str, under: str, wide: int, how: Look) -> list[str]:
    """The bar of one balance, and in words what is left of it."""
    found, spec = line.standing, held.limit.filter
    used = max(found.share - found.reserved, 0.0)
    start, width = (lead, how.width - cells(lead) - 7) if how.width < NARROW else (f"{fit(lead, max(wide, cells(lead)))}  ", BAR)
    drawn = f"{start}{bar(used, found.reserved, width, how)} {_percent(found.share)}"
    spent = how.say(f"ε {tables.up(found.spent.epsilon, 3)} of {float(spec.epsilon):.6g}, δ {float(spec.delta):.3g}")
    named = "" if found.block or held.limit.per == "block" else f"{held.limit.id} {spec.kind}: "
    words = named + "; ".join(each for each in (_room(line, held), _ahead(line)) if each)
    if cells(start) + width + 8 + cells(spent) <= how.width:
        return [f"{drawn}  {spent}", *wrapped(how.say(words), how.width, first=under, rest=under)]
    return [drawn, *wrapped(spent, how.width, first=under, rest=under), *wrapped(how.say(words), how.width, first=under, rest=under)]


def _room(line: Line, held: Held) -> str:
    if line.room is None:
        return ""
    other = line.room.held_by not in ("", held.limit.id)
    return f"{line.room}{f', held by {line.room.held_by}' if other else ''}"


def _ahead(line: Line) -> str:
    """When it will be used up, in few words."""
    found = line.forecast
    if line.standing.share >= 1:
        return "used up" if found.date is None else f"used up since {found.date:%Y-%m-%d}"
    if found.date is None:
        return f"used up {found}" if found.per_day > 0 else ""
    latest = "never" if found.latest is None else f"{found.latest:%Y-%m-%d}"
    earliest = found.date if found.earliest is None else found.earliest
    return f"used up about {found.date:%Y-%m-%d} ({100 * found.confidence:g} %: {earliest:%Y-%m-%d} to {latest})"


def _percent(share: float) -> str:
    """A share in five cells, rounded so that a limit is never told as full before it is, nor as untouched once it is not."""
    if share <= 0:
        return "  0 %"
    if share < 0.01:
        return "< 1 %"
    return f"{min(math.floor(100 * share), 999):3d} %"


# ------------------------------------------------------------------------------------------------ history, who spent what


def history_page(rows: Sequence[Row], how: Look) -> list[str]:
    """``dither ledger history``: one thing that happened on a line; in a narrow terminal, on two or three."""
    if not rows:
        return ["Nothing of that kind has happened."]
    told = [(f"{row.at:%Y-%m-%d %H:%M}", row.by, row.account or row.dataset, _happened(row), _took(row)) for row in rows]
    if how.width < NARROW:
        lines = []
        for at, by, account, what, took in told:
            lines += wrapped(how.say(f"{at} {by} {account}"), how.width)
            lines += wrapped(how.say(f"{what}{f' ({took})' if took else ''}"), how.width, first="  ")
        return lines
    people = {by for _, by, *_ in told}
    if len(people) == 1:  # one name in every line would only take room
        body = [(at, *rest) for at, _, *rest in told]
        lines = grid(body, ("when (UTC)", "account", "what", "of limit"), how, right=[3], indent=0)
        return [*lines, "", *wrapped(how.say(f"All by {told[0][1]}."), how.width)]
    whom = [(at, fit(how.say(by), min(cells(by), 14), how.more), *rest) for at, by, *rest in told]
    return grid(whom, ("when (UTC)", "by", "account", "what", "of limit"), how, right=[4], indent=0)


def _happened(row: Row) -> str:
    blocks = f" [{row.blocks[0]}{f' and {len(row.blocks) - 1:,} more' if len(row.blocks) > 1 else ''}]" if row.blocks else ""
    match row.kind:
        case "charge":
            state = "" if row.state == "committed" else f"{row.state}: "
            return f"{state}{row.purpose}: {row.what}{blocks}"
        case "refusal":
            return f"refused ({row.state}): {row.what}"
        case "alert":
            return f"alert {row.limit}{blocks}: {row.what}"
        case _:
            return f"{row.limit} {row.what}".strip()


def _took(row: Row) -> str:
    return f"{tables.up(100 * row.share, 3)} %" if row.kind == "charge" and row.share is not None and row.state != "voided" else ""


def who_page(parts: Sequence[Part], title: str, how: Look) -> list[str]:
    """Who spent what on which purpose under one limit."""
    body = [(p.account, p.purpose, ", ".join(p.people), f"{p.charges:,}", f"{tables.number(100 * p.part, 3)} %") for p in parts]
    lines = wrapped(how.say(title), how.width)
    if how.width >= NARROW:
        return [*lines, "", *grid(body, ("account", "purpose", "by", "charges", "part"), how, right=[3, 4])]
    for account, purpose, people, charges, part in body:
        lines += wrapped(how.say(f"{part} {account}, {purpose} ({people}; {charges})"), how.width, first="  ", rest="    ")
    return lines


# ------------------------------------------------------------------------------------------------ prices, receipts, releases


def prices_page(made: Prices, how: Look) -> list[str]:
    """``dither ledger prices``: every way of adding up, side by side."""
    account, where = "/".join(made.account), f", block {made.block}" if made.block else ""
    head = f"{account} on {made.dataset.name}{where}: {made.charges:,} charges"
    head += f", hiding {made.dataset.hides(made.limit.per)}; {made.dataset.trust} trust"
    lines = [*wrapped(how.say(head), how.width), ""]
    if not made.charges:
        return [*lines, how.say("  Nothing was charged yet.")]
    body = [(w.name, _epsilon(w.epsilon), f"{w.delta:.3g}", "yes" if w.adaptive else "no") for w in made.ways]
    lines += grid(body, ("way of adding up", "ε ≤", "at δ =", "chosen as you go"), how, right=[1, 2])
    note = (
        "“Chosen as you go” holds however each charge was chosen after seeing what came before. The others hold only for charges "
        "that were all fixed beforehand, and are for information: the filter guards the limit."
    )
    if made.delta == 0:
        note += " Several ways need a δ: compare at one with --delta 1e-6."
    lines += ["", *wrapped(how.say(note), how.width, first="  ")]
    for way in made.ways:
        lines += wrapped(how.say(f"{way.name}: {way.reference}{f'; {way.note}' if way.note else ''}"), how.width, first=how.say("  · "))
    return lines


def _epsilon(epsilon: float | None) -> str:
    return "–" if epsilon is None else tables.up(epsilon)


def guarantee(told: Guarantee) -> str:
    """(ε, δ) as spent; with what it hides and whom it trusts.

    >>> from dither.core.units import Guarantee, PrivacyUnit
    >>> guarantee(Guarantee(0.25, 0.0, PrivacyUnit(dataset="events")))
    'ε ≤ 0.25 at δ = 0, hiding one row of events (present or absent); central trust'
    """
    return f"ε ≤ {tables.up(told.epsilon)} at δ = {tables.up(told.delta, 3)}, hiding {told.unit}; {told.trust} trust"


def room_left(told: Guarantee) -> str:
    """What remains, rounded down.

    >>> from dither.core.units import Guarantee, PrivacyUnit
    >>> room_left(Guarantee(0.25, 0.0, PrivacyUnit(dataset="events")))
    'room for one more release of ε = 0.25; δ left 0'
    """
    return f"room for one more release of ε = {tables.down(told.epsilon)}; δ left {tables.down(told.delta, 3)}"


def receipt_facts(receipt: Receipt) -> list[tuple[str, str]]:
    """What a receipt says."""
    return [
        ("charge", receipt.charge_id),
        ("state", receipt.state.value),
        ("spent so far", guarantee(receipt.spent)),
        ("left", room_left(receipt.remaining)),
        ("entry", f"{receipt.entry:,} at {receipt.at:%Y-%m-%d %H:%M:%S} UTC"),
        ("hash", receipt.head),
    ]
