# SPDX-License-Identifier: Apache-2.0
"""tools/release refuses what must not be released, and puts what was built together. It runs in a small repository that
has the files it looks at, with programs that pretend to build."""

import os
import pathlib
import re
import shutil
import subprocess
import tarfile
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILES = ("tools/release", "tools/build.sh", "base/version.h", "client/python/quire/_version.py", "CHANGELOG.md",
         "download/quire-download", "tests/golden/proto/quire.v1.txt", "tests/golden/proto/released.txt")


# The programs that the script calls: what is asked for is installed, nothing is compiled, and there is one package. Its
# file begins with the text $CONTENT.
STUBS = {
    "dpkg-query": "echo install ok installed",
    "cmake": "mkdir -p build/package && touch build/package/build.ninja",
    "ninja": "true",
    "cpack": """
mkdir -p made/DEBIAN made/usr build/package/packages
for field in 'Package: quire' 'Version: 1.2.3' 'Architecture: all' 'Maintainer: a' 'Description: d'; do
  echo "$field" >>made/DEBIAN/control
done
echo "$CONTENT" >made/usr/file
head -c 4000000 /dev/zero >>made/usr/file
dpkg-deb -Znone --root-owner-group --build made build/package/packages/quire_1.2.3_all.deb""",
}


class ReleaseTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.repository = pathlib.Path(folder.name)
        for name in FILES:
            (self.repository / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.repository / name)
        (self.repository / "base/version.h").write_text('inline constexpr char kVersion[] = "1.2.3";\n')
        (self.repository / "client/python/quire/_version.py").write_text('VERSION = "1.2.3"\n')
        (self.repository / "download/quire-download").write_text('VERSION = "1.2.3"  # The same.\n')
        (self.repository / "CHANGELOG.md").write_text("## 1.2.3, 2026-01-31\n")
        for name in ("quire.v1.txt", "released.txt"):
            (self.repository / "tests/golden/proto" / name).write_text("message quire.v1.Guide\n")
        self.git("init", "-q")
        self.commit()

    def git(self, *arguments):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@localhost", *arguments], cwd=self.repository,
                       check=True, capture_output=True)

    def commit(self):
        self.git("add", "-A")
        self.git("commit", "-qm", "All files")

    def refusal(self, *arguments):
        done = subprocess.run(["tools/release", *arguments], cwd=self.repository, capture_output=True, text=True,
                              check=False, timeout=60)
        self.assertNotEqual(done.returncode, 0)
        return done.stderr

    def change(self, name, text):
        (self.repository / name).write_text(text)
        self.commit()

    def test_a_python_that_can_make_a_wheel_is_recognised(self):
        command = re.search(r"-c '(import google.*)'", (ROOT / "tools/release").read_text())[1]
        modules = "('google', 'google.protobuf', 'pip', 'setuptools', 'wheel')"
        there = f"import importlib.util as u, sys; sys.exit(0 if all(u.find_spec(m) for m in {modules}) else 1)"
        for python in ("python3", "/usr/bin/python3"):
            if shutil.which(python) and subprocess.run([python, "-c", there], check=False).returncode == 0:
                subprocess.run([python, "-c", command], check=True)

    def test_files_that_are_not_committed_are_refused(self):
        (self.repository / "new").write_text("")
        self.assertEqual(self.refusal(), "release: some files are not committed\n")

    def test_a_version_without_changes_or_without_a_date_is_refused(self):
        for text in ("## 1.2.2, 2026-01-31\n", "## 1.2.3, not released yet\n"):
            self.change("CHANGELOG.md", text)
            self.assertEqual(self.refusal(), 'release: CHANGELOG.md has no line "## 1.2.3, YYYY-MM-DD"\n')

    def test_a_python_package_of_another_version_is_refused(self):
        self.change("client/python/quire/_version.py", 'VERSION = "1.2.4"\n')
        self.assertIn("_version.py has another version than 1.2.3", self.refusal())

    def test_a_program_in_python_of_another_version_is_refused(self):
        self.change("download/quire-download", 'VERSION = "1.2.4"\n')
        self.assertIn("quire-download has another version than 1.2.3", self.refusal())

    def test_a_wire_that_later_versions_would_not_be_compared_with_is_refused(self):
        self.change("tests/golden/proto/quire.v1.txt", "message quire.v1.Guide\nmessage quire.v1.New\n")
        self.assertIn("tests/golden/proto/released.txt must be a copy of quire.v1.txt", self.refusal())

    def test_files_of_an_earlier_release_stay(self):
        (self.repository.parent / f"{self.repository.name}.out").mkdir()
        out = self.repository.parent / f"{self.repository.name}.out"
        self.addCleanup(shutil.rmtree, out)
        self.assertEqual(self.refusal(str(out)), f"release: {out} exists already\n")

    def release(self, content, **broken):
        """Makes a release whose package has the text `content`. Returns the result and the folder of the release. A
        program of `broken` does what its text says."""
        stubs = self.repository.parent / f"{self.repository.name}.stubs"
        stubs.mkdir(exist_ok=True)
        self.addCleanup(shutil.rmtree, stubs, ignore_errors=True)
        for name, text in (STUBS | broken).items():
            (stubs / name).write_text(f"#!/bin/bash\n{text}\n")
            (stubs / name).chmod(0o755)
        for folder in ("client/python", "proto"):
            shutil.copytree(ROOT / folder, self.repository / folder, dirs_exist_ok=True,
                            ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
        (self.repository / "client/python/quire/_version.py").write_text('VERSION = "1.2.3"\n')
        (self.repository / ".gitignore").write_text("/build/\n/made/\n")
        self.git("add", "-A")
        self.git("commit", "-qm", "All files", "--allow-empty")
        environment = os.environ | {"PATH": f"{stubs}:{os.environ['PATH']}", "CONTENT": content}
        done = subprocess.run(["tools/release"], cwd=self.repository, env=environment, capture_output=True, text=True,
                              check=False, timeout=240)
        return done, self.repository / "build/release-1.2.3"

    @unittest.skipIf(shutil.which("dpkg-deb") is None, "dpkg-deb is missing")
    def test_a_release_has_the_sources_the_packages_and_their_checksums(self):
        done, folder = self.release("text")
        self.assertEqual(done.returncode, 0, done.stderr)
        names = {path.name for path in folder.iterdir()}
        wanted = {"quire-1.2.3.tar.gz", "quire_1.2.3_all.deb", "SHA256SUMS"}
        if "There is no wheel" not in done.stdout:
            wanted.add("quire_client-1.2.3-py3-none-any.whl")
        self.assertEqual(names, wanted)
        subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=folder, check=True, capture_output=True)
        self.assertEqual(len((folder / "SHA256SUMS").read_text().splitlines()), len(wanted) - 1)
        with tarfile.open(folder / "quire-1.2.3.tar.gz") as tar:
            self.assertIn("quire-1.2.3/base/version.h", tar.getnames())

    @unittest.skipIf(shutil.which("dpkg-deb") is None, "dpkg-deb is missing")
    def test_a_package_that_names_a_folder_of_this_machine_is_refused(self):
        done, _ = self.release(f"made in {self.repository.resolve()}/base")
        self.assertEqual(done.returncode, 1)
        self.assertIn("quire_1.2.3_all.deb names the folder", done.stderr)

    @unittest.skipIf(shutil.which("dpkg-deb") is None, "dpkg-deb is missing")
    def test_a_release_that_has_failed_can_be_made_again(self):
        old = "touch build/package/packages/quire_1.2.2_all.deb"  # Of an earlier version.
        for broken in ({"ninja": "exit 1"}, {"cpack": f"mkdir -p build/package/packages && {old} && exit 1"}):
            done, folder = self.release("text", **broken)
            self.assertNotEqual(done.returncode, 0)
            self.assertEqual([path.name for path in folder.parent.glob("release-*")], [])
        done, folder = self.release("text")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([path.name for path in folder.glob("*.deb")], ["quire_1.2.3_all.deb"])
        self.assertNotIn("1.2.2", (folder / "SHA256SUMS").read_text())
        self.assertEqual(folder.stat().st_mode & 0o777, 0o755)

    def test_wrong_arguments_print_the_usage(self):
        for arguments in (["--fast"], ["a", "b"]):
            self.assertIn("tools/release [FOLDER]", self.refusal(*arguments))


if __name__ == "__main__":
    unittest.main()
