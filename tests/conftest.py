"""Options of the whole suite."""

import pytest
from hypothesis import settings

# The same examples in every run: a suite that fails now and then tells nobody what broke it.
settings.register_profile("reproducible", derandomize=True, deadline=None)
settings.load_profile("reproducible")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="renew the expectations of golden_models/")


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))
