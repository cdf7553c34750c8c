"""The variants of `forebay.broker.store.Store`."""
