"""What comes from outside, at random: always the same random, so that a failure comes again."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "the same every time",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=60,
    # A folder that all examples share is emptied or overwritten by each.
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.load_profile("the same every time")
