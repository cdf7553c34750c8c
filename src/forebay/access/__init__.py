"""Access: API keys with scopes and queue patterns, sessions of the web page, and the log of admin actions.

Everything is kept in the store's own database (`forebay.broker.room_work`), so every server of a store knows it. A
*key* is text that cannot be guessed; only its SHA-256 digest is kept, and the key itself is shown once. Since a key is
32 random bytes a plain digest is enough: there is nothing to guess.

**Scopes** (`scopes`). A key has one or more. None includes another, except `admin`, which includes all.

| scope | allows |
|---|---|
| `read` | to look: lists, status, messages, dead letters, traces, ranges as Arrow |
| `write` | to push, to stage and commit rows, to make a queue |
| `consume` | to pop, to acknowledge, to lease and complete parcels, to define a flow, to replay dead letters |
| `admin` | everything; alone what destroys or resets: delete, clear, purge, seek, other options, maintenance, keys |

**Queue patterns** (`patterns`). A key may be restricted to queues: `orders.*` is every name that begins with `orders.`;
`*` stands for any characters, everything else for itself. What names another queue is refused (403, with the name),
lists leave it out, and what concerns all queues at once is refused.

**Life of a key** (`keys`).

    create ──▶ active ──rotate──▶ active, and the old text counts until the grace time is over
                 │  └──expires_us──▶ expired
                 └──revoke──▶ revoked: kept for a while, to be seen in the list

The first key turns keys *in force*, for good: revoking or losing the last key leaves a server closed, never open. Only
`forget_all` on the store itself, beside no server or on its database, opens it again. The first key must be able to
make others, so it is `admin` without patterns.

**How soon.** Every change raises `version` in `access_numbers`. A server asks for that number once a second and reads
all keys when it has changed, so a change counts everywhere within two seconds. While the store is away, the keys that
were read last stay in force.

**Sessions** (`sessions`). Signing in with a key makes a random id, of which the digest is kept with the digest of the
key. A session ends at its time, at sign-out, or with its key.

**The audit log** (`audit`). One row per admin action: when, which key, method and route, subject, address, status.

| limit | value | at the limit |
|---|---|---|
| keys, revoked ones included | 10,000 | `KeysFull`: revoked ones go after `server.audit_retention` |
| name of a key | 1 to 100 characters, unique among keys that are not revoked | `KeyRefused`, `KeyNameTaken` |
| patterns of a key | 100, of 1 to 255 characters | `KeyRefused` |
| sessions | 100,000 | the oldest end |
| rows of the audit log | 100,000 and 90 days | the oldest are removed |
| use of a key | noted once a minute | `used_us` is that old at the most |

| table | one row per | durable |
|---|---|---|
| `api_keys` | key | when the answer is sent |
| `key_sessions` | session | when the answer is sent |
| `audit_log` | admin action | before the action is answered; if the store fails then, in the log alone |
| `access_numbers` | `version`, `in_force` | with the change that raises it |

It does not do: users and passwords, single sign-on, rights on partitions or groups.

Modules: `scopes`, `patterns`, `failed_attempts` (pure); `digests`; `values`; `keys`, `sessions`, `audit` (work on the
tables); `faults`. What a request may do is `forebay.api.access`'s.
"""
