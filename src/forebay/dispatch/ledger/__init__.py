"""Work on the store's transaction: reads and writes of dispatch's tables, by subject."""
