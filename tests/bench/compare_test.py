#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the rows, the loads and the tables of the comparison, without any engine."""

import argparse
import io
import json
import pathlib
import sys
import tempfile
import unittest
import unittest.mock

import compare
import report
import resident
from closed_loop import ClosedLoop
from engines import Engine, Llama, Quire, Resident
from rows import BANDWIDTH, DECODE, ROWS, SERVED, Row
from work import Batch, Clients, Shape, chat_requests, prompts


class SteppedEngine:
    """Computes one prompt a step and one token of each running request. A step takes a second."""

    def __init__(self):
        self.seconds, self.waiting, self.running, self.added = 0.0, [], {}, []

    def clock(self):
        return self.seconds

    def add(self, index, prompt, output):
        self.added.append((index, len(prompt)))
        self.waiting.append((index, output))

    def step(self):
        self.seconds += 1
        new = dict.fromkeys(self.running, 1)
        if self.waiting:
            index, output = self.waiting.pop(0)
            self.running[index], new[index] = output, 1
        self.running = {index: left - new[index] for index, left in self.running.items() if left > new[index]}
        return new


def loop(lengths, clients):
    engine = SteppedEngine()
    return ClosedLoop(engine, [[1] * prompt for prompt, _ in lengths], [output for _, output in lengths], clients,
                      engine.clock)


class ClosedLoopTest(unittest.TestCase):
    def test_prefill_ends_when_all_sequences_decode(self):
        figures = loop([(10, 4), (10, 4)], 2).run()
        self.assertEqual(figures["prefill_tokens_per_s"], 20 / 2)  # Two steps, and both decode in the third one.
        self.assertEqual(figures["decode_tokens_per_s"], 2)

    def test_only_as_many_requests_run_as_there_are_clients(self):
        load = loop([(10, 2)] * 3, 1)
        figures = load.run()
        self.assertEqual(figures["duration"], 6)
        self.assertEqual(figures["p99_ttft_ms"], 1000)  # Each request is sent when the one before it has ended.
        self.assertEqual(figures["total_token_throughput"], (30 + 6) / 6)

    def test_times_between_tokens_are_counted_for_each_request(self):
        figures = loop([(10, 3), (10, 2)], 2).run()
        self.assertEqual(figures["median_itl_ms"], 1000)
        self.assertEqual(figures["p99_ttft_ms"], 2000)  # The second prompt waits for the first one.
        self.assertEqual(figures["failed"], 0)

    def test_requests_with_more_tokens_than_wanted_have_failed(self):
        load = loop([(10, 3)], 1)
        load.engine.step = unittest.mock.Mock(side_effect=[{0: 1}, {0: 3}])
        load.clock = iter(range(100)).__next__
        self.assertEqual(load.run()["failed"], 1)

    def test_an_engine_that_stops_early_is_an_error(self):
        load = loop([(10, 3)], 1)
        load.engine.step = lambda: {}
        with self.assertRaisesRegex(RuntimeError, "1 requests unfinished"):
            load.run()


class ResidentTest(unittest.TestCase):
    def test_common_prefix_is_computed_before_the_load(self):
        engine = SteppedEngine()
        resident.run_load(engine, {"lengths": [[8, 2], [8, 2]], "clients": 2, "shared": 6, "seed": 1}, 100)
        self.assertEqual(engine.added, [(0, 7), (0, 8), (1, 8)])

    def test_an_error_of_the_engine_is_the_answer(self):
        engine = SteppedEngine()
        engine.add = unittest.mock.Mock(side_effect=ValueError("too long"))
        line = json.dumps({"lengths": [[8, 2]], "clients": 1, "shared": 0, "seed": 1})
        self.assertIn("too long", resident.answer(engine, line, 100)["error"])


