"""A server of a test's own, on the embedded store, and a client of it. Modules that need others have their own."""

from fixtures.running_stores import client, server

__all__ = ["client", "server"]
