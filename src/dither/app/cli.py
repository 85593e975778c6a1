"""The command line: ``dither price | calibrate | plan | explain | demo | init | run | sql | ledger``.

Exit status: 0 done, 1 a fault of dither or of the system, 2 wrong input, 3 refused by a rule of privacy, 4 over
budget, 130 stopped by Ctrl-C. Results go to stdout, everything else (progress, errors: one sentence) to stderr.
Nothing heavy is imported until a command needs it.
"""

from __future__ import annotations

import math
import os
import shlex
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import dither
from dither.app import ledger_cli, plots, project_cli, sql_cli, text
from dither.app.groups import Command, Map, json_option
from dither.app.inputs import EventFlags, event_options
from dither.core import checks
from dither.core.errors import DitherError, InputError, OverBudgetError
from dither.core.events import Event, Repeat, to_dict
from dither.core.units import Bound, Guarantee, Neighbors, PrivacyUnit, Trust

if TYPE_CHECKING:
    from dither.accounting.compare import Comparison
    from dither.accounting.loss import Loss

MAP = """\
dither {version}: differential privacy for machine learning, end to end

  dither price      what a release costs: ε at δ, with proven bounds
  dither calibrate  the noise (or steps, or sampling) that meets a target (ε, δ)
  dither plan       noise, steps and trade-offs of a training run
  dither explain    what (ε, δ) means for a person
  dither demo       all of it with plots, in under a minute
  dither init       a folder to start from: dither.yaml and some data
  dither run        the jobs of dither.yaml, each paid for and receipted
  dither sql        one SELECT, every number with its interval
  dither ledger     the budget book: limits, history, alerts, proof

Start with
  dither demo
  dither price --noise-multiplier 1.1 --batch 256 --population 60000 \\
               --epochs 20 --delta 1e-5

Every command takes --help and --json. For completion in bash (zsh alike):
  eval "$(_DITHER_COMPLETE=bash_source dither)"
"""

EXAMPLES = {
    "price": """\b
Examples:
  dither price --noise-multiplier 1.1 --batch 256 --population 60000 \\
               --epochs 20 --delta 1e-5
  dither price --event '{"event":"Laplace","noise_multiplier":2}' --delta 0
  dither price --event run.json --delta 1e-6 --compare --plot price.png
""",
    "calibrate": """\b
Examples:
  dither calibrate --epsilon 3 --delta 1e-5 --sampling-probability 0.01 \\
                   --steps 2000
  dither calibrate --epsilon 3 --delta 1e-5 --noise-multiplier 1 \\
                   --batch 256 --population 60000
  dither calibrate --epsilon 1 \\
                   --event '{"event":"Laplace","noise_multiplier":"?"}'
""",
    "plan": """\b
Examples:
  dither plan --population 60000 --epochs 20 --batch 256 \\
              --epsilon 3 --delta 1e-6
""",
    "explain": """\b
Examples:
  dither explain --epsilon 1 --delta 1e-6 --population 60000
  dither explain --noise-multiplier 1.1 --batch 256 --population 60000 \\
                 --epochs 20 --delta 1e-5 --unit user_id --plot roc.png
""",
}


@click.group(cls=Map, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80})
@click.version_option(dither.__version__, prog_name="dither", message="%(prog)s %(version)s")
@click.pass_context
def cli(context: click.Context) -> None:
    """Differential privacy for machine learning, end to end."""
    if context.invoked_subcommand is None:
        text.show(MAP.format(version=dither.__version__))


_WHOM = (
    click.option(
        "--neighbors",
        type=click.Choice([n.value for n in Neighbors]),
        default=Neighbors.ADD_REMOVE.value,
        show_default=True,
        help="What may differ: a unit more or less, or replaced.",
    ),
    click.option("--unit", metavar="KEY", help="What is hidden: all rows of one value of this key, not one row."),
    click.option(
        "--trust", type=click.Choice([t.value for t in Trust]), default=Trust.CENTRAL.value, show_default=True, help="Who sees raw data."
    ),
)


def _whom_options(command: Command) -> Command:
    """Whom a guarantee hides, and from whom: an ε without them means nothing."""
    for option in reversed(_WHOM):
        command = option(command)
    return command


def _group_option(command: Command) -> Command:
    return click.option("--group", type=int, default=1, show_default=True, help="Price for a group of this many units.")(command)


