"""Each kind of sink answers what the platform asks, from a module that is loaded by its path."""

import subprocess
import sys
from importlib import import_module
from typing import Any

import pytest

from onlyonce.api import sinks
from onlyonce.api.declared_sink import DeclaredSink
from onlyonce.lookups.tables import Kept
from onlyonce.sinks.targets import Implementation

KINDS = sinks.Sink.__args__


def asked(protocol: type) -> set[str]:
    return {name for name in vars(protocol) if not name.startswith("_")}


@pytest.mark.parametrize("kind", KINDS)
def test_the_module_of_a_kind_has_what_is_asked(kind: Any) -> None:
    assert asked(Implementation) <= {*vars(import_module(kind.module))}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.lookup_module])
def test_the_module_of_a_lookup_has_what_is_asked(kind: Any) -> None:
    assert asked(Kept) <= {*vars(import_module(kind.lookup_module))}


@pytest.mark.parametrize("kind", KINDS)
def test_only_a_kind_overrides_answers_that_exist(kind: Any) -> None:
    """So a misspelled capability is found."""
    options = {*kind.__dataclass_fields__, "target", "write", "keys", "units", "place", "name", "ending", "module"}
    own = {name for name in vars(kind) if not name.startswith("_")}
    assert own - options <= {*vars(DeclaredSink)}


def test_a_declaration_loads_no_implementation() -> None:
    code = "import sys, onlyonce; onlyonce.Delta(), onlyonce.FileSink(); sys.exit('onlyonce.sinks' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
