"""Who is certainly dead, and who may be alive."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from dither.ledger import holders


def test_this_process_is_alive_and_names_itself_the_same_way():
    assert holders.here() == holders.here()
    assert not holders.dead(holders.here())


def test_a_process_that_has_ended_is_dead():
    code = "from dither.ledger import holders; print(holders.here())"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert holders.dead(ended)


def test_a_number_that_was_given_again_is_another_process():
    host, boot, space, pid, started = holders.here().split("|")
    assert holders.dead("|".join((host, boot, space, pid, str(int(started) - 1))))


def test_a_child_that_has_ended_but_was_not_waited_for_is_dead():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    host, boot, space, _, _ = holders.here().split("|")
    name = "|".join((host, boot, space, str(child.pid), str(holders._started(child.pid))))
    assert not holders.dead(name)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # a zombie: ended, and its number still taken
    assert holders.dead(name)
    child.wait()


@pytest.mark.parametrize("change", [0, 2], ids=["another host", "another namespace"])
def test_what_cannot_be_seen_from_here_is_alive(change: int):
    parts = holders.here().split("|")
    parts[change] += "x"
    parts[3] = "999999999"
    assert not holders.dead("|".join(parts))


def test_a_machine_that_was_started_anew_runs_nothing_of_before(monkeypatch: pytest.MonkeyPatch):
    host, boot, space, pid, started = holders.here().split("|")
    before = "|".join((host, "1" + boot[1:] if boot[0] != "1" else "2" + boot[1:], space, pid, started))
    assert holders.dead(before) == (host not in {"", "localhost", "localhost.localdomain"})


@pytest.mark.parametrize("text", ["", "|||", "||||", "a|b|c|d|e", "a|b|c|-1|2", "x" * 1000, "a|b|c|" + "9" * 400 + "|1"])
def test_what_is_no_holder_is_not_dead(text: str):
    assert not holders.dead(text)
