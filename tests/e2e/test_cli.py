"""The command line as people and programs meet it: pages, JSON, plots, exit statuses, one-sentence errors."""

import io
import json
import os
import pty
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dither import events as ev
from dither.accounting import calibrate, explain, loss
from dither.app import cli, plots
from dither.core.errors import NotPriceableError
from dither.core.units import Guarantee, PrivacyUnit, Trust

DITHER = Path(sys.executable).with_name("dither")
RUN = ["--noise-multiplier", "1.1", "--batch", "256", "--population", "60000", "--epochs", "20"]
QUICK = ["--noise-multiplier", "4", "--steps", "10"]
EVENT = ev.Repeat(ev.Gaussian(4.0), 10)
COMMANDS = ["price", "calibrate", "plan", "explain", "demo"]


@pytest.fixture
def run(capsys):
    """Run a command line in this process: its status, stdout and stderr."""

    def go(*arguments):
        status = cli.status([str(a) for a in arguments])
        told = capsys.readouterr()
        return status, told.out, told.err

    return go


def page(text):
    assert max(map(len, text.splitlines())) <= 80, max(text.splitlines(), key=len)
    assert "\x1b" not in text
    return " ".join(text.split())


# ------------------------------------------------------------------------------------------------ the map


def test_bare_dither_is_a_short_map(run):
    status, out, err = run()
    assert (status, err) == (0, "")
    assert all(f"dither {name}" in page(out) for name in COMMANDS)
    assert len(out.splitlines()) <= 20


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_and_json(run, name):
    status, out, _ = run(name, "--help")
    assert status == 0
    assert "--json" in page(out)


def test_no_summary_of_a_command_is_cut(run):
    assert "..." not in run("--help")[1].partition("Commands:")[2]


def test_version(run):
    assert run("--version") == (0, "dither 0.1.0\n", "")


def test_help_imports_nothing_heavy():
    heavy = "print([m for m in ('numpy', 'scipy', 'matplotlib') if m in sys.modules])"
    code = f"import sys; from dither.app import cli; cli.status(['price', '--help']); {heavy}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


# ------------------------------------------------------------------------------------------------ price


def test_price_of_a_training_run(run):
    status, out, err = run("price", *RUN, "--delta", "1e-5")
    assert (status, err) == (0, "")
    assert page(out).startswith("ε ≤ 1.319")
    status, out, _ = run("price", *RUN, "--delta", "1e-5", "--json")
    value = json.loads(out)
    assert 1.318 < value["epsilon"]["lower"] <= value["epsilon"]["upper"] < 1.3205
    assert ev.from_dict(value["event"]) == ev.Repeat(ev.Subsample(ev.Gaussian(1.1), ev.Poisson(256 / 60_000)), 4_688)


def test_price_asks_either_way(run):
    value = json.loads(run("price", *QUICK, "--epsilon", "1", "--json")[1])
    bound = loss(EVENT).delta(1.0)
    assert value["delta"] == {"lower": bound.lower, "upper": bound.upper}
    assert page(run("price", *QUICK, "--epsilon", "1")[1]).startswith("δ ≤")


@pytest.mark.parametrize("how", ["text", "file", "stdin"])
def test_events_come_as_json(run, how, tmp_path, monkeypatch):
    text = ev.to_json(EVENT)
    given = text
    if how == "file":
        (tmp_path / "event.json").write_text(text)
        given = tmp_path / "event.json"
    elif how == "stdin":
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        given = "-"
    value = json.loads(run("price", "--event", given, "--delta", "1e-5", "--json")[1])
    assert value["epsilon"]["upper"] == loss(EVENT).epsilon(1e-5).upper
    assert ev.from_dict(value["event"]) == EVENT


