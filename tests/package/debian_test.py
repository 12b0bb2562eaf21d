# SPDX-License-Identifier: Apache-2.0
"""Makes the Debian packages, unpacks them into an empty folder, and uses what they have. The argument is the build
folder. Without the tools of Debian it is skipped (exit code 77)."""

import contextlib
import gzip
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import installed_tree
from installed_tree import PROMPT, ROOT, run

SKIPPED = 77
TOOLS = ("cpack", "dpkg-deb", "dpkg-shlibdeps", "file")
SERVICES = {"quire-manager": "manager", "quire-worker": "worker", "quire-openai": "openai"}
# systemd's judgement of the units, from 0 (safe) to 10. Units without any protection have 9.6.
MOST_EXPOSURE = 2.0


class Package:
    """A package, unpacked into the folder `tree`."""

    def __init__(self, path, tree):
        self.tree = tree
        run("dpkg-deb", "-x", path, tree)
        self.control = pathlib.Path(f"{tree}.control")
        run("dpkg-deb", "-e", path, self.control)
        text = (self.control / "control").read_text()
        self.fields = dict(re.findall(r"^([A-Za-z-]+): *(.*)$", text, re.MULTILINE))
        # One line for each file: its mode, its owner and its name.
        self.files = [(line.split()[0], line.split()[1], line.split()[5][1:])
                      for line in run("dpkg-deb", "-c", path).splitlines()]

    def needs(self):
        return {entry.split()[0] for entry in self.fields.get("Depends", "").split(", ")}


class DebianTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.stack = contextlib.ExitStack()
        cls.addClassCleanup(cls.stack.close)
        cls.folder = pathlib.Path(cls.stack.enter_context(tempfile.TemporaryDirectory()))
        run("cpack", "--config", BUILD / "CPackConfig.cmake", "-B", cls.folder / "made", cwd=cls.folder)
        cls.packages = {}
        for path in (cls.folder / "made").glob("*.deb"):
            name = path.name.split("_")[0]
            cls.packages[name] = Package(path, cls.folder / name)
        cls.quire = cls.packages["quire"]

    def unit(self, service):
        """Returns the text of a unit."""
        return (self.quire.tree / f"usr/lib/systemd/system/{service}.service").read_text()

    def command(self, service):
        """Returns the command of a unit, with the paths of the unpacked package."""
        (command,) = re.findall(r"^ExecStart=(.*)$", self.unit(service), re.MULTILINE)
        return re.sub(r"(^|=)(/usr|/etc)", rf"\1{self.quire.tree}\2", command, flags=re.MULTILINE).split()

    def test_there_is_a_package_for_each_component(self):
        self.assertLessEqual({"quire", "libquire-client-dev"}, set(self.packages))
        version = re.search(r'"([0-9.]+)"', (ROOT / "base/version.h").read_text())[1]
        for name, package in self.packages.items():
            self.assertEqual((package.fields["Package"], package.fields["Version"]), (name, version))

    def test_packages_need_the_libraries_that_they_use(self):
        needed = self.quire.needs()
        for library in ("libc6", "libgrpc\\+\\+", "libprotobuf", "libabsl", "libprometheus-cpp-core", "libpcre2-8-0"):
            self.assertTrue(any(re.match(library, name) for name in needed), (library, needed))
        self.assertFalse([name for name in needed if re.search("cuda|cublas|gtest|gmock", name)])
        self.assertLessEqual({"libgrpc++-dev", "libprotobuf-dev", "libabsl-dev", "libssl-dev"},
                             self.packages["libquire-client-dev"].needs())

    def test_files_belong_to_root_and_only_programs_can_be_executed(self):
        for package in self.packages.values():
            for mode, owner, path in package.files:
                self.assertEqual(owner, "root/root", path)
                is_program = mode.startswith("d") or path.startswith("/usr/bin/")
                self.assertEqual(mode[1:], "rwxr-xr-x" if is_program else "rw-r--r--", path)

    def test_packages_have_a_licence_and_files_only_where_packages_may(self):
        for name, package in self.packages.items():
            paths = {path for _, _, path in package.files}
            self.assertIn(f"/usr/share/doc/{name}/copyright", paths)
            for path in paths:
                self.assertRegex(path, r"\A/(usr/(bin|include|lib|share)/|usr/\Z|usr\Z|etc/quire/|etc/\Z|\Z)")

    def test_the_maintainer_has_an_address(self):
        for package in self.packages.values():
            self.assertRegex(package.fields["Maintainer"], r"^[^<>]+ <[^<> @]+@[^<> @]+>$")

    def installed_programs(self):
        return sorted(path.name for path in (self.quire.tree / "usr/bin").iterdir())

    def test_each_program_has_a_manual_page_with_its_flags(self):
        folder = self.quire.tree / "usr/share/man/man1"
        self.assertEqual({path.name for path in folder.iterdir()},
                         {f"{name}.1.gz" for name in self.installed_programs()})
        for name in self.installed_programs():
            page = gzip.decompress((folder / f"{name}.1.gz").read_bytes()).decode()
            self.assertRegex(page, rf"\n\.SH NAME\n{name.replace('-', '.*-')} \\- [a-z]")
            flags = re.findall(r"^ +(?:-[a-z],)? ?(--[a-z-]+)", run(self.quire.tree / "usr/bin" / name, "--help"),
                               re.MULTILINE)
            self.assertTrue(flags or name == "quire")
            for flag in flags:
                self.assertIn(flag.replace("-", "\\-"), page)
            if shutil.which("groff") is not None:
                done = subprocess.run(["groff", "-man", "-Tutf8", "-ww"], input=page, capture_output=True, text=True,
                                      check=True)
                self.assertEqual(done.stderr, "", name)

    def completed(self, *words):
        """Returns what bash offers for the last one of the words of a command line."""
        script = self.quire.tree / f"usr/share/bash-completion/completions/{words[0]}"
        line = " ".join(f"'{word}'" for word in words)
        function = "_" + words[0].replace("-", "_")
        return run("bash", "-c", f"source {script}; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; {function}; "
                   'printf "%s\\n" "${COMPREPLY[@]}"').split()

    def test_shells_complete_the_flags(self):
        self.assertEqual(self.completed("quire-worker", "--kv-b"), ["--kv-bytes"])
        self.assertEqual(self.completed("quire", "se"), ["serve"])
        self.assertEqual(self.completed("quire", "serve", "--worker.kv-b"), ["--worker.kv-bytes"])
        self.assertEqual(self.completed("quire", "serve", "--quantize"), ["--quantize"])
        self.assertEqual(self.completed("quirectl", "gen"), ["generate"])
        self.assertEqual(self.completed("quire-download", "--if"), ["--if-missing"])
        share = self.quire.tree / "usr/share"
        for folder, form in (("bash-completion/completions", "{}"), ("zsh/vendor-completions", "_{}"),
                             ("fish/vendor_completions.d", "{}.fish")):
            self.assertEqual({path.name for path in (share / folder).iterdir()},
                             {form.format(name) for name in self.installed_programs()})
        for shell, folder in (("zsh", "zsh/vendor-completions"), ("fish", "fish/vendor_completions.d")):
            if shutil.which(shell) is not None:
                for path in (share / folder).iterdir():
                    run(shell, "-n", path)

    def test_links_between_the_documents_lead_somewhere(self):
        folder = self.quire.tree / "usr/share/doc/quire"
        pages = list((folder / "docs").glob("*.md"))
        self.assertGreater(len(pages), 15)
        for page in pages:
            for link in re.findall(r"\]\(([a-z_]+\.(?:md|png))[#)]", page.read_text()):
                self.assertTrue((page.parent / link).exists(), f"{page.name}: {link}")

    def test_the_configuration_belongs_to_the_operator(self):
        conffiles = (self.quire.control / "conffiles").read_text().split()
        self.assertEqual(sorted(conffiles), sorted(path for _, _, path in self.quire.files
                                                   if path.startswith("/etc/") and not path.endswith("/")))
        for script in ("postinst", "prerm", "postrm"):
            path = self.quire.control / script
            self.assertTrue(os.access(path, os.X_OK))
            run("sh", "-n", path)
            self.assertNotRegex(path.read_text(), r"systemctl (re)?start|enable --now")

    def test_no_program_looks_for_libraries_in_a_folder_of_its_own(self):
        for program in (*SERVICES, "quire", "quire-quantize", "quirectl"):
            dynamic = run("objdump", "-p", self.quire.tree / "usr/bin" / program)
            self.assertNotRegex(dynamic, "RPATH|RUNPATH")

    def test_no_text_names_a_folder_of_this_machine(self):
        for package in self.packages.values():
            for path in package.tree.rglob("*"):
                if path.is_file() and path.suffix in (".cmake", ".h", ".pc", ".py", ".pyi", ".service", ".yaml"):
                    for folder in (str(ROOT), str(BUILD), str(self.folder)):
                        self.assertNotIn(folder, path.read_text(encoding="utf-8"), path)

    def test_the_programs_tell_a_story(self):
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            endpoint, story = installed_tree.serve(stack, self.quire.tree / "usr", folder)
            self.assertGreater(len(story.split()), 10)
            if "python3-quire" not in self.packages:
                self.skipTest("the build has found no Python with protobuf, so only the story was told")
            modules = self.packages["python3-quire"].tree / "usr/lib/python3/dist-packages"
            if subprocess.run(["/usr/bin/python3", "-c", "import grpc"], capture_output=True, check=False).returncode:
                self.skipTest("/usr/bin/python3 has no gRPC, so only the story was told")
            told = run("/usr/bin/python3", "-B", "-m", "quire", PROMPT, endpoint, "-t", "0", "-n", "40",
                       env=os.environ | {"PYTHONPATH": str(modules)})
            self.assertEqual(told, story + "\n")

    def test_the_downloader_runs_with_the_python_that_the_package_recommends(self):
        self.assertIn("python3", self.quire.fields["Recommends"].split(", "))
        program = self.quire.tree / "usr/bin/quire-download"
        self.assertIn("usage: quire-download", run("/usr/bin/python3", "-I", program, "--help"))

    def test_each_service_accepts_its_configuration_and_refuses_a_wrong_one(self):
        for service, name in SERVICES.items():
            with self.subTest(service):
                state = self.folder / f"state/{service}"
                state.mkdir(parents=True)
                for prepare in re.findall(r"^ExecStartPre=/bin/sh -c '(.*)'$", self.unit(service), re.MULTILINE):
                    run("sh", "-c", prepare.replace("%S", str(state.parent)))
                command = [word.replace("%S", str(state.parent)) for word in self.command(service)]
                run(*command, "--check-config")
                wrong = self.folder / f"{name}.yaml"
                wrong.write_text((self.quire.tree / f"etc/quire/{name}.yaml").read_text() + "lissten: x\n")
                refused = subprocess.run([command[0], f"--config={wrong}"], capture_output=True, text=True, check=False)
                self.assertEqual(refused.returncode, 2, refused.stderr)
                self.assertIn("unknown key lissten", refused.stderr)
                self.assertIn("\nRestartPreventExitStatus=2\n", self.unit(service))

    def test_a_commented_line_of_a_configuration_is_a_flag(self):
        for service, name in SERVICES.items():
            text = (self.quire.tree / f"etc/quire/{name}.yaml").read_text()
            help_text = run(self.quire.tree / "usr/bin" / service, "--help")
            for key in re.findall(r"^(?:# )?([a-z_]+): ", text, re.MULTILINE):
                self.assertIn(f"--{key.replace('_', '-')}", help_text, (service, key))

    def test_units_give_programs_the_time_to_drain(self):
        for service in SERVICES:
            seconds = int(re.search(r"^TimeoutStopSec=(\d+)s$", self.unit(service), re.MULTILINE)[1])
            drain = re.search(r"--drain-timeout=(\d+)s", run(self.quire.tree / "usr/bin" / service, "--help"))
            self.assertGreater(seconds, int(drain[1]))

    def test_the_manager_may_compile_patterns_of_tokenizers(self):
        self.assertIn("\nMemoryDenyWriteExecute=no\n", self.unit("quire-manager"))

    def test_systemd_accepts_the_units_and_finds_them_safe(self):
        if shutil.which("systemd-analyze") is None:
            self.skipTest("systemd-analyze is missing")
        for service in SERVICES:
            # The programs are not installed on this machine, so the units name the programs in the package's folder.
            unit = self.folder / f"{service}.service"
            unit.write_text(self.unit(service).replace("=/usr/", f"={self.quire.tree}/usr/"))
            done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True,
                                  check=False)
            complaints = [line for line in done.stderr.splitlines() if service in line]
            self.assertEqual(complaints, [])
            judged = subprocess.run(["systemd-analyze", "security", "--offline=true", "--no-pager", unit],
                                    capture_output=True, text=True, check=False)
            found = re.search(r"exposure level for \S+: ([0-9.]+)", judged.stdout)
            if found is None:
                self.skipTest(f"systemd-analyze does not judge units without systemd: {judged.stderr}")
            self.assertLessEqual(float(found[1]), MOST_EXPOSURE)


if __name__ == "__main__":
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        print(f"skipped: {', '.join(missing)} is missing (Debian: cmake dpkg dpkg-dev file)")
        sys.exit(SKIPPED)
    BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
