# SPDX-License-Identifier: Apache-2.0
"""Starts programs, for tests and other scripts in Python."""

import re
import subprocess
import threading


class Program:
    """A program that runs until the stack closes. It is waited for until it prints a line that matches `line`; `found`
    is the first group of the match, and `printed` has all lines so far. The options go to Popen."""

    def __init__(self, stack, arguments, line, **options):
        self.process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True, **options)
        stack.callback(self.end)
        self.printed = []
        self.reader = None
        for text in self.process.stdout:
            self.printed.append(text)
            if match := re.search(line, text):
                self.found = match.group(1)
                # The rest must be read, otherwise the pipe would fill up and the program would stop.
                self.reader = threading.Thread(target=lambda: self.printed.extend(self.process.stdout), daemon=True)
                self.reader.start()
                return
        raise AssertionError(f"{arguments[0]} has ended: {''.join(self.printed)}")

    def end(self):
        """Kills the program."""
        self.process.kill()
        self.process.wait()
        if self.reader is not None:
            self.reader.join()
        self.process.stdout.close()


def start(stack, arguments, line, **options):
    """Starts a program, and returns the first group of the line that matched."""
    return Program(stack, arguments, line, **options).found
