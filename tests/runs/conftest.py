"""A run that was begun."""

import pytest

from stores import go_on, open_for_writing


@pytest.fixture
def half(tmp_path):
    """A run of which three records are done."""
    folder = tmp_path / "runs" / "half"
    with open_for_writing(folder) as store:
        assert go_on(store, records=3) == (0, "")
    return folder
