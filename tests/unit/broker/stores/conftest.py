"""The fixtures of embedded stores."""

from fixtures.embedded_stores import disk, limits, store
from fixtures.fix_stores import clock

__all__ = ["clock", "disk", "limits", "store"]
