-- The version of keys and sessions, and whether keys are in force.
SELECT name, value FROM forebay.access_numbers