def test_flags_make_the_events_they_say(run):
    def event(*flags):
        return ev.from_dict(json.loads(run("price", *flags, "--json")[1])["event"])

    assert event("--noise-multiplier", 2, "--mechanism", "laplace", "--steps", 3, "--delta", 0) == ev.Repeat(ev.Laplace(2.0), 3)
    batch = ["--noise-multiplier", 2, "--batch", 10, "--population", 1_000, "--steps", 5, "--delta", 1e-5]
    assert event(*batch) == ev.Repeat(ev.Subsample(ev.Gaussian(2.0), ev.Poisson(0.01)), 5)
    fixed = event(*batch, "--sampling", "fixed-size", "--neighbors", "replace")
    assert fixed == ev.Repeat(ev.Subsample(ev.Gaussian(2.0), ev.FixedSize(10, 1_000)), 5)


def test_no_guarantee_is_told_as_none(run):
    status, out, _ = run("price", "--event", '{"event":"NonPrivate"}', "--delta", 1e-5)
    assert status == 0
    assert page(out).startswith("No ε at δ = 1e-05 proved nothing: the result may show everything")
    other = run("price", "--event", '{"event":"ApproxDp","epsilon":1,"delta":1e-3}', "--delta", 1e-5)[1]
    assert page(other).startswith("No ε at δ = 1e-05 proved nothing here; δ ≤ 0.001 at ε = 1000")
    assert "Next:" not in out
    value = json.loads(run("price", "--event", '{"event":"NonPrivate"}', "--delta", 1e-5, "--json")[1])
    assert value["epsilon"] == {"lower": None, "upper": None}


def test_group_and_neighbors_reach_the_price(run):
    one, group, replace = (
        json.loads(run("price", *QUICK, "--delta", 1e-5, *extra, "--json")[1])["epsilon"]["upper"]
        for extra in ([], ["--group", 3], ["--neighbors", "replace"])
    )
    assert group > 2.5 * one
    assert replace == pytest.approx(one)


def test_compare_shows_the_others(run, tmp_path):
    status, out, _ = run("price", *QUICK, "--delta", 1e-5, "--compare")
    assert status == 0
    assert len(page(out)) > 200
    status, out, err = run("price", *QUICK, "--delta", 1e-5, "--compare", "--json", "--plot", tmp_path / "price.png")
    assert status == 0
    assert len(json.loads(out)["comparison"]["rows"]) >= 4
    assert "plot written" in err
    assert is_png(tmp_path / "price.png")


def test_a_budget_is_a_gate(run):
    status, out, err = run("price", *QUICK, "--delta", 1e-5, "--budget", 2)
    assert status == 4
    assert "more than the budget of 2" in one_sentence(err)
    assert "ε ≤" in out, "the price is still told"
    assert run("price", *QUICK, "--delta", 1e-5, "--budget", 5)[0] == 0


# ------------------------------------------------------------------------------------------------ calibrate


def test_calibrate_finds_what_is_left_out(run):
    target = ["--epsilon", 3, "--delta", 1e-5]
    noise = json.loads(run("calibrate", *target, "--sampling-probability", 0.01, "--steps", 2_000, "--json")[1])
    assert noise["parameter"] == "noise_multiplier"
    assert noise["value"] == pytest.approx(0.93044328, rel=1e-3)
    assert noise["price"]["upper"] <= 3
    steps = json.loads(run("calibrate", *target, "--noise-multiplier", 1, "--batch", 256, "--population", 60_000, "--json")[1])
    assert steps["parameter"] == "steps"
    assert isinstance(steps["value"], int)
    rate = json.loads(run("calibrate", *target, "--noise-multiplier", 1, "--steps", 1_000, "--json")[1])
    assert rate["parameter"] == "sampling_probability"
    for found in (steps, rate):
        assert 2.99 <= found["price"]["upper"] <= 3


def test_calibrate_fills_the_hole_of_any_event(run):
    template = ev.to_dict(ev.Sequence((ev.Laplace(2.0), ev.Repeat(ev.Gaussian(30.0), 7))))
    template["of"][1]["count"] = "?"
    found = json.loads(run("calibrate", "--epsilon", 2, "--delta", 1e-6, "--event", json.dumps(template), "--json")[1])
    assert found["parameter"] == "count"

    def make(count):
        return ev.Sequence((ev.Laplace(2.0), ev.Repeat(ev.Gaussian(30.0), count)))

    assert found["value"] == calibrate(make, epsilon=2, delta=1e-6, integer=True)
    assert ev.from_dict(found["event"]) == make(found["value"])


