#!/bin/sh
# Pushes three minutes of clicks, one that cannot be read, and one an hour later, which closes the minutes before it.
awk 'BEGIN {
  split("ann bob eve", user, " ")
  for (n = 0; n < 180; n++)
    printf "{\"user\": \"%s\", \"at\": \"2026-01-01T00:%02d:%02dZ\", \"ms\": %d}\n", user[n % 3 + 1], n / 60, n % 60, n
  print "\"not a click\""
  print "{\"user\": \"ann\", \"at\": \"2026-01-01T01:00:00Z\", \"ms\": 0}"
}' | forebay push clicks