def _unit(given: dict[str, Any]) -> PrivacyUnit:
    return PrivacyUnit(dataset="the data", key=given["unit"], neighbors=given["neighbors"])


def _hidden(given: dict[str, Any]) -> str:
    return f"{_unit(given)}" if given["group"] == 1 else f"a group of {given['group']:,} times {_unit(given)}"


def _whom(given: dict[str, Any]) -> dict[str, Any]:
    """Unit, neighbours, group and trust, as JSON."""
    unit = _unit(given)
    told = {"dataset": unit.dataset, "key": unit.key, "neighbors": unit.neighbors.value, "text": str(unit)}
    return {"neighbors": given["neighbors"], "group": given["group"], "unit": told, "trust": given["trust"]}


# ------------------------------------------------------------------------------------------------ price


@cli.command(epilog=EXAMPLES["price"])
@event_options
@click.option("--delta", type=float, help="The δ at which ε is asked for.")
@click.option("--epsilon", type=float, help="The ε at which δ is asked for, in place of --delta.")
@_whom_options
@_group_option
@click.option("--compare", is_flag=True, help="Beside it, what other ways of accounting would say.")
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE", help="Plot ε against steps (.png, .svg or .pdf).")
@click.option("--budget", type=float, metavar="EPSILON", help="End with status 4 if the price is above this ε.")
@json_option
def price(**given: Any) -> None:  # noqa: ANN401 - click hands over what was typed
    """What a release costs: ε at δ (or δ at ε), with proven bounds."""
    event = EventFlags.take(given).priced_alone().to_event()
    delta, epsilon = given["delta"], given["epsilon"]
    if (delta is None) == (epsilon is None):
        raise InputError("One of --delta and --epsilon is needed: --delta asks for ε, --epsilon for δ.")
    if epsilon is not None and (given["compare"] or given["plot"] is not None or given["budget"] is not None):
        raise InputError("--compare, --plot and --budget need --delta: they are about an ε.")
    if given["budget"] is not None:
        checks.epsilon(given["budget"], "budget")
    _unit(given)  # refused now if it is no unit, not when the page is half written
    path = None if given["plot"] is None else plots.target(given["plot"])
    priced = dither.loss(event, neighbors=given["neighbors"], group=given["group"])
    bound = priced.epsilon(checks.delta(delta)) if epsilon is None else priced.delta(checks.epsilon(epsilon))
    result = _price_result(event, priced, bound, given)
    compared = _compared(event, given) if given["compare"] else None
    if compared is not None:
        result["comparison"] = compared.to_dict()
    if given["as_json"]:
        text.show_json(result)
    else:
        text.show(_price_page(event, priced, bound, given))
        if compared is not None:
            text.show(f"\n{compared.to_text()}")
    if path is not None:
        _plot_price(path, event, given)
    _check_budget(bound, given)


def _price_result(event: Event, priced: Loss, bound: Bound, given: dict[str, Any]) -> dict[str, Any]:
    sides = {"lower": _number(bound.lower), "upper": _number(bound.upper)}
    asked = given["epsilon"] is None
    return {
        "epsilon": sides if asked else given["epsilon"],
        "delta": given["delta"] if asked else sides,
        **_whom(given),
        "tight": priced.tight,
        "notes": list(priced.notes),
        "event": to_dict(event),
    }


def _price_page(event: Event, priced: Loss, bound: Bound, given: dict[str, Any]) -> str:
    tables = dither.accounting.tables
    asked = given["epsilon"] is None
    upper, lower = tables.up(bound.upper, 5), tables.down(bound.lower, 5)
    head = f"ε ≤ {upper} at δ = {tables.number(given['delta'])}" if asked else f"δ ≤ {upper} at ε = {tables.number(given['epsilon'])}"
    proved = f"between {lower} and {upper}" if priced.tight else f"at most {upper}; a valid bound that may be loose"
    if math.isinf(bound.upper):
        head = f"No ε at δ = {tables.number(given['delta'])}"
        share = priced.delta_upper(checks.EPSILON_MAX)
        proved = (
            f"nothing here; δ ≤ {tables.up(share)} at ε = {checks.EPSILON_MAX:g}"
            if share < 1
            else "nothing: the result may show everything"
        )
    known = [
        ("proved", proved),
        ("hides", _hidden(given)),
        ("trust", given["trust"]),
        ("event", _event_words(event)),
    ]
    lines = [head, "", tables.facts(known), *(tables.paragraph(note, bullet="· ") for note in priced.notes)]
    if asked and math.isfinite(bound.upper) and bound.upper <= checks.EPSILON_MAX and given["group"] == 1:
        lines += ["", text.command("Next: dither explain", _guarantee_flags(bound, given))]
    return "\n".join(lines)