class CommonPrefixTest(unittest.TestCase):
    """All engines compute the common prefix before the load that is measured, as ResidentTest shows of the others."""
    ANSWER = '{"completed":1,"output_throughput":1}'

    def work(self, shared):
        return Clients("m", ((8, 2),) * 3, 2, 64, shared=shared)

    def test_quire_sends_a_request_before_the_load(self):
        for shared, warm_up in ((6, "--warmup=1"), (0, "--warmup=0")):
            with unittest.mock.patch("engines.output_of", return_value=self.ANSWER) as run, \
                    unittest.mock.patch("engines.processes") as processes, \
                    unittest.mock.patch("engines.peak_bytes", return_value=0):
                processes.return_value.__enter__.return_value = (None, None)
                Quire(pathlib.Path("bin"), pathlib.Path("models"), 2).run(self.work(shared))
            self.assertIn(warm_up, run.call_args.args[0])

    def test_llama_gets_a_request_before_the_load(self):
        for shared, expected in ((6, [(64, 4)] + [(8, 2)] + [(8, 2)] * 3), (0, [(64, 4)] + [(8, 2)] * 3)):
            with unittest.mock.patch("engines.Load") as load, unittest.mock.patch("engines.processes") as processes, \
                    unittest.mock.patch("engines.Shape"), unittest.mock.patch("engines.wait_until"), \
                    unittest.mock.patch("engines.peak_bytes", return_value=0):
                processes.return_value.__enter__.return_value = (None,)
                load.return_value.run.return_value = {"total_token_throughput": 1}
                engine = Llama(pathlib.Path("bin"), pathlib.Path("models"), 2, 1)
                engine._serve(self.work(shared), "-kvu")
            self.assertEqual([length for call in load.call_args_list for length in call.args[1]], expected)
            self.assertEqual(len(load.call_args_list), 3 if shared else 2)

    def test_engines_of_one_memory_leave_out_rows_that_fill_the_pool(self):
        for row in ROWS:
            if isinstance(row.work, Clients) and row.work.fills_pool:
                self.assertIn("pool", row.name)
                self.assertFalse(FakePeer("python", pathlib.Path("/"), 1, "log").can_run(row.work))
                return
        self.fail("no row fills the pool")


class FakePeer(Resident):
    """Its processes run a program of the test instead of an engine."""
    project, weights, kind = "Fake", "bf16", "fake"
    PROGRAM = """
class Peer:
    version = "Fake 1"

    def __init__(self, model, threads):
        print("this is not an answer")
        self.requests = {}

    def add(self, index, prompt, output):
        if output > 4:
            raise ValueError("too long")
        self.requests[index] = output

    def step(self):
        new = dict.fromkeys(self.requests, 1)
        self.requests = {index: left - 1 for index, left in self.requests.items() if left > 1}
        return new
"""

    def environment(self):
        return {"PYTHONPATH": str(self.models)}

    def folder(self, model):
        return self.models / model


class ResidentProcessTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        models = pathlib.Path(folder.name)
        (models / "fake_peer.py").write_text(FakePeer.PROGRAM)
        for name in ("m500", "gqa8"):
            (models / name).mkdir()
            (models / name / "config.json").write_text('{"vocab_size": 100}')
        self.engine = FakePeer(sys.executable, models, 2, models / "log")
        self.addCleanup(self.engine.close)

    def state(self):
        """Returns the state of the process, as ps shows it."""
        return pathlib.Path(f"/proc/{self.engine.process.pid}/stat").read_text().rpartition(")")[2].split()[0]

    def test_process_is_stopped_between_runs_and_stays_for_a_model(self):
        work = Batch("m500", 2, 8, 3)
        self.engine.prepare(work)
        first = self.engine.process.pid
        self.assertEqual(self.state(), "T")
        self.engine.resume()
        self.assertGreater(self.engine.run(work)["decode_tokens_per_s"], 0)
        self.engine.pause()
        self.assertEqual(self.state(), "T")
        self.engine.prepare(work)
        self.engine.resume()
        self.assertEqual(self.engine.run(work)["failed"], 0)
        self.assertEqual(self.engine.process.pid, first)
        self.assertEqual(self.engine.version(), "Fake 1")
        self.engine.prepare(Batch("gqa8", 2, 8, 3))
        self.assertNotEqual(self.engine.process.pid, first)

    def test_errors_are_told(self):
        work = Clients("m500", ((8, 5),), 1, 64)
        self.engine.prepare(work)
        self.engine.resume()
        with self.assertRaisesRegex(RuntimeError, "too long"):
            self.engine.run(work)
        self.engine.process.kill()
        self.engine.process.wait()
        with self.assertRaisesRegex(RuntimeError, "has ended"):
            self.engine.run(Batch("m500", 2, 8, 3))