def test_the_printed_noise_is_enough(run):
    out = page(run("calibrate", "--epsilon", 1, "--delta", 1e-5)[1])
    printed = float(out.split(" = ")[1].split()[0])
    assert loss(ev.Gaussian(printed)).epsilon(1e-5).upper <= 1


def test_calibrate_plots(run, tmp_path):
    path = tmp_path / "noise.png"
    assert run("calibrate", "--epsilon", 1, "--delta", 1e-5, "--plot", path)[0] == 0
    assert is_png(path)


# ------------------------------------------------------------------------------------------------ plan, explain


def test_plan(run, tmp_path):
    facts = ["--population", 10_000, "--epochs", 2, "--batch", 500, "--epsilon", 2, "--delta", 1e-6]
    status, out, _ = run("plan", *facts, "--plot", tmp_path / "plan.svg")
    assert status == 0
    assert "What doubling buys" in page(out)
    assert (tmp_path / "plan.svg").read_text().startswith("<?xml")
    value = json.loads(run("plan", *facts, "--unit", "user_id", "--json")[1])
    assert value["steps"] == 40
    assert value["target"]["unit"]["key"] == "user_id"
    assert len(value["options"]) == 5


def test_explain_a_bare_guarantee(run):
    status, out, _ = run("explain", "--epsilon", 1, "--delta", 1e-6, "--population", 60_000)
    assert status == 0
    assert "factor of at most 2.719" in page(out)
    assert "cannot be compared" in page(out)
    value = json.loads(run("explain", "--epsilon", 1, "--delta", 1e-6, "--prior", 0.3, "--group", 5, "--trust", "local", "--json")[1])
    told = explain(Guarantee(1.0, 1e-6, PrivacyUnit(dataset="the data"), Trust.LOCAL), prior=0.3, group=5)
    assert value == told.to_dict()
    assert [b["prior"] for b in value["beliefs"]] == [0.3]
    assert [g["size"] for g in value["groups"]] == [5]
    assert value["trust"]["model"] == "local"


def test_explain_an_event_with_a_plot(run, tmp_path):
    status, out, _ = run("explain", *QUICK, "--delta", 1e-5, "--unit", "user_id", "--plot", tmp_path / "roc.png")
    assert status == 0
    assert "one user_id" in page(out)
    assert "by (ε, δ) alone" in out
    assert is_png(tmp_path / "roc.png")
    value = json.loads(run("explain", *QUICK, "--delta", 1e-5, "--json")[1])
    assert value == explain(EVENT, delta=1e-5).to_dict()


# ------------------------------------------------------------------------------------------------ what goes wrong

