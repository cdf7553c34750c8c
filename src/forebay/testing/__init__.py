"""What tests of flows and of code that talks to Forebay need: a running server, a clock to turn, actions on rows.

    from forebay.testing import run_action, run_flow

Those two need PySpark, which is imported when one of them is first looked up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forebay.testing.actions import ActionResult, run_action, run_flow

__all__ = ["ActionResult", "run_action", "run_flow"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from forebay.testing import actions

    return getattr(actions, name)
