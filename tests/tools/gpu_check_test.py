# SPDX-License-Identifier: Apache-2.0
"""Tests tools/gpu_check --prebuilt with a bundle whose programs are short scripts."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
TIMEOUT_S = 300
ALL_TESTS = [f"{suite}.{test}" for suite in ("First", "Second/With") for test in ("A", "B/0", "C", "D", "E", "F")]
PRODUCT_TESTS = ["Fp8ProductTest.ResultsAreAddedAndRounded", "Fp8ProductTest.RowsAreRounded",
                 "Types/NewProductTest.Sums/0", "QuantizedBlocksTest.SplitsAreAdded"]
ALL_TESTS += PRODUCT_TESTS
FAMILIES = ["attention", "experts", "int8_kv", "rows", "sampling", "scales"]

# Lists its tests, counts how many of it run at the same time, and does with a test what the variable of that name says.
GPU_TEST = """#!/bin/bash
case $1 in
  --gtest_list_tests)
    printf 'First.\\n  A\\n  B/0  # GetParam() = 4\\n  C\\n  D\\n  E\\n  F\\n'
    printf 'Second/With.  # TypeParam = int\\n  A\\n  B/0\\n  C\\n  D\\n  E\\n  F\\n'
    printf 'Fp8ProductTest.\\n  ResultsAreAddedAndRounded\\n  RowsAreRounded\\n'
    printf 'Types/NewProductTest.\\n  Sums/0  # GetParam() = 1\\nQuantizedBlocksTest.\\n  SplitsAreAdded\\n'
    exit ;;
