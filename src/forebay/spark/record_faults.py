"""Is a failure of Spark the fault of a record? Judged by what Spark says, which is all that a driver gets to see.

| what failed | known by | whose fault |
|---|---|---|
| SQL on a value: division by zero, a cast, an overflow | SQLSTATE 22…, `raise_error`: P0001 | the record's, for ever |
| a Python function of an action | a traceback | the record's, perhaps: it is tried again |
| a `RecordAction` calls the record bad, or gives what does not fit | `BadRecord` | the record's, for ever |
| the same, through a network, a process, a database or Forebay | an exception of its chain | not the record's |
| the sink's server refuses the message: too large, a name too long | `ServerRefused`, 400, 413, 422 | the record's |
| anything else: an executor is lost, a server is away | | not the record's |

What is not the record's fault is not searched for in records: the flow restarts until it is over. An action that asks
another system raises `ConnectionError`, `TimeoutError` or `forebay.errors.Transient` when that one is away.
"""

from __future__ import annotations

import re
from enum import Enum

TRACEBACK = "Traceback (most recent call last):"
_SQLSTATE = re.compile(r"SQLSTATE: (\w{5})")
_STATES_OF_VALUES = ("22", "P0")
_RAISED = re.compile(r"^((?:[A-Za-z_]\w*\.)*)([A-Za-z_]\w*)(?::|$)")
_REFUSED = re.compile(r"ServerRefused: \S+ refused \((?:400|413|422)\)")
_OF_THE_REQUEST = re.compile(r"\b4(?!08|29)\d\d Client Error|HTTP Error 4(?!08|29)\d\d")
"""What requests and urllib say when a server answers that the request itself is wrong."""
_WORLDS_OWN = frozenset(
    """
    OSError IOError ConnectionError ConnectionRefusedError ConnectionResetError ConnectionAbortedError
    BrokenPipeError TimeoutError BlockingIOError InterruptedError ChildProcessError ProcessLookupError
    PermissionError EOFError MemoryError KeyboardInterrupt SystemExit ImportError ModuleNotFoundError HTTPError
    URLError HTTPException RemoteDisconnected IncompleteRead BadStatusLine gaierror herror timeout SSLError
    ConnectTimeout ReadTimeout WriteTimeout PoolTimeout Timeout ProxyError ConnectError ReadError WriteError
    NetworkError ProtocolError ChunkedEncodingError NewConnectionError MaxRetryError OperationalError InterfaceError
    Transient
    """.split()  # noqa: SIM905 - a list of words is read more easily
)
"""Of the standard library, requests, httpx, urllib3 and DB-API."""


_AWAY = _WORLDS_OWN - frozenset(
    "PermissionError EOFError MemoryError KeyboardInterrupt SystemExit ImportError ModuleNotFoundError".split()  # noqa: SIM905
)
"""Of these: what may answer later, whatever is done here."""
_OF_RECORDS = "forebay.flows.record_action."
"""The module whose exceptions speak of a record; those of our other modules do not."""
_BAD_RECORD = (_OF_RECORDS, "BadRecord")


class Blame(Enum):
    """Whose fault it is."""

    BAD = "a record that an action calls bad: it goes to the error queue, whatever on_error says"
    VALUE = "a value on which SQL fails: it fails again"
    RECORD = "perhaps a record, which may pass when it is tried again"
    SINK = "a result that the sink refuses"
    WORLD = "no record"


def blame(failure: str) -> Blame:
    """What is to blame for what Spark says."""
    if _REFUSED.search(failure):
        return Blame.SINK
    if TRACEBACK in failure:
        raised = _raised(failure)
        if raised and raised[-1] == _BAD_RECORD:
            return Blame.BAD
        return Blame.RECORD if _is_of_a_record(raised, failure) else Blame.WORLD
    states = _SQLSTATE.findall(failure)
    return Blame.VALUE if any(state.startswith(_STATES_OF_VALUES) for state in states) else Blame.WORLD


def is_away(failure: str) -> bool:
    """Whether something that an action or Forebay called did not answer, so that the same may pass later on."""
    if blame(failure) is not Blame.WORLD:
        return False
    return any(name in _AWAY or name == "ServersAway" for _, name in _raised(failure))


def _is_of_a_record(raised: list[tuple[str, str]], failure: str) -> bool:
    if not raised or any(module.startswith("forebay.") and module != _OF_RECORDS for module, _ in raised):
        return False
    others = {name for _, name in raised} & _WORLDS_OWN
    return not others or (others == {"HTTPError"} and _OF_THE_REQUEST.search(failure) is not None)


def _raised(failure: str) -> list[tuple[str, str]]:
    """Module and name of the exception that each traceback ends with: the last one's, and those of its causes."""
    found = []
    for text in failure.split(TRACEBACK)[1:]:
        ends = [line for line in text.splitlines() if line.strip() and not line.startswith((" ", "\t"))]
        match = _RAISED.match(ends[0]) if ends else None
        if match:
            found.append((match[1], match[2]))
    return found
