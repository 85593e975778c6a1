"""Who holds a reservation: a process, named so that another on the same machine can tell whether it is still there.

>>> dead(here()), dead("elsewhere|b0|ns|12|34")
(False, False)
"""

from __future__ import annotations

import os
import platform
import time
from contextlib import suppress
from pathlib import Path

_BEGUN = f"0.{time.time_ns()}"
"""What stands for the start time where the system does not tell it: a number that is given again names another process all the same."""


def here() -> str:
    """This process: host, boot, process namespace, number and start time.

    >>> here().count("|")
    4
    """
    pid = os.getpid()
    return "|".join((*_machine(), str(pid), _started(pid) or _BEGUN))


def dead(holder: str) -> bool:
    """Whether that process has certainly ended: it was on this machine, and is no more. What cannot be known is alive.

    >>> dead("not a holder")
    False
    """
    parts = holder.split("|")
    if len(parts) != 5 or not parts[3].isdecimal() or parts[0] != platform.node().replace("|", "_")[:80]:
        return False
    host, boot, space, pid, started = parts
    if (host, boot, space) != _machine():
        # The machine was started anew since then, so nothing of then still runs; another namespace cannot be seen into.
        return boot != _machine()[1] and "0" not in {boot, _machine()[1]} and not _shared_name(host)
    now = _started(int(pid))
    if started.isdecimal() and started != "0" and _machine()[1] != "0":
        return now != started
    with suppress(PermissionError):  # no /proc here: a process that answers is alive, whoever owns it
        try:
            os.kill(int(pid), 0)
        except ProcessLookupError:
            return True
        except OverflowError:
            return False
    return False


def _shared_name(host: str) -> bool:
    """Names that many machines have: another boot under such a name may be another machine."""
    return host in {"", "localhost", "localhost.localdomain"}


def _machine() -> tuple[str, str, str]:
    host = platform.node().replace("|", "_")[:80]
    return host, _text("/proc/sys/kernel/random/boot_id") or "0", _link("/proc/self/ns/pid") or "0"


def _started(pid: int) -> str | None:
    """The start time of a process in clock ticks; None where there is none of that number (or no /proc)."""
    held = _text(f"/proc/{pid}/stat")
    after = held.rpartition(")")[2].split() if held else []
    if len(after) < 20 or after[0] in {"Z", "X"}:  # a zombie has ended, though its number is not free yet
        return None
    return after[19]


def _text(path: str) -> str | None:
    with suppress(OSError, UnicodeDecodeError):
        return Path(path).read_text(encoding="ascii", errors="replace").strip()
    return None


def _link(path: str) -> str | None:
    with suppress(OSError):
        return str(Path(path).readlink()).replace("|", "_")
    return None
