"""What all sections of the settings share."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """They never change after loading, and they know no key that is not theirs."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)
