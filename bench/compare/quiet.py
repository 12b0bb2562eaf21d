# SPDX-License-Identifier: Apache-2.0
"""Measures how much other programs ran on the machine during a measurement."""

import os
import pathlib
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


def group_seconds(group):
    """Returns the CPU time of all processes of a process group that have not ended."""
    ticks = 0
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # The process has ended.
            continue
        if int(fields[2]) == group:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / TICKS


def wait_for_idle(limit_s):
    """Waits until other processes use less than a tenth of a core, but at most `limit_s` seconds."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        before = busy_seconds()
        time.sleep(0.7)
        if busy_seconds() - before < 0.07:
            return


class ForeignShare:
    """A context that measures which share of the machine other processes used. Children must end before the context,
    or `engine_seconds` must tell their CPU time."""

    def __init__(self, engine_seconds=lambda: 0.0):
        self.engine_seconds = engine_seconds

    def _clocks(self):
        return time.monotonic(), busy_seconds(), own_seconds() + self.engine_seconds()

    def __enter__(self):
        self.start = self._clocks()
        return self

    def __exit__(self, *_):
        wall, busy, own = (now - then for now, then in zip(self._clocks(), self.start))
        self.share = max(0.0, busy - own) / (wall * os.cpu_count())
