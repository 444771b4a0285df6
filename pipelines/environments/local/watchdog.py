"""Wakes the processes that a drill has frozen, if the process that froze them ends first.

    python -I -S watchdog.py SECONDS OWNER VICTIM...

OWNER and VICTIM are pidfds that it inherits, so that no other process can be meant. It wakes the victims when
the owner ends or the seconds are over, and ends itself then, or when no victim is left. Nothing but the
standard library, for the memory that it takes.
"""

import select
import signal
import sys
import time


def main(arguments: list[str]) -> None:
    """Wait, wake, end."""
    until = time.monotonic() + float(arguments[0])
    owner, *victims = map(int, arguments[1:])
    ends = select.poll()  # a pidfd can be read once its process has ended
    for handle in (owner, *victims):
        ends.register(handle, select.POLLIN)
    living = set(victims)
    while living and (left_s := until - time.monotonic()) > 0.0:
        ended = {handle for handle, _ in ends.poll(1000.0 * left_s)}
        if owner in ended:
            break
        for handle in ended:
            ends.unregister(handle)
        living -= ended
    for handle in reversed(victims):
        try:
            signal.pidfd_send_signal(handle, signal.SIGCONT)
        except ProcessLookupError:
            continue


if __name__ == "__main__":
    main(sys.argv[1:])
