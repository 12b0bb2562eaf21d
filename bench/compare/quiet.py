# SPDX-License-Identifier: Apache-2.0
"""Measures how much other programs ran on the machine during a measurement."""

import os
import resource
import time

TICKS = os.sysconf("SC_CLK_TCK")


def busy_seconds():
    """Returns the CPU time of all processes of the machine."""
    with open("/proc/stat") as file:
        user, nice, system, _, _, irq, softirq = map(int, file.readline().split()[1:8])
    return (user + nice + system + irq + softirq) / TICKS


def own_seconds():
    """Returns the CPU time of this process and of its children that have ended."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def wait_for_idle(limit_s):
    """Waits until other processes use less than a tenth of a core, but at most `limit_s` seconds."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        before = busy_seconds()
        time.sleep(0.7)
        if busy_seconds() - before < 0.07:
            return


class ForeignShare:
    """A context that measures which share of the machine other processes used. Children must end before the context."""

    def __enter__(self):
        self.start = (time.monotonic(), busy_seconds(), own_seconds())
        return self

    def __exit__(self, *_):
        wall, busy, own = (now - then for now, then in
                           zip((time.monotonic(), busy_seconds(), own_seconds()), self.start))
        self.share = max(0.0, busy - own) / (wall * os.cpu_count())
