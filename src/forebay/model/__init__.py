"""The words of Forebay as frozen values. This room imports nothing of ours, so that every other room may import it."""