def _guarantee_flags(bound: Bound, given: dict[str, Any]) -> list[str]:
    """What to type to have this price explained; nothing is left out that would change its meaning."""
    said = [f"--epsilon {dither.accounting.tables.up(bound.upper, 5)}", f"--delta {given['delta']!r}"]
    if given["neighbors"] != Neighbors.ADD_REMOVE:
        said.append(f"--neighbors {given['neighbors']}")
    if given["unit"] is not None:
        said.append(f"--unit {shlex.quote(given['unit'])}")
    if given["trust"] != Trust.CENTRAL:
        said.append(f"--trust {given['trust']}")
    return said


def _event_words(event: Event) -> str:
    """The event as Python would write it, cut where it gets long."""
    words = repr(event)
    return words if len(words) <= 300 else f"{words[:299]}…"


def _check_budget(bound: Bound, given: dict[str, Any]) -> None:
    if given["budget"] is None:
        return
    budget, tables = given["budget"], dither.accounting.tables
    if bound.upper > budget:
        price = f"ε = {tables.up(bound.upper)} at δ = {tables.number(given['delta'])}"
        raise OverBudgetError(
            f"It costs {price}, more than the budget of {tables.number(budget)}: "
            "use more noise or fewer steps; dither calibrate says how much."
        )


def _compared(event: Event, given: dict[str, Any]) -> Comparison:
    return dither.accounting.compare(event, given["delta"], neighbors=Neighbors(given["neighbors"]), group=given["group"])


def _plot_price(path: Path, event: Event, given: dict[str, Any]) -> None:
    """ε against the number of steps, each accountant a line."""
    step, most = (event.event, event.count) if isinstance(event, Repeat) and event.count > 1 and not event.spread else (event, 100)
    counts = sorted({max(1, round(most ** (i / 9))) for i in range(10)})
    text.progress(f"pricing {len(counts)} runs of up to {most:,} steps for the plot")
    runs = [_compared(Repeat(step, k), given) for k in counts]
    _said(plots.comparison(path, counts, runs, delta=given["delta"], hides=f"{_hidden(given)}; {given['trust']} trust"))


# ------------------------------------------------------------------------------------------------ calibrate


@cli.command(epilog=EXAMPLES["calibrate"], short_help="The noise (or steps, or sampling) that meets (ε, δ).")
@event_options
@click.option("--epsilon", type=float, required=True, help="The ε to meet.")
@click.option("--delta", type=float, default=0.0, show_default=True, help="The δ to meet.")
@_whom_options
@_group_option
@click.option("--low", type=float, help="Search no lower than this.")
@click.option("--high", type=float, help="Search no higher than this.")
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE", help="Plot the answer against ε (.png, .svg or .pdf).")
@json_option
def calibrate(**given: Any) -> None:  # noqa: ANN401 - click hands over what was typed
    """The noise that meets (ε, δ), or the steps, or the sampling probability.

    What you leave out is what is found; in --event, put a "?" in its place.
    """
    name, make, whole = EventFlags.take(given).priced_alone().to_search()
    epsilon, delta = checks.epsilon(given["epsilon"]), checks.delta(given["delta"])
    _unit(given)  # refused now if it is no unit
    path = None if given["plot"] is None else plots.target(given["plot"])

    def solved(target: float) -> float:
        limits = {name: given[name] for name in ("neighbors", "group", "low", "high")}
        found: float
        if whole:
            found = dither.calibrate(make, epsilon=target, delta=delta, integer=True, **limits)
        else:
            found = dither.calibrate(make, epsilon=target, delta=delta, **limits)
        return found

    value = solved(epsilon)
    bound = dither.loss(make(value), neighbors=given["neighbors"], group=given["group"]).epsilon(delta)
    if given["as_json"]:
        text.show_json(
            {
                "parameter": name,
                "value": value,
                "target": {"epsilon": epsilon, "delta": delta},
                "price": {"lower": _number(bound.lower), "upper": _number(bound.upper), "delta": delta},
                **_whom(given),
                "event": to_dict(make(value)),
            }
        )
    else:
        text.show(_calibrated_page(name, value, make(value), bound, given))
    if path is not None:
        targets = [epsilon * 2.0 ** (i / 2) for i in range(-6, 7) if 0 < epsilon * 2.0 ** (i / 2) <= checks.EPSILON_MAX]
        text.progress(f"calibrating {len(targets)} more times for the plot")
        found = [(e, v) for e, v in ((e, _solved_or_none(solved, e)) for e in targets) if v is not None]
        line = ([e for e, _ in found], [v for _, v in found])
        hides = f"{_hidden(given)}; {given['trust']} trust"
        _said(plots.calibration(path, *line, name=name, delta=delta, chosen=(epsilon, value), hides=hides))


