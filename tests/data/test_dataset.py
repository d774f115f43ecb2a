"""Data sets by name: each name leads to its data set, with all that was asked for."""

import numpy as np
import pytest

from counterflow.data import dataset, digits, mnist


def test_digits_by_name():
    assert np.array_equal(dataset.load("digits").inputs, digits.digits().inputs)


@pytest.mark.parametrize(
    ("name", "source"), [("mnist", mnist.MNIST), ("fashion-mnist", mnist.FASHION_MNIST)]
)
def test_folder_and_progress_are_passed_on(name, source, tmp_path, monkeypatch):
    calls = []

    def read(*arguments):
        calls.append(arguments)
        return digits.digits()

    def progress(file_name: str, done_bytes: int, total_bytes: int) -> None:
        pass

    monkeypatch.setattr(mnist, "read", read)
    dataset.load(name)
    dataset.load(name, tmp_path, progress)
    assert calls == [(source, None, dataset.silent), (source, tmp_path, progress)]
    assert source.name == name


def test_every_name_is_known(monkeypatch):
    monkeypatch.setattr(mnist, "read", lambda *_: digits.digits())
    for name in dataset.NAMES:
        assert dataset.load(name).targets.shape[1] == 10


def test_an_unknown_name_is_named_with_the_known_ones():
    with pytest.raises(ValueError, match="one of digits, mnist, fashion-mnist, got 'cifar'"):
        dataset.load("cifar")


def test_a_folder_for_digits_is_not_ignored(tmp_path):
    with pytest.raises(ValueError, match=r"`folder` must be None for digits, got .*scikit-learn"):
        dataset.load("digits", tmp_path)