WRONG = [
    (2, ["prise"], "Did you mean price?"),
    (2, ["xyzzy"], "Expected one of calibrate, demo, explain, init, ledger, plan, price, run, sql."),
    (2, ["price", "--delta", "x"], "'x' is not a valid float"),
    (2, ["price", "--dleta", "1e-5"], "No such option"),
    (2, ["price", "--delta", "1e-5"], "No event is given"),
    (2, ["price", *QUICK], "One of --delta and --epsilon"),
    (2, ["price", *QUICK, "--delta", "0"], "no finite ε"),
    (2, ["price", *QUICK, "--delta", "nan"], "delta=nan"),
    (2, ["price", *QUICK, "--delta", "1"], "delta=1.0"),
    (2, ["price", "--noise-multiplier", "nan", "--delta", "1e-5"], "noise_multiplier=nan"),
    (2, ["price", "--noise-multiplier", "-1", "--delta", "1e-5"], "noise_multiplier=-1.0"),
    (2, ["price", "--noise-multiplier", "1e-300", "--delta", "1e-5"], "noise_multiplier=1e-300"),
    (2, ["price", *QUICK, "--epochs", "3", "--delta", "1e-5"], "say the same twice"),
    (2, ["price", *QUICK, "--batch", "3", "--delta", "1e-5"], "--batch needs --population"),
    (2, ["price", *QUICK, "--sampling", "shuffled", "--delta", "1e-5"], "needs --batch and --population"),
    (2, ["price", *QUICK, "--delta", "1e-5", "--group", "0"], "group=0"),
    (2, ["price", *QUICK, "--delta", "1e-5", "--plot", "x.bmp"], "expected a file that ends in .png"),
    (2, ["price", *QUICK, "--delta", "1e-5", "--plot", "no/such/folder/x.png"], "there is no folder"),
    (2, ["price", *QUICK, "--epsilon", "1", "--compare"], "need --delta"),
    (2, ["price", *QUICK, "--delta", "1e-5", "--plot", "folder.png"], "it is a folder"),
    (2, ["price", *QUICK, "--delta", "1e-5", "--budget", "nan"], "budget=nan"),
    (2, ["price", *QUICK, "--delta", "1e-5", "--budget", "-1"], "budget=-1.0"),
    (2, ["price", *QUICK, "--delta", "1e-310"], "subnormal"),
    (2, ["price", *QUICK, "--delta", "1e-5", "--population", "100"], "without --batch"),
    (2, ["calibrate", "--epsilon", "1", "--delta", "1e-5", "--population", "100"], "without --batch"),
    (2, ["price", *QUICK, "--delta", "1e-5", "--unit", "a\nb"], "printable"),
    (2, ["price", *QUICK, "--delta", "1e-5", "--unit", ""], "printable"),
    (2, ["price", *QUICK, "--delta", "1e-5", "--trust", "nobody"], "'nobody' is not one of"),
    (2, ["calibrate", "--epsilon", "1", "--delta", "1e-5", "--unit", ""], "printable"),
    (2, ["explain", *QUICK, "--delta", "0"], "no finite ε"),
    (2, ["explain", *QUICK], "no finite ε at δ = 0"),
    (2, ["price", "--\x1b[2J", "--delta", "1e-5"], "No such option"),
    (2, ["price", "--delta", "x" * 100_000], "is not a valid float"),
    (2, ["price", *QUICK, "--delta", "1e-5", "--group", "9" * 5_000], "is not a valid integer"),
    (2, ["price", "--event", '{"event":"\\ud800"}', "--delta", "1e-5"], "Unknown event"),
    (2, ["price", "--event", '{"event":"Gaussian","noise_multiplier":1,"noise_multiplier":9}', "--delta", "1e-5"], "twice"),
    (2, ["price", "--event", '{"event":"Repeat","count":' + "9" * 4_000 + ',"of":{"event":"NonPrivate"}}', "--delta", "1e-5"], "count="),
    (2, ["price", "--event", "a\x00b", "--delta", "1e-5"], "cannot be read"),
    (2, ["price", "--event", "nowhere.json", "--delta", "1e-5"], "cannot be read"),
    (2, ["price", "--event", "{", "--delta", "1e-5"], "not valid JSON"),
    (2, ["price", "--event", '{"event":"Gauss"}', "--delta", "1e-5"], "Unknown event 'Gauss'"),
    (2, ["price", "--event", '{"event":"os.system","of":"ls"}', "--delta", "1e-5"], "Unknown event"),
    (2, ["price", "--event", '{"event":"Gaussian","noise_multiplier":1,"extra":1}', "--delta", "1e-5"], "extra"),
    (2, ["price", "--event", "[" * 500 + "]" * 500, "--delta", "1e-5"], "nested too deeply"),
    (2, ["price", "--event", '{"event":"NonPrivate"}', "--steps", "3", "--delta", "1e-5"], "leave out --steps"),
    (2, ["calibrate", "--epsilon", "1"], "Give a delta > 0"),
    (2, ["calibrate", "--epsilon", "1", "--delta", "1e-5", *QUICK, "--sampling-probability", "0.1"], "Nothing is left"),
    (2, ["calibrate", "--epsilon", "1", "--event", '{"event":"NonPrivate"}'], "0 open places"),
    (2, ["calibrate", "--delta", "1e-5"], "--epsilon"),
    (2, ["plan", "--population", "10", "--epochs", "1", "--batch", "20", "--epsilon", "1", "--delta", "1e-5"], "batch=20"),
    (2, ["explain"], "Nothing is given to explain"),
    (2, ["explain", "--epsilon", "1", *QUICK], "say the same twice"),
    (2, ["explain", "--epsilon", "1", "--prior", "2"], "prior=2.0"),
]


