"""The list of planted bugs fits the code, and a run of them resumes where it ended."""

import re
import sys
from pathlib import Path

sys.path.insert(0, "tests/mutation")
from run import Kept, Outcome, fingerprint, main, read, report


def test_the_list_of_planted_bugs_fits_the_code():
    """Every text occurs once in its file, and every test is there."""
    mutants = read()
    assert len(mutants) >= 60
    assert len({mutant.name for mutant in mutants}) == len(mutants)
    for mutant in mutants:
        for test in mutant.tests:
            path, _, name = test.partition("::")
            assert Path(path).is_file(), test
            assert not name or re.search(rf"^def {re.escape(name)}\(", Path(path).read_text(), re.MULTILINE), test


def test_outcomes_are_kept_until_a_bug_its_file_or_its_tests_change(tmp_path):
    one, two, *_ = read()
    kept = Kept(tmp_path / "outcomes")
    kept.add(fingerprint(one), Outcome(one.name, "tests/x.py::test", 1.0))
    again = Kept(tmp_path / "outcomes").known
    assert again[fingerprint(one)] == Outcome(one.name, "tests/x.py::test", 1.0)
    for other in (two, one._replace(new="0"), one._replace(tests=two.tests[:0]), one._replace(file=__file__)):
        assert fingerprint(other) not in again


def test_a_survivor_and_an_untried_bug_are_failures(capsys):
    caught, survived = Outcome("one", "tests/x.py::test", 1.0), Outcome("two", None, 2.0)
    assert [report([caught]), report([caught, survived]), report([caught, None])] == [0, 1, 1]
    said = capsys.readouterr().out
    assert "1 of 2 caught, 3 s of tests\nsurvived: ['two']" in said
    assert "not tried yet: 1" in said


def test_a_run_without_time_begins_nothing(capsys):
    assert main(["--only", "momentum", "--seconds", "0", "--skip-sound", "--jobs", "1"]) == 1
    assert "0 of 2 caught" in capsys.readouterr().out
