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

# Lists its tests, counts how many of it run at the same time, and does with a test what the variable of that name says.
GPU_TEST = """#!/bin/bash
case $1 in
  --gtest_list_tests)
    printf 'First.\\n  A\\n  B/0  # GetParam() = 4\\n  C\\n  D\\n  E\\n  F\\n'
    printf 'Second/With.  # TypeParam = int\\n  A\\n  B/0\\n  C\\n  D\\n  E\\n  F\\n'
    exit ;;
esac
test=${1#--gtest_filter=}
[ "$test" != '*NewMemory*' ] || { echo "no GPU here: there is none"; exit ${FIRST_TOUCH:-0}; }
mkdir -p $LOGS/running
touch $LOGS/running/$$
ls $LOGS/running | wc -l >>$LOGS/at_once
echo "$test exact=${QUIRE_GPU_EXACT:-0} overlap=${QUIRE_GPU_OVERLAP:-0}" >>$LOGS/ran
sleep 0.2
rm $LOGS/running/$$
[ "$test" != "${WRONG:-}" ]
"""
# Two tokens with their logprobs and those of the two likeliest. A worker on the GPU gives those of the variable GPU.
QUIRECTL = """#!/bin/bash
[ "$3" = health ] && exit
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
    "bin/quire-worker": '#!/bin/bash\necho "$*" >$LOGS/worker\nexec sleep 1000\n',
    "bin/quire-manager": "#!/bin/bash\nexec sleep 1000\n",
    "bin/quirectl": QUIRECTL,
    # Programs of the machine.
    "path/ldd": '#!/bin/bash\necho "  libx.so => $BUNDLE/bin/../lib/libx.so (0x1)"\n'
                'echo "  libc.so.6 => /lib/libc.so.6 (0x2)"\n[ -z "${LIBRARY:-}" ] || echo "  $LIBRARY"\n',
    "path/compute-sanitizer": '#!/bin/bash\necho "sanitizer $*" >>$LOGS/calls\n'
                               '[ "$1" != "${SANITIZER:-}" ] || { echo "a hazard"; exit 99; }\n',
    "path/ncu": '#!/bin/bash\necho "ncu $*" >>$LOGS/calls\necho "  Duration  12 us"\n',
    "path/python3": "#!/bin/bash\nexit 1\n",
    "path/nvidia-smi": "#!/bin/bash\necho name\necho a made-up GPU\n",
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
        for name in ("gpu_check", "gpu_tests.sh", "served_pair.sh", "timed_steps.sh"):
            shutil.copy(SOURCE / "tools" / name, self.bundle / "tools")
        (self.bundle / "gpu_tests.txt").write_text("".join(f"{test}\n" for test in ALL_TESTS))
        self.logs = self.root / "logs"
        self.logs.mkdir()

    def tearDown(self):
        self.folder.cleanup()

    def start(self, *arguments, **variables):
        environment = dict(os.environ, LOGS=str(self.logs), BUNDLE=str(self.bundle), **variables)
        environment["PATH"] = f"{self.bundle}/path:{environment['PATH']}"
        return subprocess.Popen([self.bundle / "tools/gpu_check", *arguments], cwd=self.root, env=environment,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)

    def check(self, *arguments, code, **variables):
        process = self.start(*arguments, **variables)
        said = process.communicate(timeout=TIMEOUT_S)[0]
        self.assertEqual(process.returncode, code, said)
        return said

    def report(self):
        path = self.root / "results/report.txt"
        return path.read_text() if path.exists() else ""

    def test_without_a_gpu_it_checks_the_bundle_and_serves_on_the_cpu(self):
        said = self.check("--prebuilt", "results", code=77, FIRST_TOUCH="77")
        for line in ("right  every library is found", "right  every test is listed", "no GPU here: there is none",
                     "right  the model in the box on the CPU"):
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
        self.assertEqual(len([c for c in (self.logs / "calls").read_text().splitlines() if "sanitizer" in c]), 12)

    def test_what_a_sanitizer_finds_is_an_error(self):
        said = self.check("--prebuilt", "results", "sanitizers", code=1, SANITIZER="--tool=racecheck")
        for tests in ("attention", "rows", "sampling"):
            self.assertIn(f"WRONG  compute-sanitizer, racecheck, {tests}: exit code 99", said)
            self.assertIn(f"right  compute-sanitizer, memcheck, {tests}", said)
        self.assertIn("       a hazard", said)

    def test_all_parts_run_in_their_order(self):
        said = self.check("--prebuilt", "results", code=0)
        self.assertEqual([line[3:] for line in said.splitlines() if line.startswith("== ")],
                         ["what is here", "tests", "sanitizers", "speed", "profile", "served"])
        calls = (self.logs / "calls").read_text()
        for wanted in ("--tool=racecheck", "regex:AttentionDecode", "regex:AttentionPrefill", "gpu_step --json="):
            self.assertIn(wanted, calls)
        for wanted in ("a row of figures", "a row of steps", "Duration  12 us", "2 tokens are the same, their logprobs differ by at most 0.0000"):
            self.assertIn(wanted, self.report())

    def test_a_step_that_hangs_takes_only_the_time_of_its_part(self):
        said = self.check("--part-seconds=8", "--prebuilt", "results", "speed", "profile", code=0, SPEED="1000")
        self.assertIn(": speed\n", said)
        self.assertIn("a row of figures", said)
        self.assertIn("left out, for time: steps of a model", said)
        self.assertNotIn("left out, for time: a profile of decode", said)  # The next part has its own time.

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
        for arguments, message in ((["--prebuilt"], "--prebuilt needs a folder"),
                                   (["--prebuilt", "results", "sped"], "there is no part sped"),
                                   (["--part-seconds=x"], "is not a number of seconds"), (["--fast"], "--fast")):
            self.assertIn(message, self.check(*arguments, code=2))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
