"""First on PYTHONPATH of a process under mutation and all that it starts: breaks the product before it is imported."""

import os

if os.environ.get("ONLYONCE_TEST_MUTANT"):
    from tests.mutants import hook

    hook.install(os.environ["ONLYONCE_TEST_MUTANT"])
