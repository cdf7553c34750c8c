-- How many dead letters match.
SELECT count(*) FROM {dead_letters_all} WHERE {conditions}