class WorkTest(unittest.TestCase):
    def test_prompts_share_only_the_prefix(self):
        first, second = prompts([10, 12], 4, 1000, 3)
        self.assertEqual((len(first), len(second)), (10, 12))
        self.assertEqual(first[:4], second[:4])
        self.assertNotEqual(first[4:10], second[4:10])
        self.assertNotEqual(first, prompts([10, 12], 4, 1000, 5)[0])

    def test_lengths_of_chats_are_always_the_same(self):
        self.assertEqual(chat_requests(32)[:24], chat_requests(24))

    def test_bytes_of_a_shape(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder)
            (path / "config.json").write_text(json.dumps(
                {"num_hidden_layers": 2, "num_key_value_heads": 3, "head_dim": 8, "vocab_size": 10, "hidden_size": 4,
                 "tie_word_embeddings": False}))
            (path / "model.safetensors").write_bytes(b"0" * 1000)
            shape = Shape(path)
            self.assertEqual(shape.token_bytes, 2 * 2 * 2 * 3 * 8)
            self.assertEqual(shape.read_bytes, 1000 - 80)  # Of the embedding a step reads only some rows.
            self.assertEqual(shape.prompt_operations, 1000 - 2 * 80)
            batch = Batch("m", 4, 8, 2)
            probes = [{"amx_bf16": 2.0, "bandwidth": 20.0}, {"amx_bf16": 4.0, "bandwidth": 26.0}]
            figures = {"decode_tokens_per_s": 1e8, "prefill_tokens_per_s": 1e6}
            self.assertEqual(compare.shares(figures, probes, shape, batch, "bf16"),
                             {"bandwidth_share": 1e-9 * 1e8 / 4 * 920 / 23, "operations_share": 1e-9 * 1e6 * 840 / 3})
            self.assertEqual(compare.shares(figures, probes, shape, batch, "int8"), {})


def run(engine, round_number, rate, width="bf16", key="decode_tokens_per_s", foreign=0.01, call=1):
    return {"row": "decode 1", "engine": engine, "project": engine.split()[0], "width": width, "call": call,
            "round": round_number, "figures": {key: rate}, "foreign": foreign,
            "probes": [{"amx_bf16": 5000.0, "amx_int8": 9000.0, "bandwidth": 40.0},
                       {"amx_bf16": 3000.0, "amx_int8": 9000.0, "bandwidth": 30.0}]}


ROW = Row("decode 1", Batch("m500", 1, 128, 64), (DECODE,), ("bf16", "int8", "int4"))


