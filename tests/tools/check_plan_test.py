# SPDX-License-Identifier: Apache-2.0
"""tools/check_plan decides from the changed files alone what ./check and ./check --quick run."""

import importlib.machinery
import importlib.util
import pathlib
import re
import subprocess
import tempfile
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
LOADER = importlib.machinery.SourceFileLoader("check_plan", str(ROOT / "tools/check_plan"))
check_plan = importlib.util.module_from_spec(importlib.util.spec_from_loader("check_plan", LOADER))
LOADER.exec_module(check_plan)


def planted(path):
    """Names and sources of the planted bugs of a list."""
    return re.findall(r"^=== (\S+) (\S+)", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)


class ListTest(unittest.TestCase):
    """What ./check runs."""

    @classmethod
    def setUpClass(cls):
        # The includes of the repository are read once.
        includes = check_plan.includes_of(ROOT)
        patch = unittest.mock.patch.object(check_plan, "includes_of", lambda root: includes)
        patch.start()
        cls.addClassCleanup(patch.stop)

    def plan(self, *changed, **options):
        return check_plan.plan_list(ROOT, list(changed), **options)

    def test_a_change_of_the_scheduler_tries_it_and_what_stands_on_it(self):
        plan = self.plan("scheduler/scheduler.cc")
        self.assertEqual(plan["asan"], ["scheduler", "kv_manager/engine"])
        self.assertEqual(plan["tsan"], ["kv_manager/engine"])
        self.assertEqual((plan["cuda"], plan["gpu"]), (["OFF"], []))
        sources = dict(planted("tests/sim/mutants/mutants.txt"))
        self.assertEqual(len(plan["bugs"]), check_plan.MAX_BUGS)
        self.assertEqual({sources[name.removeprefix("mutant_")] for name in plan["bugs"]}, {"scheduler/scheduler.cc"})

    def test_a_test_counts_as_a_change_of_the_folder_that_it_tests(self):
        self.assertEqual(self.plan("tests/grammar/matcher_test.cc")["asan"], ["grammar", "kv_manager/requests"])

    def test_a_change_of_documents_runs_only_what_every_change_runs(self):
        self.assertEqual(self.plan("docs/testing.md", "README.md", ".ci/passed_commit"),
                         {"asan": [], "asan_left": [], "tsan": [], "tsan_left": [], "cuda": ["OFF"], "gpu": [],
                          "bugs": []})

    def test_the_order_of_the_files_does_not_matter(self):
        files = ["worker/executor.cc", "grammar/nfa.cc", "kernels/cuda/score.h", "kv_manager/blocks/block_pool.cc"]
        self.assertEqual(self.plan(*files), self.plan(*reversed(files)))

    def test_a_change_of_everything_stays_within_the_bounds_and_names_the_rest(self):
        for plan in (self.plan(everything=True), self.plan("CMakeLists.txt")):
            for sanitizer, costs, limit in (
                    ("asan", check_plan.SANITIZED, check_plan.MAX_SANITIZED_SECONDS),
                    ("tsan", check_plan.THREADED, check_plan.MAX_THREADED_SECONDS)):
                self.assertGreater(len(plan[sanitizer]), 1)
                self.assertLessEqual(sum(costs[folder] for folder in plan[sanitizer]), limit)
                self.assertGreater(len(plan[sanitizer + "_left"]), 1)
                self.assertLessEqual(set(plan[sanitizer] + plan[sanitizer + "_left"]), set(costs))
            self.assertLessEqual(len(plan["bugs"]), check_plan.MAX_BUGS)
            for prefix in check_plan.PLANTED:
                self.assertTrue(any(name.startswith(prefix) for name in plan["bugs"]), prefix)
            self.assertEqual((plan["cuda"], plan["gpu"]), (["ON"], ["yes"]))

    def test_all_leaves_nothing_out(self):
        plan = self.plan(take_all=True)
        self.assertEqual(set(plan["asan"]), set(check_plan.SANITIZED))
        self.assertEqual(set(plan["tsan"]), set(check_plan.THREADED))
        self.assertEqual(set(plan["bugs"]), {prefix + name for prefix, path in check_plan.PLANTED.items()
                                             for name, _ in planted(path)})

    def test_bugs_in_the_changed_file_come_before_those_of_its_folder(self):
        bugs = self.plan("scheduler/step_budget.cc", "worker/model/shard.cc")["bugs"]
        sources = dict(planted("tests/worker/model/mutants/mutants.txt"))
        own = {"rank_mutant_" + name for name, source in sources.items() if source == "worker/model/shard.cc"}
        self.assertGreater(len(own), 0)
        self.assertLessEqual(own, set(bugs))
        # Two lists have bugs for this change, and share the places.
        self.assertEqual(len([name for name in bugs if name.startswith("rank_mutant_")]), check_plan.MAX_BUGS // 2)

    def test_headers_that_device_code_includes_are_gpu_code(self):
        self.assertEqual(self.plan("kernels/cuda/score.h")["gpu"], ["yes"])
        self.assertEqual(self.plan("kernels/types.h")["gpu"], ["yes"])
        self.assertEqual(self.plan("kernels/cpu/linear.cc")["gpu"], [])

    def test_the_tables_name_folders_of_the_repository(self):
        folders = set(check_plan.SANITIZED) | set(check_plan.THREADED) | set(check_plan.STANDS_ON)
        for folder in folders.union(*check_plan.STANDS_ON.values()):
            self.assertTrue((ROOT / folder).is_dir() or (ROOT / "tests" / folder).is_dir(), folder)
        self.assertLessEqual({over for above in check_plan.STANDS_ON.values() for over in above},
                             set(check_plan.SANITIZED))


class QuickTest(unittest.TestCase):
    """What ./check --quick builds and tests, in a small repository that has been built in part."""

    SOURCES = {
        "a/a.h": "",
        "a/a.cc": '#include "a/a.h"\n',
        "b/b.cc": '#include "a/a.h"\n',
        "tests/a/a_test.cc": '#include "a/a.h"\n',
        "build/release/a/Unity/unity_0_cxx.cxx": '#include "ROOT/a/a.cc"\n',
        "build/release/build.ninja": """
build a/a.o: CXX_COMPILER__a ROOT/build/release/a/Unity/unity_0_cxx.cxx || gen
build a/liba.a: CXX_STATIC_LIBRARY_LINKER__a a/a.o
build b/b.o: CXX_COMPILER__b ROOT/b/b.cc || gen
build tests/a_test.o: CXX_COMPILER__a_test ROOT/tests/a/a_test.cc
build tests/a_test: CXX_EXECUTABLE_LINKER__a_test tests/a_test.o | a/liba.a
build bin/program: CXX_EXECUTABLE_LINKER__program b/b.o | a/liba.a
build bin/other: CXX_EXECUTABLE_LINKER__other | a/liba.a
build bin/bug: CXX_EXECUTABLE_LINKER__bug a/a.o
build gen.h: CUSTOM_COMMAND ROOT/proto/p.proto
build gen: phony gen.h
build all: phony tests/a_test bin/program bin/other
""",
        "build/release/tests.txt": "a_test|a_test|a threaded\nb_test|program|b\nslow_test|other|a slow\n"
                                   "tables_test|other|b documents\ntidy_test|tidy_test|tests documents\n",
        "build/release/bin/program": "",
    }

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for path, text in self.SOURCES.items():
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            (self.root / path).write_text(text.replace("ROOT", folder.name), encoding="utf-8")

    def plan(self, *changed):
        return check_plan.plan_quick(self.root, self.root / "build/release", list(changed))

    def test_a_source_is_compiled_and_the_tests_of_its_folder_run(self):
        plan = self.plan("a/a.cc")
        self.assertEqual(plan["tests"], [r"^(a_test|tidy_test)$"])
        self.assertLessEqual({"a_test", "a/a.o", "tidy_test"}, set(plan["targets"]))
        self.assertNotIn("b/b.o", plan["targets"])

    def test_what_exists_is_kept_up_to_date_and_the_rest_is_not_linked(self):
        targets = self.plan("a/a.cc")["targets"]
        self.assertIn("bin/program", targets)
        self.assertNotIn("bin/other", targets)
        self.assertNotIn("bin/bug", targets)  # "all" does not need it.
        self.assertNotIn("a/Unity/unity_0_cxx.cxx", targets)  # Only configuring makes it.

    def test_what_includes_a_changed_header_is_compiled(self):
        self.assertLessEqual({"a/a.o", "b/b.o", "tests/a_test.o"}, set(self.plan("a/a.h")["targets"]))

    def test_what_waits_for_a_generated_file_is_compiled(self):
        self.assertLessEqual({"a/a.o", "b/b.o"}, set(self.plan("proto/p.proto")["targets"]))

    def test_documents_run_the_tests_of_generated_documents(self):
        self.assertEqual(self.plan("docs/x.md")["tests"], [r"^(tables_test|tidy_test)$"])

    def test_the_build_files_reach_everything(self):
        plan = self.plan("CMakeLists.txt")
        self.assertEqual(plan["targets"], ["all"])
        self.assertEqual(plan["tests"], [r"^(a_test|b_test|tables_test|tidy_test)$"])

    def test_a_folder_without_tests_is_named(self):
        self.assertEqual(self.plan("strange/file.cc")["missing"], ["strange"])

    def test_tests_with_threads_are_chosen_by_label(self):
        build = self.root / "build/release"
        self.assertEqual(check_plan.plan_tests(build, ["a", "b"], threaded=True),
                         {"targets": ["a_test"], "tests": ["^(a_test)$"]})
        run = subprocess.run([ROOT / "tools/check_plan", "tests", "--build", build, "--threaded", "a", "b"],
                             capture_output=True, text=True, check=True)
        self.assertEqual(run.stdout, "targets a_test\ntests ^(a_test)$\n")


if __name__ == "__main__":
    unittest.main()
