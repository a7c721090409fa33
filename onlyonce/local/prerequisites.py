"""Find what the machine lacks before anything can be installed: Python, Java, disk space.

    python3 onlyonce/local/prerequisites.py     prints the Python to use; else one line for each thing missing

The Makefile runs it with any python3 of the machine, before there is an environment. So it uses the standard library
only, and the syntax of Python 3.6.
"""

import os
import re
import shutil
import subprocess
import sys
from typing import List, Optional, Tuple

OLDEST = (3, 11)
NEWEST = (3, 13)
JAVA = 17
DISK_TO_INSTALL = 4.0
DISK_TO_RUN = 1.0

_ASK_PYTHON = "import sys; print('%d.%d' % sys.version_info[:2]); import ensurepip, venv"


def find_python(candidates: List[str]) -> Tuple[Optional[str], str]:
    """Return the first candidate that can make an environment, or None and the line to print."""
    seen = []
    for candidate in candidates:
        path = shutil.which(candidate)
        if path is None:
            continue
        version, complete = _ask(path)
        if version is None or not OLDEST <= version <= NEWEST:
            seen.append("%s is %s" % (candidate, "broken" if version is None else "%d.%d" % version))
        elif not complete:
            return None, (
                "Python %d.%d is here, but its modules venv and ensurepip are missing."
                " Get them: apt-get install python%d.%d-venv (on Debian and Ubuntu)." % (version + version)
            )
        else:
            return path, ""
    return None, (
        "Python 3.11, 3.12 or 3.13 is missing (%s). Get it: apt-get install python3.11 python3.11-venv,"
        " dnf install python3.11, or brew install python@3.11; PYTHON=<path> names one that is elsewhere."
        % (", ".join(seen) or "there is no python at all")
    )


def _ask(path: str) -> Tuple[Optional[Tuple[int, int]], bool]:
    code, text = _output([path, "-c", _ASK_PYTHON])
    found = re.match(r"(\d+)\.(\d+)", text)
    return ((int(found.group(1)), int(found.group(2))) if found else None), code == 0


def java_problem(environment: "os._Environ[str]" = os.environ) -> str:
    """Return what is wrong with Java, in one line; empty if nothing is wrong."""
    get = (
        "Get it: apt-get install openjdk-17-jre-headless, dnf install java-17-openjdk-headless,"
        " or brew install openjdk@17."
    )
    home, on_path = environment.get("JAVA_HOME", ""), shutil.which("java", path=environment.get("PATH"))
    java = os.path.join(home, "bin", "java") if home else on_path
    if not java or not os.path.exists(java):
        where = "JAVA_HOME is %s, where there is no bin/java" % home if home else "there is no java on the PATH"
        if home and on_path:
            get = "Get it: unset JAVA_HOME, since %s is on the PATH; or set it to a folder with bin/java." % on_path
        return "Java %d or later is missing: %s. %s" % (JAVA, where, get)
    code, text = _output([java, "-version"])
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    if code or not found:
        return "Java %d or later is missing: %s does not run. %s" % (JAVA, java, get)
    if int(found.group(1)) < JAVA:
        advice = " JAVA_HOME names this one: set it to the new one, or unset it." if home else ""
        return "Java %d or later is missing: %s is Java %s. %s%s" % (JAVA, java, found.group(1), get, advice)
    return ""


def disk_problem(folder: str, gigabytes: float) -> str:
    """Return why the disk of the folder (or of the nearest one that exists) is too small; empty if it has enough
    space."""
    while not os.path.exists(folder):
        folder = os.path.dirname(folder) or "."
    free = shutil.disk_usage(folder).free / 1e9
    if free >= gigabytes:
        return ""
    return "Too little disk: %.1f GB are free at %s, %.0f GB are needed. Make room, or work on another disk." % (
        free,
        os.path.abspath(folder),
        gigabytes,
    )


def _output(command: List[str]) -> Tuple[int, str]:
    # capture_output and text came with Python 3.7.
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return 1, ""
    return done.returncode, done.stdout


def main() -> int:
    """Print the path of the Python to use and return 0; or print what is missing and return 1."""
    named = os.environ.get("PYTHON")
    python, line = find_python([named] if named else ["python3", "python3.13", "python3.12", "python3.11"])
    problems = [line, java_problem(), disk_problem(os.getcwd(), DISK_TO_INSTALL)]
    for problem in filter(None, problems):
        sys.stderr.write("%s\n" % problem)
    if not any(problems):
        print(python)
    return 1 if any(problems) else 0


if __name__ == "__main__":
    sys.exit(main())