def _solved_or_none(solved: Callable[[float], float], target: float) -> float | None:
    """A point of the plot, or none where no value meets the target."""
    try:
        return solved(target)
    except InputError:
        return None


def _calibrated_page(name: str, value: float, event: Event, bound: Bound, given: dict[str, Any]) -> str:
    tables = dither.accounting.tables
    rising = name in ("steps", "count", "sampling_probability", "probability", "epsilon", "rho")
    shown = f"{value:_}".replace("_", ",") if isinstance(value, int) else (tables.down if rising else tables.up)(value, 6)
    known = [
        ("meets", f"ε ≤ {tables.number(given['epsilon'])} at δ = {tables.number(given['delta'])}"),
        ("price", f"ε ≤ {tables.up(bound.upper, 5)} at δ = {tables.number(given['delta'])}"),
        ("hides", _hidden(given)),
        ("trust", given["trust"]),
        ("event", _event_words(event)),
    ]
    return "\n".join([f"{name.replace('_', ' ')} = {shown}", "", tables.facts(known)])


# ------------------------------------------------------------------------------------------------ plan


@cli.command(epilog=EXAMPLES["plan"])
@click.option("--population", type=int, required=True, help="Units (rows, or users) to train on; a public figure.")
@click.option("--epochs", type=float, required=True, help="Passes over them.")
@click.option("--batch", type=int, required=True, help="Units in a batch, on average.")
@click.option("--epsilon", type=float, required=True, help="The ε to meet.")
@click.option("--delta", type=float, required=True, help="The δ to meet: well below 1/population.")
@click.option(
    "--sampling",
    type=click.Choice(["poisson", "fixed-size", "shuffled"]),
    default="poisson",
    show_default=True,
    help="How batches are drawn.",
)
@click.option("--unit", metavar="KEY", help="Hide all rows of one value of this key, not one row.")
@click.option(
    "--trust", type=click.Choice([t.value for t in Trust]), default=Trust.CENTRAL.value, show_default=True, help="Who sees raw data."
)
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE", help="Plot what doubling buys (.png, .svg or .pdf).")
@json_option
def plan(**given: Any) -> None:  # noqa: ANN401 - click hands over what was typed
    """Noise, steps and trade-offs of a training run."""
    sampling = given["sampling"].replace("-", "_")
    unit = None
    if given["unit"] is not None:
        related = Neighbors.REPLACE if sampling == "fixed_size" else Neighbors.ADD_REMOVE
        unit = PrivacyUnit(dataset="the training data", key=given["unit"], neighbors=related)
    facts = {name: given[name] for name in ("population", "epochs", "batch", "epsilon", "delta")}
    path = None if given["plot"] is None else plots.target(given["plot"])
    made = dither.accounting.plan_training(**facts, sampling=sampling, unit=unit, trust=Trust(given["trust"]))
    if given["as_json"]:
        text.show_json(made.to_dict())
    else:
        text.show(made.to_text())
    if path is not None:
        _said(plots.plan(path, made))


# ------------------------------------------------------------------------------------------------ explain