esac
test=${1#--gtest_filter=}
[ "$test" != '*NewMemory*' ] || { echo "no GPU here: there is none"; exit ${FIRST_TOUCH:-0}; }
[[ $test != ${HANGS:-} ]] || exec sleep 1000
mkdir -p $LOGS/running
touch $LOGS/running/$$
ls $LOGS/running | wc -l >>$LOGS/at_once
echo "$test exact=${QUIRE_GPU_EXACT:-0} overlap=${QUIRE_GPU_OVERLAP:-0}" >>$LOGS/ran
sleep 0.2
rm $LOGS/running/$$
[ "$test" != "${WRONG:-}" ]
"""
# Two tokens, each with its logprob and the two likeliest tokens. With a worker on the GPU, variable GPU has them.
QUIRECTL = """#!/bin/bash
if [ "$3" = health ]; then  # The worker beside this manager has begun, and it is not broken.
  worker=$(cat $LOGS/worker)
  [[ $worker == *"${2%/manager}/worker"* && $worker != *${BROKEN:-no such flag}* ]]
  exit
fi
second=${CPU:-'8 -0.50 8 -0.50 9 -0.55'}
if grep -q cuda $LOGS/worker; then second=${GPU:-$second}; fi
for token in '7 -0.25 7 -0.25 6 -3' "$second"; do
  [ "$token" != end ] || exit 0
  read -r id logprob first first_logprob other other_logprob <<<"$token"
  printf '{"logprobs":[{"chosen":{"token_id":%s,"logprob":%s,"token":"IA=="},"rank":1,"top":[' $id $logprob
  printf '{"token_id":%s,"logprob":%s},{"token_id":%s,"logprob":%s}]}]}\\n' $first $first_logprob $other $other_logprob
done
"""
PROGRAMS = {
    "tests/gpu_test": GPU_TEST,
    "bin/gpu_speed": '#!/bin/bash\necho "gpu_speed $*" >>$LOGS/calls\n'
                     'echo "a row of figures"\nexec sleep ${SPEED:-0}\n',
    "bin/gpu_step": '#!/bin/bash\necho "gpu_step $*" >>$LOGS/calls\n'
                    'echo "a row of steps"\nexec sleep ${STEP:-0}\n',
    "bin/quire-worker": '#!/bin/bash\necho "$*" | tee -a $LOGS/workers >$LOGS/new_worker\n'
                        'mv $LOGS/new_worker $LOGS/worker\n'
                        '[[ $* != *${BROKEN:-no such flag}* ]] || exit 1\nexec sleep 1000\n',
    "bin/quire-manager": "#!/bin/bash\nexec sleep 1000\n",
    "bin/quirectl": QUIRECTL,
    "bin/quire-quantize": '#!/bin/bash\necho "quantize $*" >>$LOGS/calls\n'
                          '[ -z "${NO_FP8:-}" ] || exit 1\nmkdir "${2#--output=}"\n',
    # Programs of the machine.
    "path/ldd": '#!/bin/bash\necho "  libx.so => $BUNDLE/bin/../lib/libx.so (0x1)"\n'
                'echo "  libc.so.6 => /lib/libc.so.6 (0x2)"\n'
                'echo "  libcublasLt.so.13 => ${CUBLAS:-$BUNDLE/cublas/libcublasLt.so.13} (0x3)"\n'
                '[ -z "${LIBRARY:-}" ] || echo "  $LIBRARY"\n',
    "path/compute-sanitizer": '#!/bin/bash\necho "sanitizer $*" >>$LOGS/calls\n'
                               '[ "$1" != "${SANITIZER:-}" ] || { echo "a hazard"; exit 99; }\n'
                               'exec sleep ${SANITIZER_SECONDS:-0}\n',
    "path/ncu": '#!/bin/bash\necho "ncu $*" >>$LOGS/calls\necho "  Duration  12 us"\n',
    "path/python3": "#!/bin/bash\nexit 1\n",
    "path/nvidia-smi": '#!/bin/bash\n[ -z "${NO_SMI:-}" ] || exit 9\n'
                       'echo "a made-up GPU, driver 580.1, 80000 MiB"\n',
}


class GpuCheckTest(unittest.TestCase):

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)
        self.bundle = self.root / "bundle"
        for name, text in PROGRAMS.items():
            path = self.bundle / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o755)
        (self.bundle / "tools").mkdir()
        for name in ("gpu_check", "gpu_tests.sh", "gpu_run.sh", "served_pair.sh", "timed_steps.sh"):
            shutil.copy(SOURCE / "tools" / name, self.bundle / "tools")
        (self.bundle / "gpu_tests.txt").write_text("".join(f"{test}\n" for test in ALL_TESTS))
        (self.bundle / "VERSION").write_text("Quire 9.8.7, commit 0123abcd\n")
        cublas = self.bundle / "cublas/libcublasLt.so.13.1.0.3"
        cublas.parent.mkdir()
        cublas.touch()
        cublas.with_name("libcublasLt.so.13").symlink_to(cublas.name)
        self.logs = self.root / "logs"
        self.logs.mkdir()

    def tearDown(self):
        self.folder.cleanup()

    def start(self, *arguments, program="bundle/tools/gpu_check", **variables):
        environment = dict(os.environ, LOGS=str(self.logs), BUNDLE=str(self.bundle), **variables)
        environment["PATH"] = f"{self.bundle}/path:{environment['PATH']}"
        return subprocess.Popen([program, *arguments], cwd=self.root, env=environment,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)

    def check(self, *arguments, code, **variables):
        process = self.start(*arguments, **variables)
        said = process.communicate(timeout=TIMEOUT_S)[0]
        self.assertEqual(process.returncode, code, said)
        return said

    def calls(self):
        return (self.logs / "calls").read_text().splitlines()

    def report(self):
        path = self.root / "results/report.txt"
        return path.read_text() if path.exists() else ""

    def test_without_a_gpu_it_checks_the_bundle_and_serves_on_the_cpu(self):
        said = self.check("--prebuilt", "results", code=77, FIRST_TOUCH="77")
        for line in ("right  every library is found", "right  every test is listed", "no GPU here: there is none",
                     "right  the model in the box on the CPU", "not begun: tests",
                     "all that was run is right, 5 parts were not begun;"):
            self.assertIn(line, said)
            self.assertIn(line, self.report())
        self.assertFalse((self.logs / "ran").exists())

    def test_a_library_that_is_not_in_the_bundle_is_an_error(self):
        for library in ("liby.so => not found", "liby.so => /usr/lib/liby.so (0x3)"):
            said = self.check("--prebuilt", "results", code=1, FIRST_TOUCH="77", LIBRARY=library)
            self.assertIn(library, said)

    def test_another_list_of_tests_is_an_error(self):
        (self.bundle / "gpu_tests.txt").write_text("First.A\n")
        said = self.check("--prebuilt", "results", code=1, FIRST_TOUCH="77")
        self.assertIn("WRONG  every test is listed", said)

    def test_every_test_runs_once_in_each_way_and_at_most_eight_at_a_time(self):
        self.check("--prebuilt", "results", "tests", code=0)
        wanted = [f"{test} exact={exact} overlap={overlap}" for test in ALL_TESTS
                  for exact, overlap in ((0, 0), (1, 0), (0, 1))]
        self.assertEqual(sorted((self.logs / "ran").read_text().splitlines()), sorted(wanted))
        at_once = [int(line) for line in (self.logs / "at_once").read_text().split()]
        self.assertLessEqual(max(at_once), 8)
        self.assertGreater(max(at_once), 1)

    def test_a_wrong_test_is_named_and_the_check_continues(self):
        said = self.check("--prebuilt", "results", "tests", "sanitizers", code=1, WRONG="Second/With.B/0")
        self.assertIn("not passed: Second/With.B/0, exit code 1", said)
        self.assertIn("wrong: kernels against float64", said)
        self.assertTrue(any("sanitizer" in call for call in self.calls()))

    def test_every_product_test_runs_by_itself_under_each_sanitizer(self):
        said = self.check("--prebuilt", "results", "sanitizers", code=0)
        left_out = [("racecheck", "int8_kv"), ("synccheck", "Fp8ProductTest.ResultsAreAddedAndRounded")]
        pairs = [(tool, tests) for tool in ("memcheck", "racecheck", "synccheck", "initcheck")
                 for tests in FAMILIES + PRODUCT_TESTS if (tool, tests) not in left_out]
        concluded = [line.split(", ") for line in said.splitlines() if "compute-sanitizer" in line]
        self.assertEqual(sorted((tool, tests.split(" (")[0]) for _, tool, tests in concluded), sorted(pairs))
        filters = [call.split("--tool=")[1].split(" --error-exitcode=99 ") for call in self.calls()]
        of_products = sorted((tool, call.split("--gtest_filter=")[1]) for tool, call in filters if "*" not in call)
        self.assertEqual(of_products, sorted((tool, tests) for tool, tests in pairs if tests in PRODUCT_TESTS))
        self.assertEqual(len(filters), len(pairs))

    def test_what_a_sanitizer_finds_is_an_error(self):
        said = self.check("--prebuilt", "results", "sanitizers", code=1, SANITIZER="--tool=racecheck")
        for tests in ("attention", "rows", "sampling", *PRODUCT_TESTS):
            self.assertIn(f"WRONG  compute-sanitizer, racecheck, {tests}: exit code 99", said)
            self.assertIn(f"right  compute-sanitizer, memcheck, {tests}", said)
        self.assertIn("       a hazard", said)

    def test_all_parts_run_in_their_order(self):
        said = self.check("--prebuilt", "results", code=0)
        self.assertEqual([line[3:] for line in said.splitlines() if line.startswith("== ")][1:],
                         ["what is here", "tests", "sanitizers", "speed", "profile", "served"])
        calls = (self.logs / "calls").read_text()
        for wanted in ("--tool=racecheck", "regex:AttentionDecode", "regex:AttentionPrefill", "gpu_step --json="):
            self.assertIn(wanted, calls)
        for wanted in ("a row of figures", "a row of steps", "Duration  12 us",
                       "2 tokens are the same, their logprobs differ by at most 0.0000"):
            self.assertIn(wanted, self.report())

    def test_a_step_that_hangs_takes_only_the_time_of_its_part(self):
        said = self.check("--part-seconds=20", "--prebuilt", "results", "speed", "profile", code=1, SPEED="1000")
        self.assertIn(": speed\n", said)
        self.assertIn("a row of figures", said)
        self.assertIn("left out, for time: steps of a model", said)
        self.assertNotIn("left out, for time: a profile of decode", said)  # The next part has its own time.
        self.assertIn("not finished: speed\nnot finished: steps of a model of 8 B parameters\n"
                      "not finished: steps with layers of int8\n", self.report())
        self.assertIn("nothing that finished was wrong, but 8 steps were not finished", self.report())
        self.assertNotIn("all that was run is right", said)

    def test_tests_that_hang_are_named_and_are_not_a_success(self):
        said = self.check("--part-seconds=20", "--prebuilt", "results", "tests", code=1, HANGS="Second/*")
        self.assertIn("       not finished: Second/With.B/0\n", said)
        for title in ("kernels against float64", "the same, exact multiplication",
                      "the same, kernels set up while those before them end"):
            self.assertIn(f"\nnot finished: {title}\n", self.report())
        self.assertNotIn("all that was run is right", said)

    def test_a_test_that_is_wrong_counts_more_than_one_that_hangs(self):
        said = self.check("--part-seconds=40", "--prebuilt", "results", "tests", code=1, HANGS="First.B/0",
                          WRONG="Second/With.A")
        for line in ("       not passed: Second/With.A, exit code 1\n", "       not finished: First.B/0\n",
                     "\nwrong: kernels against float64\n"):
            self.assertIn(line, said)

    def test_a_part_without_time_is_not_a_success(self):
        said = self.check("--part-seconds=1", "--prebuilt", "results", "served", code=1)
        for line in ("left out, for time: every library is found", "not finished: every library is found",
                     "not begun: served"):
            self.assertIn(f"{line}\n", said)

    def test_what_could_not_begin_because_of_a_failure_is_listed(self):
        compared = "not finished: its answers beside those of the CPU\n"
        said = self.check("--prebuilt", "results", "served", code=1, BROKEN="--exact-gpu")
        self.assertIn("\n\nwrong: the same with --exact-gpu\nwrong: weights of FP8 with --exact-gpu\n"
                      f"{compared}{compared}", said)
        said = self.check("--prebuilt", "results", "served", code=1, BROKEN="models/tales")
        self.assertIn("\n\nwrong: the model in the box on the CPU\nwrong: weights of int8 on the CPU\n"
                      "wrong: weights of int4 on the CPU\nwrong: weights of FP8 on the CPU\n"
                      "wrong: K and V of int8 on the CPU\n"
                      "not finished: the model in the box on the GPU\n"
                      f"{compared}not finished: the same with --exact-gpu\n{compared}"
                      f"not finished: weights of int8 on the GPU\n{compared}"
                      f"not finished: weights of int4 on the GPU\n{compared}"
                      f"not finished: weights of FP8 on the GPU\n{compared}"
                      f"not finished: weights of FP8 with --exact-gpu\n{compared}"
                      f"not finished: K and V of int8 on the GPU\n{compared}", said)

    def test_a_checkpoint_of_fp8_is_made_and_served(self):
        said = self.check("--prebuilt", "results", "served", code=0)
        for title in ("a checkpoint of FP8", "weights of FP8 on the CPU", "weights of FP8 on the GPU"):
            self.assertIn(f"right  {title} (", said)
        model = self.root / "results/tales_fp8"
        self.assertEqual(self.calls(), [f"quantize --model=models/tales --output={model} --width=fp8"])
        workers = (self.logs / "workers").read_text().splitlines()
        of_model = [flags for flags in workers if f"--model={model}" in flags]
        self.assertEqual([("cuda" in flags, "--exact-gpu" in flags) for flags in of_model],
                         [(False, False), (True, False), (True, True)])
        self.assertFalse(model.exists())
        said = self.check("--prebuilt", "results", "served", code=1, NO_FP8="1")
        self.assertIn("\n\nwrong: a checkpoint of FP8\nnot finished: weights of FP8 on the GPU\n", said)

    def test_what_a_sanitizer_has_found_is_told_when_the_time_is_up(self):
        said = self.check("--part-seconds=15", "--prebuilt", "results", "sanitizers", code=1,
                          SANITIZER="--tool=memcheck", SANITIZER_SECONDS="1000")
        self.assertIn("WRONG  compute-sanitizer, memcheck, attention: exit code 99", said)
        self.assertIn("not finished: compute-sanitizer, initcheck, rows", said)

    def test_tools_that_are_not_installed_are_listed_at_the_end(self):
        (self.bundle / "path/ncu").unlink()
        said = self.check("--prebuilt", "results", "profile", code=0)
        self.assertTrue(said.endswith("skipped: no ncu here\nall that was run is right; figures are in "
                                      f"{self.root}/results\n"), said)

    def test_the_report_begins_with_the_run_and_the_machine(self):
        self.check("--prebuilt", "results", "profile", code=0)
        lines = self.report().splitlines()
        self.assertRegex(lines[0], "^== run of 20[0-9-]+ [0-9:]+ UTC: gpu_check --prebuilt results profile$")
        self.assertEqual(lines[1], "Quire 9.8.7, commit 0123abcd")
        self.assertEqual(lines[2], "GPU a made-up GPU, driver 580.1, 80000 MiB")
        self.assertEqual(lines[3], f"cuBLAS 13.1.0.3 of {self.bundle}/cublas/libcublasLt.so.13.1.0.3")
        self.assertRegex(lines[4], "^machine .*, [0-9]+ processors, ")
        self.assertNotIn("sed:", self.check("--prebuilt", "results", "profile", code=0, NO_SMI="1"))
        second = self.report().splitlines()[len(lines):]
        self.assertRegex(second[1], "^== run of ")  # A report of several runs has an empty line between them.
        self.assertRegex(second[3], "^GPU (unknown: nvidia-smi cannot be run|(?!a made-up))")

    def test_cublas_of_a_python_package_is_named_with_its_version(self):
        folder = self.root / "site-packages"
        library = folder / "nvidia/cu13/lib/libcublasLt.so.13"
        library.parent.mkdir(parents=True)
        library.touch()
        (folder / "nvidia_cublas-13.1.1.3.dist-info").mkdir()
        self.check("--prebuilt", "results", "profile", code=0, CUBLAS=str(library))
        self.assertIn(f"cuBLAS 13.1.1.3 of {library}\n", self.report())
        shutil.rmtree(folder / "nvidia_cublas-13.1.1.3.dist-info")
        self.check("--prebuilt", "results", "profile", code=0, CUBLAS=str(library))
        self.assertIn(f"cuBLAS of unknown version of {library}\n", self.report())

    def test_help_is_printed_from_every_folder(self):
        for program in ("bundle/tools/gpu_check", "bundle/../bundle/tools/gpu_check"):
            for arguments in (["--help"], ["-h"], ["--prebuilt", "--help"]):
                said = self.check(*arguments, code=0, program=program)
                self.assertTrue(said.startswith("tools/gpu_check checks and measures Quire"), said)
                self.assertIn("Exit code: 0 if", said)
        self.assertFalse((self.root / "--help").exists())

    def test_the_time_of_a_part_may_stand_anywhere(self):
        said = self.check("--prebuilt", "results", "--part-seconds=60", "profile", code=0)
        self.assertIn("== profile", said)

    def test_results_are_written_as_they_come(self):
        process = self.start("--prebuilt", "results", "speed", STEP="1000")
        deadline = time.monotonic() + TIMEOUT_S
        while not (self.root / "results/gpu_step.log").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertIsNone(process.poll())
        self.assertIn("right  speed", self.report())
        self.assertIn("a row of figures", self.report())
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=TIMEOUT_S)

    def test_answers_may_differ_by_rounding(self):
        self.check("--prebuilt", "results", "served", code=0, GPU="8 -0.52 8 -0.52 9 -0.53")
        self.assertIn("2 tokens are the same, their logprobs differ by at most 0.0200\n", self.report())
        self.check("--prebuilt", "results", "served", code=0, GPU="9 -0.52 9 -0.52 8 -0.53")
        self.assertIn("1 tokens are the same, their logprobs differ by at most 0.0000; "
                      "then the CPU prefers its own token to that of the GPU by 0.0500\n", self.report())

    def test_answers_that_differ_by_more_than_rounding_are_wrong(self):
        far = "8 -0.50 8 -0.50 9 -0.61"
        for cpu, gpu, message in ((far, "8 -0.61 8 -0.61 9 -0.62", "differ by at most 0.1100"),
                                  (far, "9 -0.50 9 -0.50 8 -0.60", "to that of the GPU by 0.1100"),
                                  (far, "5 -0.50 5 -0.50 8 -0.60", "none of the five likeliest"),
                                  (far, "end", "one answer ends before the other")):
            said = self.check("--prebuilt", "results", "served", code=1, CPU=cpu, GPU=gpu)
            self.assertIn("wrong: its answers beside those of the CPU", said)
            self.assertIn(message, said)

    def test_what_it_does_not_know_is_refused(self):
        parts = "the parts are tests, sanitizers, speed, profile, served"
        for arguments, message in ((["--prebuilt"], "--prebuilt needs a folder"),
                                   (["--prebuilt", "served"], "--prebuilt needs a folder"),
                                   (["--prebuilt", "results", "sped"], f"there is no part sped; {parts}"),
                                   (["--prebuilt", ""], "a name is empty"),
                                   (["--prebuilt", "results", "-x"], "unknown argument -x"),
                                   (["--part-seconds=x"], "--part-seconds=x: seconds are a number from 1 to 86400"),
                                   (["--part-seconds=0"], "--part-seconds=0: seconds are a number from 1 to 86400"),
                                   (["--part-seconds=100000000000000000000"], "from 1 to 86400"),
                                   (["a", "b"], "2 arguments"), (["--fast"], "--fast")):
            said = self.check(*arguments, code=2)
            self.assertIn(message, said)
            self.assertIn("Exit code: 0 if", said)
        self.assertFalse((self.root / "results").exists())
        (self.bundle / "gpu_tests.txt").unlink()
        self.assertIn("is no bundle", self.check("--prebuilt", "results", code=2))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
