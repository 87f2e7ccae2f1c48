from importlib import import_module

import pytest

from gsnmf.moved import MOVED, Forwarding


@pytest.mark.parametrize(("old", "new"), MOVED.items())
def test_former_names_of_modules_give_the_same_module(old, new):
    module = import_module(f"gsnmf.{old}")
    assert module is import_module(f"gsnmf.{new}")
    assert module.__spec__.name == module.__name__ == f"gsnmf.{new}"


def test_other_names_are_left_alone():
    assert Forwarding().find_spec("plots", None) is None
    with pytest.raises(ModuleNotFoundError, match=r"gsnmf\.nonsense"):
        import_module("gsnmf.nonsense")


def test_former_names_are_not_modules_of_their_own():
    for old in MOVED:
        spec = import_module(f"gsnmf.{old}").__spec__
        assert spec.origin is not None
        assert not spec.origin.endswith(f"/gsnmf/{old.replace('.', '/')}.py")