@cli.command(epilog=EXAMPLES["explain"])
@event_options
@click.option("--epsilon", type=float, help="Explain this ε, in place of an event.")
@click.option("--delta", type=float, help="The δ of it.")
@_whom_options
@click.option("--prior", type=float, multiple=True, help="A belief before seeing the result; may be given several times.")
@click.option("--group", type=int, multiple=True, help="Units that share a secret; may be given several times.")
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE", help="Plot the best possible attack (.png, .svg or .pdf).")
@json_option
def explain(**given: Any) -> None:  # noqa: ANN401 - click hands over what was typed
    """What (ε, δ) means for a person."""
    flags = EventFlags.take(given)
    path = None if given["plot"] is None else plots.target(given["plot"])
    options: dict[str, Any] = {"population": flags.population}
    options |= {name: given[name] for name in ("prior", "group") if given[name]}
    unit = _unit(given)
    if given["epsilon"] is None:
        if not flags.any:
            raise InputError(
                "Nothing is given to explain: use --epsilon and --delta, or describe an event (--noise-multiplier … or --event)."
            )
        told = dither.explain(flags.to_event(), delta=given["delta"], unit=unit, trust=given["trust"], **options)
    else:
        if flags.any:
            raise InputError("--epsilon and an event say the same twice: give one of them.")
        epsilon, delta = checks.epsilon(given["epsilon"]), checks.delta(given["delta"] or 0.0)
        told = dither.explain(Guarantee(epsilon, delta, unit, Trust(given["trust"])), **options)
    if given["as_json"]:
        text.show_json(told.to_dict())
    else:
        text.show(told.to_text())
    if path is not None:
        _said(plots.trade_off(path, told))


# ------------------------------------------------------------------------------------------------ demo


@cli.command(short_help="All of it with plots, in under a minute.")
@click.option(
    "--output", type=click.Path(path_type=Path, file_okay=False), default=Path("dither-demo"), show_default=True, help="Where plots go."
)
@json_option
def demo(output: Path, *, as_json: bool) -> None:
    """Price, calibrate, plan, explain and draw noise, with plots, in under a minute."""
    from dither.app import demo as tour  # noqa: PLC0415 - brings the noise and the plots, which --help must not wait for

    tour.run(output, as_json=as_json)


# ------------------------------------------------------------------------------------------------ projects, questions, the ledger


cli.add_command(project_cli.init)
cli.add_command(project_cli.run)
cli.add_command(sql_cli.sql)
cli.add_command(ledger_cli.ledger)


# ------------------------------------------------------------------------------------------------ the way out


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _said(path: Path) -> None:
    text.progress(f"plot written to {path}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and end the process with its status."""
    sys.exit(status(arguments))


def status(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; every fault is one sentence on stderr and a status.

    >>> status(["--version"])
    dither 0.1.0
    0
    """
    typed = sys.argv[1:] if arguments is None else list(arguments)
    if not text.prepare():
        return text.complain("Stdout is closed: there is nowhere to write.", code="system", status=1)
    try:
        outcome = cli.main(args=typed, prog_name="dither", standalone_mode=False)
        sys.stdout.flush()
    except DitherError as error:
        return text.complain(str(error), code=error.code, status=error.exit_status, as_json="--json" in typed)
    except click.ClickException as error:
        return text.complain(_usage(error), code=InputError.code, status=InputError.exit_status, as_json="--json" in typed)
    except (click.Abort, KeyboardInterrupt):
        return text.complain("Stopped.", code="stopped", status=130)
    except BrokenPipeError:
        return _left_alone()
    except SystemExit as ended:  # shell completion has answered; or click met a broken pipe, which it wraps
        code = ended.code
        return code if isinstance(code, int) and "_DITHER_COMPLETE" in os.environ else _left_alone()
    except OSError as error:
        return text.complain(f"{error.filename or 'A file'} could not be used: {error.strerror or error}.", code="system", status=1)
    except Exception as error:  # noqa: BLE001 - the last line before a person: never a traceback
        return _fault(error)
    return outcome if isinstance(outcome, int) else 0


def _left_alone() -> int:
    """Whoever read our output has had enough: say no more at exit. Not 0: a check that comes after it was not made."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 1


def _usage(error: click.ClickException) -> str:
    message = error.format_message().rstrip(".?")
    end = "?" if error.format_message().endswith("?") else "."
    context = getattr(error, "ctx", None)
    where = context.command_path if context is not None else "dither"
    return f"{message}{end} See {where} --help."


def _fault(error: Exception) -> int:
    if os.environ.get("DITHER_DEBUG"):
        traceback.print_exception(error)
    kind = type(error).__name__
    said = f"This is a fault of dither, not yours ({kind}): please report it; DITHER_DEBUG=1 shows where it happened."
    return text.complain(said, code="fault", status=1)