def one_sentence(err):
    lines = [line for line in err.splitlines() if not line.startswith("…")]
    assert len(lines) == 1, err
    assert lines[0].startswith("dither: ")
    assert "Traceback" not in err
    return lines[0]


@pytest.mark.parametrize(("status", "arguments", "said"), WRONG, ids=[said for _, _, said in WRONG])
def test_errors_are_one_sentence_and_a_status(run, status, arguments, said, tmp_path, monkeypatch):
    (tmp_path / "folder.png").mkdir()
    monkeypatch.chdir(tmp_path)
    found, out, err = run(*arguments)
    assert (found, out) == (status, "")
    assert said in one_sentence(err)
    assert len(err) < 900
    assert err.rstrip("\n").isprintable()
    assert [p.name for p in tmp_path.iterdir()] == ["folder.png"], "nothing is written"


HOSTILE = ["nan", "inf", "-inf", "-1", "0", "5e-324", "1e308", "1e400", "9" * 30, "x", "", "\x00", "\udcff", "1,5", "0x10", "[1]"]
BASES = {
    "price": [*QUICK, "--delta", "1e-5"],
    "calibrate": ["--epsilon", "1", "--delta", "1e-5"],
    "plan": ["--population", "1000", "--epochs", "1", "--batch", "100", "--epsilon", "2", "--delta", "1e-6"],
    "explain": ["--epsilon", "1", "--delta", "1e-6"],
}


@pytest.mark.parametrize("name", BASES)
def test_whatever_is_typed_there_is_an_answer_or_one_sentence(run, name):
    options = [
        o for p in cli.cli.commands[name].params if not getattr(p, "is_flag", False) for o in p.opts if o not in {"--plot", "--event"}
    ]
    for option in options:
        for bad in HOSTILE:
            typed = [name, *BASES[name]]
            if option in typed:
                typed[typed.index(option) + 1] = bad
            else:
                typed += [option, bad]
            status, out, err = run(*typed, "--json")
            if status == 0:
                json.loads(out, parse_constant=pytest.fail)
                assert err == ""
            else:
                assert status in {2, 3, 4}, (typed, err)
                assert out == "" or status == 4
                assert json.loads(err)["error"]["message"]


def test_errors_are_json_where_json_is_asked_for(run):
    status, out, err = run("price", "--event", '{"event":"Gauss"}', "--delta", "1e-5", "--json")
    assert (status, out) == (2, "")
    assert json.loads(err)["error"]["code"] == "unknown_name"


def test_a_fault_of_ours_is_no_traceback_either(run, monkeypatch):
    monkeypatch.setattr(cli, "_price_page", lambda *_: 1 / 0)
    status, _, err = run("price", *QUICK, "--delta", "1e-5")
    assert status == 1
    assert "fault of dither" in one_sentence(err)


def test_a_refusal_has_its_own_status(run, monkeypatch):
    def refuse(*_, **__):
        raise NotPriceableError("No valid bound is known for this.")

    monkeypatch.setattr("dither.accounting.loss", refuse)
    monkeypatch.setattr("dither.loss", refuse)
    status, _, err = run("price", *QUICK, "--delta", "1e-5")
    assert status == 3
    assert "No valid bound" in one_sentence(err)


def test_without_matplotlib_the_extra_is_named(run, monkeypatch, tmp_path):
    real = plots.importlib.import_module

    def gone(name):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name)

    monkeypatch.setattr(plots.importlib, "import_module", gone)
    status, _, err = run("calibrate", "--epsilon", 1, "--delta", 1e-5, "--plot", tmp_path / "x.png")
    assert status == 2
    assert "pip install 'dither[plot]'" in one_sentence(err)
    assert not (tmp_path / "x.png").exists()


# ------------------------------------------------------------------------------------------------ whom it hides


