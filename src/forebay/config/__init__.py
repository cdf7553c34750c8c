"""Settings: one model, five layers, and every value knows where it came from.

A setting has one name everywhere. `log.segment_size` is that key in YAML, `FOREBAY_LOG_SEGMENT_SIZE` in the environment
and `--log-segment-size` on the command line. The model in `model` is the authority: keys, names, flags, the texts of
faults and `docs/reference/settings.md` are all derived from it. A key exists only when code obeys it.

Layers
------
    defaults  <  profile  <  YAML file  <  environment  <  flags

Each layer overrides the ones before it, key by key. A profile is a named set of defaults; the key `profile` itself may
stand in the file, in FOREBAY_PROFILE or behind --profile, and the strongest of them chooses. The file is the one behind
`-c/--config`, else the one that FOREBAY_CONFIG names, else none: no file is looked for in secret.

`load` returns `Loaded`: the frozen `settings`, and `origins`, which says for every key where its value came from:
`default`, `profile performance`, `forebay.yaml line 3`, `environment FOREBAY_LOG_SEGMENT_SIZE`,
`flag --log-segment-size`. The environment is handed in as a mapping; nothing here reads it by itself.

Units
-----
Sizes are written `256Mi`, `1.5Gi`, `10MB` or as plain bytes and held as int; durations are written `30s`, `1h30m` and
held as timedelta. Arithmetic is exact. `units` has the grammar.

Faults
------
Nothing is guessed and nothing is ignored. Every value in every layer is judged, and all faults are raised together as
`SettingsRefused`; each says which key, what stood there, what is allowed and where it stood.

| what is wrong | what happens |
|---|---|
| unknown key, or unknown `FOREBAY_…` variable | refused, with the names that exist, the nearest first |
| value of the wrong kind or out of bounds | refused, with what is allowed, also if a stronger layer overrides it |
| key given twice in the file | refused, with both lines |
| file missing, unreadable, a directory, not UTF-8, over 1 MiB | refused, with what named the file |
| broken YAML, tags, aliases of lists or mappings, over 10,000 values or 20 levels | refused, with the line |
| empty file, section without content, empty environment variable | fine: nothing set |
| a Kubernetes service address (`FOREBAY_SERVICE_HOST`, `FOREBAY_PORT=tcp://…`) | left alone: not a setting |

What it does not do: it expands neither `~` nor `${…}`, includes no other files, and does not reload while running. (On
SIGHUP a server loads its settings again for the log level, and reads the certificate and the keys again.)

The modules in the order of the journey: `units` and `values` (kinds of value), `model`, `profiles`, `keys` (the table
derived from the model), `layers` and `yaml_file` (reading), `load` (judging and merging), `reference`
(for the documentation). The flags of commands are made in `forebay.cli.settings_flags`.
"""
