import math

import pytest

from safesync.report.wording import fixed, milliseconds, p_value, percent, quantity, signed


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (fixed(-1.234), "−1.23"),
        (fixed(math.inf), "∞"),
        (fixed(math.nan), "–"),
        (fixed(None), "–"),
        (signed(0.5), "+0.50"),
        (signed(-0.5), "−0.50"),
        (signed(None), "–"),
        (fixed(-0.004), "0.00"),
        (signed(-0.004), "0.00"),
        (signed(0.004), "0.00"),
        (signed(-0.006), "−0.01"),
        (signed(math.inf), "+∞"),
        (percent(-0.0001), "0.0 %"),
        (percent(0.0512), "5.1 %"),
        (percent(None), "–"),
        (milliseconds(0.0144), "14.4 ms"),
        (milliseconds(math.inf), "∞ ms"),
        (p_value(0.03125), "0.031"),
        (p_value(1e-5), "1e-05"),
        (p_value(None), "–"),
        (quantity(512), "512 B"),
        (quantity(3 * 2**30), "3.0 GiB"),
        (quantity(2**50), "1024.0 TiB"),
    ],
)
def test_numbers_as_readers_see_them(said, expected):
    assert said == expected