def test_every_epsilon_comes_with_its_delta_unit_and_trust(run):
    whom = ["--unit", "user id", "--trust", "local", "--neighbors", "replace"]
    for out in (
        run("price", *QUICK, "--delta", "1e-5", *whom)[1],
        run("calibrate", "--epsilon", 1, "--delta", "1e-5", *whom)[1],
        run("explain", "--epsilon", 1, "--delta", "1e-5", *whom)[1],
    ):
        told = page(out)
        assert "one user id of the data (replaced by another)" in told
        assert "local" in told
        assert all("δ =" in line for line in out.splitlines() if "ε ≤" in line or line.startswith("ε ="))
    for typed in (["price", *QUICK, "--delta", "1e-5"], ["calibrate", "--epsilon", 1, "--delta", "1e-5"]):
        value = json.loads(run(*typed, *whom, "--json")[1])
        assert (value["unit"]["key"], value["unit"]["neighbors"], value["trust"]) == ("user id", "replace", "local")
    planned = json.loads(run("plan", *BASES["plan"], "--trust", "distributed", "--unit", "user_id", "--json")[1])
    assert (planned["target"]["trust"], planned["target"]["unit"]["key"]) == ("distributed", "user_id")


def test_what_is_to_be_typed_next_works_and_asks_about_the_same(run):
    out = run("price", *QUICK, "--delta", "1e-5", "--unit", "user id", "--trust", "local", "--neighbors", "replace")[1]
    typed = shlex.split(out.partition("Next: dither ")[2].replace("\\\n", ""))
    value = json.loads(run(*typed, "--json")[1])
    assert value["epsilon"] >= loss(EVENT, neighbors="replace").epsilon(1e-5).upper
    assert (value["delta"], value["unit"]["key"], value["unit"]["neighbors"]) == (1e-5, "user id", "replace")
    assert value["trust"]["model"] == "local"
    assert "Next:" not in run("price", *QUICK, "--delta", "1e-5", "--group", "2")[1]


@pytest.mark.parametrize(
    "typed",
    [
        ["price", *QUICK, "--delta", "1e-5"],
        ["calibrate", "--epsilon", "1", "--delta", "1e-5"],
        ["plan", "--population", "1000", "--epochs", "1", "--batch", "100", "--epsilon", "2", "--delta", "1e-6"],
        ["explain", "--epsilon", "1", "--delta", "1e-6"],
    ],
    ids=lambda typed: typed[0],
)
def test_every_plot_names_delta_unit_and_trust(run, typed, tmp_path, monkeypatch):
    monkeypatch.setitem(plots._STYLE, "svg.fonttype", "none")
    assert run(*typed, "--trust", "shuffle", "--plot", tmp_path / "plot.svg")[0] == 0
    text = (tmp_path / "plot.svg").read_text()
    assert "δ = 1e-0" in text
    assert "(present or absent); shuffle trust." in text
    assert [p.name for p in tmp_path.iterdir()] == ["plot.svg"]


