"""The suite that every sink must pass, for a sink of one's own: docs/how-to/own-sink.md.

@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_my_sink(case, onlyonce_log, tmp_path):
    case(MySink(onlyonce_log), Processes(onlyonce_log, tmp_path))
"""

from onlyonce.testing.suite.cases import Guarantee, Row, UnderTest
from onlyonce.testing.suite.cases_of_rows import CASES
from onlyonce.testing.suite.own_sink import OwnSink
from onlyonce.testing.suite.processes import Processes

__all__ = ["CASES", "Guarantee", "OwnSink", "Processes", "Row", "UnderTest"]
