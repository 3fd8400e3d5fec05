"""x"""
from __future__ import annotations
from tests.apply.mirrors import Mirror
def test_a(mirror: Mirror) -> None:
    """x"""
    mirror.publish()
    mirror.assert_current()
    mirror.assert_feed()
    mirror.publish(); mirror.publish()
    mirror.assert_current(max_files=1)
    mirror.assert_feed()
