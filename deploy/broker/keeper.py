"""A program that keeps one broker: it starts Java and ends it when its owner is gone.

    python -P keeper.py FOLDER owned      ends when its standard input does: the owner holds it
    python -P keeper.py FOLDER detached   ends by SIGTERM

The owner may die in any way, so nothing is left to it; and if the keeper itself is killed, the
kernel ends Java. For a quick start it imports only the standard library.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

END_S = 30.0
"""How long a broker may take to end before it is killed."""
SET_DEATH_SIGNAL = 1
CLEAN = (0, 128 + signal.SIGTERM)


def end_with_keeper() -> None:
    """In the new process, on Linux: the kernel sends SIGKILL when the keeper is gone."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(SET_DEATH_SIGNAL, signal.SIGKILL)


def keep(folder: Path, owned: bool) -> int:
    """Runs the command in `command.json` until it is to end."""
    command = json.loads((folder / "command.json").read_text(encoding="utf-8"))
    with (folder / "broker.log").open("ab") as log:
        java = subprocess.Popen(
            command["arguments"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder,
            preexec_fn=end_with_keeper,
            start_new_session=True,
        )
    (folder / "java.pid").write_text(str(java.pid), encoding="ascii")
    signal.signal(signal.SIGTERM, lambda *_: java.terminate())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the owner
    if owned:
        threading.Thread(target=await_end_of_input, args=(java,), daemon=True).start()
    status = java.wait()
    status = 128 - status if status < 0 else status
    made, wanted = command["archive"]
    if made and os.path.exists(made):
        if status in CLEAN:
            os.replace(made, wanted)  # another broker may have made the same
        else:
            os.unlink(made)
    return 0 if status in CLEAN else status


def await_end_of_input(java: subprocess.Popen[bytes]) -> None:
    while os.read(0, 4096):
        pass
    java.terminate()
    try:
        java.wait(END_S)
    except subprocess.TimeoutExpired:
        java.kill()


if __name__ == "__main__":
    sys.exit(keep(Path(sys.argv[1]), sys.argv[2] == "owned"))
