"""One Chromium for all tests of a file."""

import pytest

from chromium import start_chromium


@pytest.fixture(scope="module")
def chromium():
    running = start_chromium()
    yield running
    running.quit()
