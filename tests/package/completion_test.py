# SPDX-License-Identifier: Apache-2.0
"""Completes command lines in zsh and fish, as a person does with the Tab key, with the scripts that are installed. The
argument is the folder of our programs. Without both shells it is skipped (exit code 77)."""

import contextlib
import os
import pathlib
import pty
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = 77
TIMEOUT_S = 60
PROGRAMS = ["quire", "quire-download", "quire-manager", "quire-openai", "quire-quantize", "quire-worker", "quirectl"]
# What has been typed, and what the one completion makes of it.
LINES = [
    ("quire se", "quire serve"),
    ("quire serve --worker.kv-b", "quire serve --worker.kv-bytes"),
    ("quire-worker --kv-b", "quire-worker --kv-bytes"),
    ("quire-worker --quantize-outp", "quire-worker --quantize-output"),
    ("quire-manager --status-p", "quire-manager --status-page"),
    ("quire-openai --reas", "quire-openai --reasoning-format"),
    ("quire-quantize --outp", "quire-quantize --output"),
    ("quire-download --if", "quire-download --if-missing"),
    ("quire-download --retry", "quire-download --retry-wait"),
    ("quirectl gen", "quirectl generate"),
    ("quirectl --endp", "quirectl --endpoint"),
    ("quirectl generate --max-t", "quirectl generate --max-tokens"),
    ("quirectl --endpoint a:1 status -o js", "quirectl --endpoint a:1 status -o json"),
    ("quirectl completion z", "quirectl completion zsh"),
]


class Zsh:
    """An interactive zsh with the scripts of a folder. `setup` is run after its completion has begun."""

    def __init__(self, home, folder, setup=""):
        self.answer = home / "answer"
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            environment = os.environ | {"TERM": "dumb", "HOME": str(home), "ZDOTDIR": str(home),
                                        "PATH": f"{BIN}:{os.environ['PATH']}"}
            os.execvpe("zsh", ["zsh", "-f", "-i"], environment)
        # Control-X writes down the line that is being typed, and Control-U deletes it.
        self.type(f"fpath=({folder} $fpath); autoload -Uz compinit; compinit -u -D; {setup}; "
                  f"show() {{ print -r -- \"$BUFFER\" > {self.answer} }}; zle -N show; bindkey '^X' show; "
                  f"bindkey '^U' kill-whole-line; print > {self.answer}\n")
        self.wait()

    def type(self, text):
        os.write(self.fd, text.encode())

    def wait(self):
        """Waits until the shell has written its answer. Returns it."""
        end, screen = time.monotonic() + TIMEOUT_S, b""
        while not (self.answer.exists() and self.answer.read_text().endswith("\n")):
            if time.monotonic() > end:
                raise AssertionError(f"zsh does not answer: {screen!r}")
            if select.select([self.fd], [], [], 0.02)[0]:
                screen += os.read(self.fd, 65536)
        text = self.answer.read_text().rstrip("\n")
        self.answer.unlink()
        return text

    def complete(self, line):
        self.type(f"{line}\t\x18")
        text = self.wait()
        self.type("\x15")
        return text

    def end(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)


class CompletionTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.stack = contextlib.ExitStack()
        cls.addClassCleanup(cls.stack.close)
        cls.folder = pathlib.Path(cls.stack.enter_context(tempfile.TemporaryDirectory()))
        subprocess.run([sys.executable, "-B", ROOT / "cmake/program_pages.py", cls.folder / "pages",
                        *(BIN / name for name in PROGRAMS)], check=True)

    def zsh(self, folder, setup=""):
        if shutil.which("zsh") is None:
            self.skipTest("zsh is not installed")
        home = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        shell = Zsh(home, folder, setup)
        self.addCleanup(shell.end)
        return shell

    def fish(self, script, line):
        """Returns {completion: description} of the last word."""
        if shutil.which("fish") is None:
            self.skipTest("fish is not installed")
        home = self.enterContext(tempfile.TemporaryDirectory())
        done = subprocess.run(["fish", "--no-config", "-c", f"source {script}; complete -C {line!r}"], check=True,
                              capture_output=True, text=True, timeout=TIMEOUT_S,
                              env=os.environ | {"HOME": home, "XDG_DATA_HOME": home, "XDG_CONFIG_HOME": home})
        self.assertEqual(done.stderr, "")
        return dict(line.partition("\t")[::2] for line in done.stdout.splitlines())

    def test_zsh_completes_what_is_typed(self):
        shell = self.zsh(self.folder / "pages/zsh")
        for line, completed in LINES:
            self.assertEqual(shell.complete(line).rstrip(" ="), completed)
        # A value may be a file.
        (self.folder / "some-model.gguf").touch()
        for line in (f"quire serve {self.folder}/some-m", f"quire-worker --model={self.folder}/some-m",
                     f"quirectl bench --trace {self.folder}/some-m"):
            self.assertEqual(shell.complete(line).rstrip(), f"{line}odel.gguf")

    def test_zsh_can_read_what_quirectl_prints(self):
        shell = self.zsh(self.folder, f"source <({BIN}/quirectl completion zsh)")
        self.assertEqual(shell.complete("quirectl gen").rstrip(), "quirectl generate")

    def test_fish_completes_what_is_typed(self):
        for line, completed in LINES:
            script = self.folder / f"pages/fish/{line.split()[0]}.fish"
            self.assertEqual(list(self.fish(script, line)), [completed.split()[-1]], line)

    def test_options_have_descriptions(self):
        for program in PROGRAMS:
            script = self.folder / f"pages/fish/{program}.fish"
            options = self.fish(script, f"{program} {'serve ' if program == 'quire' else ''}--")
            self.assertIn("--help", options)
            for name, description in options.items():
                self.assertGreater(len(description.split()), 2, f"{program} {name}: {description}")


if __name__ == "__main__":
    if shutil.which("zsh") is None and shutil.which("fish") is None:
        print("skipped: neither zsh nor fish is installed")
        sys.exit(SKIPPED)
    BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
