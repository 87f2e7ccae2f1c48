"""The list of planted bugs fits the code: every text occurs once in its file, and every test is there."""

import re
import sys
from pathlib import Path

sys.path.insert(0, "tests/mutation")
from run import read


def test_the_list_of_planted_bugs_fits_the_code():
    mutants = read()
    assert len(mutants) >= 60
    assert len({mutant.name for mutant in mutants}) == len(mutants)
    for mutant in mutants:
        for test in mutant.tests:
            path, _, name = test.partition("::")
            assert Path(path).is_file(), test
            assert not name or re.search(rf"^def {re.escape(name)}\(", Path(path).read_text(), re.MULTILINE), test
