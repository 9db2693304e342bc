"""The Python code of a document, as a script that a test runs: what it tells a reader to type works."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from support import ROOT

_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)


def python_blocks(document: str) -> list[str]:
    found = _BLOCK.findall((ROOT / document).read_text())
    assert found, f"{document} has no Python code"
    return found


def run_script(blocks: list[str], shown: str, folder: Path, environ: dict[str, str]) -> tuple[Any, str]:
    """Run the blocks as one script; the value of the expression `shown` at its end, and all that was printed."""
    folder.mkdir(exist_ok=True)
    answer = folder / "answer.json"
    script = folder / "notebook.py"
    script.write_text(
        "\n".join([*blocks, f"import json\nwith open({str(answer)!r}, 'w') as f: json.dump({shown}, f)\n"])
    )
    done = subprocess.run(
        [sys.executable, script],
        cwd=folder,
        env=os.environ | environ,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return json.loads(answer.read_text()), done.stdout