@pytest.mark.parametrize("fault", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_a_plot_is_written_whole_or_not_at_all(run, tmp_path, monkeypatch, fault):
    path = tmp_path / "noise.png"
    path.write_bytes(b"an older plot")

    def half(_, to, **__):
        Path(to).write_bytes(b"half")
        raise fault

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", half)
    status, _, err = run("calibrate", "--epsilon", 1, "--delta", 1e-5, "--plot", path)
    assert status in {1, 130}
    assert "Traceback" not in err
    assert path.read_bytes() == b"an older plot"
    assert list(tmp_path.iterdir()) == [path]


# ------------------------------------------------------------------------------------------------ as a process


@pytest.mark.parametrize("alphabet", ["latin-1", "cp1252", "cp437", "ascii"])
@pytest.mark.parametrize("typed", [[], ["--help"], ["price", *QUICK, "--delta", "1e-5", "--compare"], ["prise"], ["price", "--delta", "0"]])
def test_a_terminal_of_any_alphabet_is_answered(alphabet, typed):
    done = subprocess.run([DITHER, *typed], capture_output=True, env=os.environ | {"PYTHONIOENCODING": alphabet}, check=False)
    assert done.returncode == (2 if "prise" in typed or "0" in typed else 0)
    assert b"fault" not in done.stderr
    assert b"Traceback" not in done.stderr
    done.stdout.decode("utf-8" if alphabet == "ascii" else alphabet)  # click takes ascii for a mistake and writes UTF-8
    if alphabet == "latin-1" and typed:
        assert b"?" not in done.stdout.replace(b"?]", b"")


def test_json_stays_json_in_any_alphabet():
    done = subprocess.run(
        [DITHER, "explain", "--epsilon", "1", "--json"], capture_output=True, env=os.environ | {"PYTHONIOENCODING": "latin-1"}, check=True
    )
    assert json.loads(done.stdout.decode("latin-1"))["epsilon"] == 1


@pytest.mark.parametrize(
    ("closed", "status", "said"), [("<&-", 2, "stdin, which is closed"), (">&-", 1, "Stdout is closed"), ("2>&-", 2, "")]
)
def test_closed_streams_are_told_of(closed, status, said):
    done = subprocess.run(
        f"{shlex.quote(str(DITHER))} price --event - --delta 1e-5 {closed}",
        shell=True,
        capture_output=True,
        text=True,
        input="x",
        check=False,
    )
    assert (done.returncode, done.stdout) == (status, "")
    assert said in done.stderr
    assert "fault" not in done.stderr


def test_shell_completion_answers():
    asked = {"_DITHER_COMPLETE": "bash_complete", "COMP_WORDS": "dither pr", "COMP_CWORD": "1"}
    done = subprocess.run([DITHER], capture_output=True, text=True, env=os.environ | asked, check=False)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "plain,price", "")
    script = subprocess.run([DITHER], capture_output=True, text=True, env=os.environ | {"_DITHER_COMPLETE": "zsh_source"}, check=False)
    assert script.returncode == 0
    assert "compdef" in script.stdout


def test_a_process_ends_with_its_status():
    done = subprocess.run([DITHER, "price", "--delta", "1e-5"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    one_sentence(done.stderr)


def test_ctrl_c_is_clean():
    process = subprocess.Popen(
        [DITHER, "price", "--event", "-", "--delta", "1e-5"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    before = None
    for _ in range(200):  # until it waits for its event: asleep, and no longer working
        time.sleep(0.25)
        state, *rest = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        if (state, rest[10], rest[11]) == before and state == "S":
            break
        before = (state, rest[10], rest[11])
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert out == b""
    assert err.decode().strip() == "dither: Stopped."


def test_a_reader_that_leaves_early_is_no_fault():
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([DITHER, "explain", "--epsilon", "1"], stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert done.stderr == b""
    assert done.returncode == 1, "not 0: --budget, say, was not reached"


@pytest.mark.parametrize(("environment", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)])
def test_colour_on_a_terminal_only_and_where_wanted(environment, coloured):
    ours, theirs = pty.openpty()
    clean = {k: v for k, v in os.environ.items() if k != "NO_COLOR"} | {"TERM": "xterm"} | environment
    process = subprocess.Popen([DITHER], stdout=theirs, stderr=subprocess.DEVNULL, env=clean)
    process.wait(timeout=20)
    os.close(theirs)
    assert (b"\x1b[" in os.read(ours, 65_536)) is coloured
    os.close(ours)


def is_png(path):
    return path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 5_000


def test_the_demo_tells_the_whole_story(run, tmp_path, monkeypatch):
    monkeypatch.setattr("dither.app.demo.DRAWS", 20_000)
    monkeypatch.chdir(tmp_path)
    status, out, err = run("demo")
    assert status == 0, err
    told = page(out)
    assert sorted(p.name for p in Path("dither-demo").iterdir()) == [
        "1-price.png",
        "2-calibrate.png",
        "3-plan.png",
        "4-noise.png",
        "5-explain.png",
    ]
    ending = page("\n".join(out.splitlines()[-8:]))
    for part in ("happened", "cost", "files", "dither-demo", "next", "dither explain"):
        assert part in ending
    assert "released" in told
