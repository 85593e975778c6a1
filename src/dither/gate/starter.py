"""What ``dither init`` writes: a project that runs at once, on made-up data, with a word on every line that matters."""

from __future__ import annotations

import hashlib
from datetime import date, timedelta
from pathlib import Path
from typing import Final

from dither.core.errors import InputError, shown

FILE: Final = "dither.yaml"
SAMPLE: Final = "visits.csv"
_VISITORS, _VISITS = 600, 2_400
_CITIES: Final = ("Delhi", "Pune", "Chennai", "Kolkata")

_TEXT: Final = """\
# A dither project: which data is protected, who may spend how much privacy on it, and what is asked.
# Try:  dither run dither.yaml    then:  dither ledger show

# The budget book. It lies beside this file; keep it, and its key (dither.db.key), as carefully as the data.
ledger: sqlite:///dither.db

# Whom to tell when a limit is nearly used up, or a request is refused: log, {file: …}, {webhook: …}, {command: […]}.
alerts: [log]

datasets:
  visits:
    source: visits.csv           # made-up data; put your own CSV or Parquet file here
    unit: {key: visitor}         # hide all rows of one visitor; {row: true} would hide single rows only
    neighbors: add_remove        # … whether that visitor is in the data at all
    columns:                     # public facts, from what is known of such data and never from the data itself
      city:    {type: text, values: [Delhi, Pune, Chennai, Kolkata]}
      age:     {type: int, min: 0, max: 100}       # numbers outside are moved to the bound
      minutes: {type: float, min: 0, max: 240}
      day:     {type: date}
    # blocks: {column: day, every: month}          # a budget for each month of data; then name blocks in every job

accounts:
  clinic:                        # a charge counts here whoever makes it
    dataset: visits
    epsilon: 4                   # the most that all answers together may reveal of one visitor
    alert_at: [0.5, 0.8, 0.95]
    split: {research: 50 %, reports: 30 %}         # clinic/research and clinic/reports; the rest stays free

jobs:
  visits by city:
    dataset: visits
    account: clinic/reports
    purpose: monthly report
    options:
      statistic: histogram
      column: city
      rows_per_unit: 3           # of each visitor, so many visits are counted
      epsilon: 0.5
  stay by city:
    dataset: visits
    engine: sql                  # or ask at once:  dither sql "SELECT …" --account … --purpose … --epsilon …
    account: clinic/research
    purpose: length of stay study
    options:
      sql: >-
        SELECT city, COUNT(*) AS visits, AVG(minutes) AS stay
        FROM visits WHERE age >= 18 GROUP BY city ORDER BY city
      rows_per_unit: 6           # left out, a small part of epsilon pays for a look that chooses it
      epsilon: 0.5
  mean stay:
    dataset: visits
    account: clinic/research
    purpose: length of stay study
    options:
      statistic: mean
      column: minutes
      where: {age: {min: 18}}
      rows_per_unit: 3
      epsilon: 0.5
  adults:
    dataset: visits
    account: clinic/research
    purpose: length of stay study
    id: adults-1                 # with an id a job is paid for once: asked again, the same answer comes, for nothing
    options:
      statistic: count
      where: {age: {min: 18}}
      rows_per_unit: 1           # visitors, not visits
      accuracy: 20               # instead of epsilon: at most ± 20, with 95 % confidence
"""


def init_text() -> str:
    """The starter ``dither.yaml``.

    >>> from dither.gate import file
    >>> list(file.read(init_text(), "dither.yaml").jobs)
    ['visits by city', 'stay by city', 'mean stay', 'adults']
    """
    return _TEXT


def sample_text() -> str:
    """The starter's data: made-up visits, the same for everyone.

    >>> sample_text().splitlines()[0]
    'visitor,day,city,age,minutes'
    """
    rows = ["visitor,day,city,age,minutes"]
    for i in range(_VISITS):
        visit = hashlib.sha256(f"visit {i}".encode()).digest()
        number = min(int.from_bytes(visit[:2], "big"), int.from_bytes(visit[2:4], "big")) * _VISITORS >> 16  # some come often
        visitor = hashlib.sha256(f"visitor {number}".encode()).digest()
        age = 1 + sum(visitor[j] for j in range(4)) * 92 // (4 * 255)
        city = _CITIES[min(visitor[4] * 7 // 256, visitor[5] * 7 // 256) % len(_CITIES)]
        day = date(2026, 1, 1) + timedelta(days=int.from_bytes(visit[4:6], "big") * 180 >> 16)
        minutes = 5 + 150 * (visit[6] * visit[7]) / (255 * 255) + age / 2
        rows.append(f"v{number:04},{day},{city},{age},{minutes:.1f}")
    return "\n".join(rows) + "\n"


def write_starter(folder: str | Path = ".") -> tuple[Path, ...]:
    """Write the starter project into a folder, which is made if need be; nothing that is there is written over."""
    where = Path(folder)
    pairs = ((where / FILE, init_text()), (where / SAMPLE, sample_text()))
    for path, _ in pairs:
        if path.exists() or path.is_symlink():
            raise InputError(f"{shown(path.name)} is there already: choose an empty folder, or move it away.")
    try:
        where.mkdir(parents=True, exist_ok=True)
        for path, text in pairs:
            with path.open("x", encoding="utf-8", newline="\n") as file:
                file.write(text)
    except OSError as error:
        raise InputError(f"The project could not be written to {shown(str(where))}: {error.strerror or 'no more is known'}.") from None
    return tuple(path for path, _ in pairs)
