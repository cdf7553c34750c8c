"""What tests of the PostgreSQL store narrow and turn."""

from fixtures.fix_stores import clock
from fixtures.postgres_stores import limits

__all__ = ["clock", "limits"]