class ReportTest(unittest.TestCase):
    def cells(self, row, runs):
        return [[cell.strip() for cell in line.split("|")[1:-1]] for line in report.row_lines(row, runs)]

    def test_ratio_is_the_median_of_ratios_within_rounds(self):
        ours, theirs = (10, 40, 30), (10, 10, 20)
        runs = [run(engine, i + 1, rates[i]) for i in range(3)
                for engine, rates in (("Quire bf16", ours), ("vLLM bf16", theirs))]
        first, second = self.cells(ROW, runs)
        self.assertEqual(first[2:5], ["Quire bf16", "30 [10 .. 40]", ""])
        self.assertEqual(second[2:5], ["vLLM bf16", "10 [10 .. 20]", "1.50 [1.00 .. 4.00]"])

    def test_shorter_times_are_better(self):
        row = Row("decode 1", Clients("m500", ((1, 1),), 1, 16), (SERVED[3],))
        runs = [run("Quire bf16", 1, 100, key="p99_ttft_ms"), run("vLLM bf16", 1, 250, key="p99_ttft_ms")]
        self.assertEqual(self.cells(row, runs)[1][4], "2.50 [2.50 .. 2.50]")

    def test_rounds_that_one_engine_lacks_have_no_ratio(self):
        runs = [run("Quire bf16", 1, 10), run("Quire bf16", 2, 10), run("vLLM bf16", 2, 5)]
        self.assertEqual(self.cells(ROW, runs)[1][4], "2.00 [2.00 .. 2.00]")
        self.assertEqual(self.cells(ROW, runs[:1])[0][4], "")

    def test_rounds_of_several_calls_all_count(self):
        runs = [run("Quire bf16", 1, 10), run("Quire bf16", 1, 30, call=2), run("vLLM bf16", 1, 10, call=2)]
        first, second = self.cells(ROW, runs)
        self.assertEqual(first[3], "20 [10 .. 30]")
        self.assertEqual(second[4], "3.00 [3.00 .. 3.00]")

    def test_quantized_engines_are_compared_with_their_width_and_their_own_bf16(self):
        runs = [run("Quire bf16", 1, 10), run("Quire int8", 1, 20, "int8"), run("llama.cpp bf16", 1, 5),
                run("llama.cpp q8_0", 1, 8, "int8")]
        cells = {line[2]: line for line in self.cells(ROW, runs)}
        self.assertEqual(cells["Quire int8"][4:6], ["", "2.00 [2.00 .. 2.00]"])
        self.assertEqual(cells["llama.cpp q8_0"][4:6], ["2.50 [2.50 .. 2.50]", "1.60 [1.60 .. 1.60]"])

    def test_best_quantized_engines_are_compared_within_a_round(self):
        runs = [run("Quire int8", 1, 20, "int8"), run("Quire int4", 1, 40, "int4"), run("Quire int4", 2, 60, "int4"),
                run("llama.cpp q8_0", 1, 50, "int8"), run("OpenVINO int4", 1, 80, "int4"),
                run("llama.cpp q8_0", 2, 30, "int8"), run("OpenVINO int4", 2, 20, "int4")]
        best = self.cells(ROW, runs)[-1]
        self.assertEqual(best[2], "best of the quantized peers, beside the best of Quire's")
        self.assertEqual(best[3:5], ["55 [30 .. 80]", "1.25 [0.50 .. 2.00]"])

    def test_probes_are_medians_and_the_foreign_share_is_the_largest(self):
        runs = [run("Quire bf16", 1, 10), run("Quire bf16", 2, 10, foreign=0.03)]
        self.assertEqual(self.cells(ROW, runs)[0][6:], ["4.00", "35.0", "3 %"])
        self.assertEqual(self.cells(ROW, [run("Quire int8", 1, 10, "int8")])[0][6], "9.00")

    def test_shares_are_shown_in_percent_and_have_no_ratio(self):
        row = Row("decode 1", Batch("m500", 1, 128, 64), (BANDWIDTH,))
        runs = [run("Quire bf16", 1, 0.5, key="bandwidth_share"), run("Quire bf16", 2, 0.75, key="bandwidth_share"),
                run("vLLM bf16", 1, 0.25, key="bandwidth_share")]
        first, second = self.cells(row, runs)
        self.assertEqual(first[3], "62 % [50 % .. 75 %]")
        self.assertEqual(second[3:5], ["25 % [25 % .. 25 %]", ""])

    def test_processors_without_tiles_are_probed_by_their_vectors(self):
        self.assertEqual(report.register_rate({"avx2_fma": 1, "avx512_fma": 2, "vnni_int8": 3}, "bf16"), 2)
        self.assertEqual(report.register_rate({"avx512_fma": 2, "avx512_bf16": 4, "vnni_int8": 8}, "bf16"), 4)
        self.assertEqual(report.register_rate({"avx512_fma": 2, "avx512_bf16": 1}, "bf16"), 2)
        self.assertEqual(report.register_rate({"avx2_fma": 1, "avx512_fma": 2, "vnni_int8": 3}, "int4"), 3)
        self.assertIsNone(report.register_rate({}, "bf16"))

    def test_tables_are_printed_from_files(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "results.jsonl")
            results = compare.Results(path)
            results.add(run("Quire bf16", 1, 10))
            results.add({"failed_row": "decode 1", "engine": "vLLM bf16", "error": "no memory"})
            results.add({"machine": "2 cores", "versions": {"Quire": "quire 1.0"}})
            with unittest.mock.patch("sys.argv", ["report.py", str(path)]), \
                    unittest.mock.patch("sys.stdout", new_callable=io.StringIO) as out:
                report.main()
        self.assertIn("2 cores; quire 1.0", out.getvalue())
        self.assertIn("| decode 1 | decode, tokens/s | Quire bf16 | 10 [10 .. 10] |", out.getvalue())


class FakeEngine(Engine):
    project = "Fake"

    def __init__(self, weights="bf16", error=None):
        self.weights = self.width = weights
        self.error, self.calls = error, []

    def can_run(self, work):
        return not isinstance(work, Clients)

    def prepare(self, work):
        self.calls.append("prepare")

    def run(self, work):
        self.calls.append("run")
        if self.error:
            raise self.error
        return {"decode_tokens_per_s": 10.0}

    def resume(self):
        self.calls.append("resume")

    def pause(self):
        self.calls.append("pause")

    def close(self):
        self.calls.append("close")


def foreign_shares(*shares):
    """Returns a class in place of ForeignShare whose contexts have these shares in turn, the last one from then on."""
    left = list(shares)

    class Foreign:
        def __init__(self, _):
            self.share = left.pop(0) if len(left) > 1 else left[0]

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

    return Foreign


class CompareTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = pathlib.Path(folder.name)
        (path / "m500").mkdir()
        (path / "m500/config.json").write_text("{}")
        self.options = argparse.Namespace(models=path, call=1, rounds=2, tries=3, max_foreign=0.04, idle_wait=0,
                                          rows="", engines="", skip="")
        self.results = compare.Results(path / "results.jsonl")
        self.probe = unittest.mock.Mock()
        self.probe.measure.return_value = {"bandwidth": 1.0}
        self._patch("compare.shares", lambda *_: {})
        self._patch("compare.ForeignShare", foreign_shares(0))  # Other tests run beside this one.
        self._patch("sys.stderr", io.StringIO())

    def _patch(self, name, value):
        patch = unittest.mock.patch(name, value)
        patch.start()
        self.addCleanup(patch.stop)

    def run_row(self, *engines):
        return compare.run_row(ROW, engines, self.probe, self.options, self.results)

    def test_engines_take_turns_and_are_paused_after_each_run(self):
        first, second = FakeEngine(), FakeEngine("int8")
        records = self.run_row(first, second)
        self.assertEqual([(record["round"], record["engine"]) for record in records],
                         [(1, "Fake bf16"), (1, "Fake int8"), (2, "Fake bf16"), (2, "Fake int8")])
        self.assertEqual(first.calls, ["prepare", "resume", "run", "pause"] * 2)
        self.assertEqual(len(self.results.path.read_text().splitlines()), 4)

    def test_a_failed_engine_is_left_out_of_further_rounds(self):
        broken = FakeEngine("int8", RuntimeError("no memory"))
        records = self.run_row(FakeEngine(), broken)
        self.assertEqual([record["engine"] for record in records], ["Fake bf16"] * 2)
        self.assertEqual(broken.calls, ["prepare", "resume", "run", "pause", "close"])
        self.assertIn("no memory", self.results.path.read_text())

    def test_runs_beside_other_work_are_repeated_and_the_quietest_counts(self):
        self._patch("compare.ForeignShare", foreign_shares(0.5, 0.2, 0.3))
        record = compare.measure(FakeEngine(), ROW, self.probe, self.options)
        self.assertEqual((record["foreign"], record["tries"]), (0.2, 3))

    def test_rows_and_engines_are_selected(self):
        engines = [FakeEngine(), FakeEngine("int8")]
        decode_64 = next(row for row in ROWS if row.name == "decode 64")
        self.assertEqual(compare.selected(ROW, engines, self.options), engines)
        self.assertEqual(compare.selected(decode_64, engines, self.options), engines[:1])  # Only 16 bits.
        self.options.skip = "^decode 1: Fake int8"
        self.assertEqual(compare.selected(ROW, engines, self.options), engines[:1])
        self.options.engines = "int8"
        self.assertEqual(compare.selected(ROW, engines, self.options), [])
        self.options.rows = "prefill"
        self.assertEqual(compare.selected(ROW, engines, self.options), [])

    def test_rows_without_a_model_are_left_out(self):
        gqa8 = next(row for row in ROWS if row.work.model == "gqa8")
        self.assertEqual(compare.selected(gqa8, [FakeEngine()], self.options), [])

    def test_names_of_rows_differ(self):
        self.assertEqual(len({row.name for row in ROWS}), len(ROWS))


class LlamaTest(unittest.TestCase):
    def test_the_better_mode_of_the_first_run_is_kept(self):
        rates = {"-no-kvu": 10, "-kvu": 20}
        llama = Llama(pathlib.Path(), pathlib.Path(), 2, 1)
        llama._batch = unittest.mock.Mock(side_effect=lambda _, mode: {"decode_tokens_per_s": rates[mode]})
        work = Batch("m500", 16, 128, 32)
        self.assertEqual(llama.run(work), {"decode_tokens_per_s": 20, "mode": "one stream"})
        rates["-kvu"] = 5
        self.assertEqual(llama.run(work)["decode_tokens_per_s"], 5)
        self.assertEqual(llama._batch.call_count, 3)


class QuireTest(unittest.TestCase):
    def test_quantized_workers_round_the_output_matrix_too(self):
        with unittest.mock.patch("engines.output_of", return_value='{"decode_tokens_per_s": 1}') as call:
            Quire(pathlib.Path("bin"), pathlib.Path("models"), 2, "int8").run(Batch("m500", 16, 128, 32))
            command = call.call_args[0][0]
            self.assertIn("--quantize=int8", command)
            self.assertIn("--quantize_output", command)
            Quire(pathlib.Path("bin"), pathlib.Path("models"), 2).run(Batch("m500", 8, 2048, 16, 2048, beams=True))
            command = call.call_args[0][0]
            self.assertIn("--beams=8", command)
            self.assertFalse([flag for flag in command if "quantize" in str(flag)])


if __name__ == "__main__":
    unittest.main()
