#!/bin/sh
# Pushes 300 clicks, a health check, a click of a shop that is not ours, and one that cannot be read.
awk 'BEGIN {
  split("de no us", shop, " ")
  for (n = 0; n < 300; n++)
    printf "{\"user\": \"u%d\", \"page\": \"/%s/cart\", \"ip\": \"10.%d.0.1\"}\n", n, shop[n % 3 + 1], n % 4 + 1
  print "{\"user\": \"health-check\", \"page\": \"/\", \"ip\": \"10.1.0.1\"}"
  print "{\"user\": \"ann\", \"page\": \"/fr/cart\", \"ip\": \"10.1.0.1\"}"
  print "\"not a click\""
}' | forebay push clicks
