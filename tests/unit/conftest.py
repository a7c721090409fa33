"""What the pure tests share."""

from __future__ import annotations

from hypothesis import settings

# A loaded machine is no fault of the code: nothing here asserts how long an example takes.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")
