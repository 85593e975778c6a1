"""What ``dither init`` writes runs at once."""

import csv

import pytest

from dither import gate
from dither.core.errors import InputError
from dither.gate import file
from dither.gate.engines import engine
from dither.gate.project import Project
from dither.gate.starter import init_text, sample_text, write_starter


def test_the_starter_runs_at_once(tmp_path):
    paths = write_starter(tmp_path / "new" / "project")
    assert [p.name for p in paths] == ["dither.yaml", "visits.csv"]
    with Project.load(paths[0]) as project:
        for name in project.names:
            made = project.run_job(name)
            assert made.accuracy is not None or made.value["columns"][1]["half_widths"]
            assert project.plan(project.job(name)).explain()
        assert project.run_job("adults").receipt.replayed
        assert project.ledger.balance("clinic").share < 0.5
        assert project.ledger.notes() == ()


def test_the_sample_is_what_the_file_says_it_is():
    facts = file.read(init_text(), "dither.yaml").datasets["visits"]
    rows = list(csv.DictReader(sample_text().splitlines()))
    assert set(rows[0]) == {facts.unit.key, *(c.name for c in facts.columns)}
    for column in facts.columns:
        held = {row[column.name] for row in rows}
        assert not column.values or held == set(column.values)
        assert column.min is None or all(column.min <= float(value) <= column.max for value in held)
    assert len({row["visitor"] for row in rows}) > 300
    assert sample_text() == sample_text()


@pytest.mark.statistical
def test_the_answers_are_near_the_truth(tmp_path):
    """Within three times the stated 95 % interval: a false alarm has probability 0.05³, about 1e-4 (Laplace tails)."""
    with Project.load(write_starter(tmp_path)[0]) as project:
        adults = project.run_job("adults")
    people = {row["visitor"] for row in csv.DictReader(sample_text().splitlines()) if int(row["age"]) >= 18}
    assert abs(adults.value["estimate"] - len(people)) <= 3 * adults.accuracy.half_width


def test_nothing_is_written_over(tmp_path):
    (tmp_path / "visits.csv").write_text("mine")
    with pytest.raises(InputError, match=r"visits\.csv' is there already"):
        write_starter(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["visits.csv"]
    (tmp_path / "visits.csv").unlink()
    (tmp_path / "dither.yaml").symlink_to(tmp_path / "nowhere")
    with pytest.raises(InputError, match="is there already"):
        write_starter(tmp_path)


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="could not be written to"):
        write_starter(tmp_path / "file" / "folder")


def test_the_names_of_the_gate_are_there():
    assert all(getattr(gate, name) is not None for name in gate.__all__)
    assert engine("measure").__name__ == "dither.gate.measure"
