"""A result can be written even when strangers hold every descriptor that is left."""

import subprocess
import sys

import pytest

CODE = """
import os, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 100))
from eigenmesh.sites.peer import SpareDescriptors
spare = SpareDescriptors()
assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 100
taken = []
try:
    while True:
        taken.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    pass
try:
    open(PATH, "w")
    raise SystemExit("nothing was exhausted")
except OSError:
    pass
spare.release()
with open(PATH, "w") as file:
    file.write("the result")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="limits of descriptors are POSIX")
def test_descriptors_that_were_kept_back_let_a_result_be_written(tmp_path):
    path = tmp_path / "result"
    code = CODE.replace("PATH", repr(str(path)))
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert path.read_text() == "the result"
