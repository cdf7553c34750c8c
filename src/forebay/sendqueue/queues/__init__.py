"""The variants of the send queue: `memory`, `fastqueue` (disk) and `hybrid`."""
