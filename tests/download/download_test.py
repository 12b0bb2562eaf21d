# SPDX-License-Identifier: Apache-2.0
"""Downloads models with quire-download from a hub on this machine that fails in every way a hub fails. The argument is
the folder of our programs; quire-worker is in it in builds with gRPC."""

import contextlib
import email.message
import fcntl
import importlib.machinery
import importlib.util
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
from unittest import mock

from local_hub import COMMIT, REPOSITORY, LocalHub, digest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
NAME = f"hf:{REPOSITORY}"
WEIGHTS = bytes(range(256)) * 40000  # 10 MB, so that no socket takes it at once.
SMALL = {"config.json": b'{"a": 1}', "tokenizer.json": b"{}", "README.md": b"read me", "pytorch_model.bin": b"pickle"}
CHECKPOINT = SMALL | {"model.safetensors": WEIGHTS, "consolidated.safetensors": b"twice"}
TOKEN = "hf_" + "secret" * 3
LATER = "f" * 40  # The next commit.


class DownloadTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.cache = pathlib.Path(folder.name) / "hub"
        self.folder = self.cache / "models--owner--name"
        self.snapshot = self.folder / "snapshots" / COMMIT
        self.serve(CHECKPOINT, large=["model.safetensors"])

    def serve(self, files, large=()):
        self.hub = LocalHub(dict(files), large)
        self.addCleanup(self.hub.close)

    def environment(self):
        return {"PATH": os.environ["PATH"], "HF_ENDPOINT": self.hub.hub.url, "HF_HUB_CACHE": str(self.cache)}

    def start(self):
        """Starts the program as a process of its own."""
        return subprocess.Popen([BINARIES / "quire-download", "--retry-wait=0.01", NAME], env=self.environment(),
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def download(self, *arguments, code=0, **variables):
        """Runs the program inside this process, which saves much time. Returns what is printed as (stdout, stderr)."""
        out, err = io.StringIO(), io.StringIO()
        command = ["quire-download", "--retry-wait=0.01", *(arguments or [NAME])]
        with (mock.patch.dict(os.environ, self.environment() | variables, clear=True),
              mock.patch.object(sys, "argv", command),
              contextlib.redirect_stdout(out), contextlib.redirect_stderr(err)):
            try:
                found = PROGRAM.main()
            except SystemExit as end:
                found = end.code
        out, err = out.getvalue(), err.getvalue()
        self.assertEqual(found, code, err)
        self.assertNotIn(TOKEN, out + err)
        return out, err

    def error(self, *arguments, code=1, **variables):
        out, err = self.download(*arguments, code=code, **variables)
        self.assertEqual(out, "")
        return err

    def partial(self, name="model.safetensors"):
        return self.folder / "blobs" / f"{digest(self.hub.files[name], name in self.hub.large)}.incomplete"

    def leave(self, data, name="model.safetensors"):
        """Leaves what a cut download has left."""
        self.partial(name).parent.mkdir(parents=True)
        self.partial(name).write_bytes(data)

    def ranges(self, name="model.safetensors"):
        return [headers.get("Range") for headers in self.hub.requests(name, "store")]

    def test_the_cache_looks_as_that_of_the_hubs_own_programs(self):
        out, err = self.download()
        self.assertEqual(out, f"{self.snapshot}\n")
        self.assertIn(f"quire-worker --model={NAME}", err)
        self.assertEqual((self.folder / "refs/main").read_text(), COMMIT)
        self.assertEqual({path.name for path in self.snapshot.iterdir()},
                         {"config.json", "tokenizer.json", "model.safetensors"})
        for path in self.snapshot.iterdir():
            data = self.hub.files[path.name]
            self.assertEqual(path.read_bytes(), data)
            self.assertEqual(os.readlink(path), f"../../blobs/{digest(data, path.name in self.hub.large)}")
        self.assertEqual({path.name.partition(".")[2] for path in (self.folder / "blobs").iterdir()}, {""})

    def test_what_is_there_is_not_downloaded_again(self):
        self.download()
        (self.snapshot / "config.json").unlink()
        seen = len(self.hub.seen)
        self.download()
        self.assertEqual([path for _, path, _ in self.hub.seen[seen:]], [f"/api/models/{REPOSITORY}/revision/main"])
        self.assertTrue((self.snapshot / "config.json").exists())

    def test_only_a_missing_model_is_asked_for_if_that_is_enough(self):
        self.download()
        seen = len(self.hub.seen)
        self.assertEqual(self.download("--if-missing", NAME), (f"{self.snapshot}\n", ""))
        self.assertEqual(len(self.hub.seen), seen)
        (self.snapshot / "model.safetensors").unlink()
        self.download("--if-missing", NAME)
        self.assertGreater(len(self.hub.seen), seen)
        self.assertTrue((self.snapshot / "model.safetensors").exists())

    def test_revisions_are_asked_for_and_remembered(self):
        self.download(f"{NAME}@refs/pr/1", "--quiet")
        self.assertEqual((self.folder / "refs/refs/pr/1").read_text(), COMMIT)
        self.assertFalse((self.folder / "refs/main").exists())
        self.download(f"{NAME}@{COMMIT}")
        self.assertFalse((self.folder / "refs" / COMMIT).exists())

    def test_shards_are_those_of_the_index(self):
        index = json.dumps({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}).encode()
        shards = {f"model-{i}.safetensors": b"%d" % i for i in (1, 2, 3)}
        self.serve(SMALL | shards | {"model.safetensors.index.json": index}, large=shards)
        self.download()
        self.assertTrue((self.snapshot / "model-2.safetensors").exists())
        self.assertFalse((self.snapshot / "model-3.safetensors").exists())
        for name, words in (("../../evil.safetensors", "is no name of a safetensors file"), ({}, "has no weight_map"),
                            ("model-9.safetensors", "the repository does not have")):
            bad = json.dumps({"weight_map": {"a": name}}).encode()
            self.serve(SMALL | {"model.safetensors.index.json": bad, "../../evil.safetensors": b""})
            self.assertIn(words, self.error())

    def test_named_chat_templates_come_along(self):
        named = "additional_chat_templates"
        self.serve(CHECKPOINT | {f"{named}/tool_use.jinja": b"tools", f"{named}/a.md": b"",
                                 f"other/{named}/b.jinja": b"", "special_tokens_map.json": b"{}"})
        self.download()
        folder = self.snapshot / named
        self.assertEqual([path.name for path in folder.iterdir()], ["tool_use.jinja"])
        self.assertEqual((folder / "tool_use.jinja").read_bytes(), b"tools")
        self.assertTrue((self.snapshot / "special_tokens_map.json").exists())

    def test_all_parts_of_a_gguf_model_are_downloaded(self):
        parts = [f"q/m-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
        self.serve(CHECKPOINT | {part: part.encode() for part in parts} | {"q/n-00001-of-00002.gguf": b"n"})
        out, _ = self.download(f"{NAME}/{parts[0]}")
        self.assertEqual(out, f"{self.snapshot}/{parts[0]}\n")
        for part in parts:
            self.assertEqual((self.snapshot / part).read_bytes(), part.encode())
        self.assertFalse((self.snapshot / "q/n-00001-of-00002.gguf").exists())

    def test_one_gguf_file_is_downloaded_alone(self):
        self.serve(CHECKPOINT | {"big/m-Q8_0.gguf": WEIGHTS, "m-Q4_0.gguf": b"4"}, large=["big/m-Q8_0.gguf"])
        out, _ = self.download(f"{NAME}/big/m-Q8_0.gguf")
        self.assertEqual(out, f"{self.snapshot}/big/m-Q8_0.gguf\n")
        self.assertEqual(pathlib.Path(out.strip()).read_bytes(), WEIGHTS)
        self.assertEqual([path.name for path in self.snapshot.iterdir()], ["big"])

    def test_a_later_commit_does_not_hide_the_other_models(self):
        index = json.dumps({"weight_map": {"a": "model-1.safetensors"}}).encode()
        sharded = SMALL | {"model.safetensors.index.json": index, "model-1.safetensors": b"1"}
        for checkpoint in (CHECKPOINT, sharded):
            with self.subTest(sorted(checkpoint)):
                self.setUp()
                self.serve(checkpoint | {"a.gguf": b"a", "b.gguf": b"b", "c/c.gguf": b"c"})
                for name in (NAME, f"{NAME}/a.gguf", f"{NAME}/c/c.gguf"):
                    self.download(name)
                self.hub.commit = LATER
                self.hub.files["c/c.gguf"] = b"changed"
                self.download(f"{NAME}/b.gguf")
                self.assertEqual((self.folder / "refs/main").read_text(), LATER)
                later = self.folder / "snapshots" / LATER
                self.assertEqual((later / "a.gguf").read_bytes(), b"a")
                self.assertFalse((later / "c/c.gguf").exists(), "this is another file now")
                for name in set(checkpoint) - {"README.md", "pytorch_model.bin", "consolidated.safetensors"}:
                    self.assertTrue((later / name).exists(), name)

    def test_a_checkpoint_that_has_changed_is_not_found_in_part(self):
        self.serve(CHECKPOINT | {"b.gguf": b"b"})
        self.download()
        self.hub.commit = LATER
        self.hub.files["tokenizer.json"] = b'{"changed": 1}'
        self.download(f"{NAME}/b.gguf")
        self.assertEqual([path.name for path in (self.folder / "snapshots" / LATER).iterdir()], ["b.gguf"])

    def test_temporary_names_are_not_those_of_another_pod(self):
        # Its process has the same id, because every container counts its own processes.
        others = [self.snapshot / f".config.json.{os.getpid()}", self.folder / "refs" / f".main.{os.getpid()}"]
        for other in others:
            other.parent.mkdir(parents=True)
            other.write_text("other")
        self.download()
        self.assertEqual([other.read_text() for other in others if other.exists()], ["other", "other"])

    def test_the_files_are_those_that_the_worker_reads(self):
        text = (SOURCE / "worker/model/model.cc").read_text()
        lists = re.findall(r"(?:kOptionalFiles\[\] = |const char\* name : )\{([^}]*)\}", text)
        self.assertEqual(len(lists), 2)
        names = set(re.findall(r'"([^"]*)"', "".join(lists)))
        self.assertEqual(set(sys.modules["hub_download"].SMALL_FILES), names | {"config.json"})
        folder = re.search(r'kAdditionalTemplates\[\] = "([^"]*)"', text)[1]
        self.assertTrue(sys.modules["hub_download"].NAMED_TEMPLATES.startswith(folder + "/"))

    def test_what_quire_cannot_read_is_not_downloaded(self):
        for files, argument, words in (
                ({"m-Q4_0.gguf": b"1234", "big/x.GGUF": b""}, NAME,
                 [f"{NAME} has no config.json; its GGUF files are:", f"\n  {NAME}/m-Q4_0.gguf (4 bytes)",
                  f"\n  {NAME}/big/x.GGUF"]),
                ({"m-Q4_0.gguf": b"1234"}, f"{NAME}/q.gguf", [f"there is no {NAME}/q.gguf; its GGUF files are:"]),
                ({"config.json": b"{}"}, f"{NAME}/q.gguf", ["it has no GGUF file either"]),
                ({"m-00001-of-00002.gguf": b""}, f"{NAME}/m-00001-of-00002.gguf",
                 [f"there is no {NAME}/m-00002-of-00002.gguf"]),
                ({"m-00002-of-00002.gguf": b""}, f"{NAME}/m-00002-of-00002.gguf",
                 [f"is not the first part of its model, which is {NAME}/m-00001-of-00002.gguf"]),
                (SMALL, NAME, ["has neither model.safetensors nor", "pytorch_model.bin is a pickle"])):
            self.serve(files)
            error = self.error(argument)
            for word in words:
                self.assertIn(word, error)
            self.assertEqual(len(self.hub.seen), 1)

    def test_what_servers_say_cannot_steer_the_terminal(self):
        bad = {"\x1b[2J.gguf": b"", "../up.gguf": b"", "a.gguf": b""}
        self.serve(bad)
        error = self.error()
        self.assertIn(f"its GGUF files are:\n  {NAME}/a.gguf (0 bytes)\n", error)
        self.assertNotIn("\x1b", error)
        self.assertNotIn("../up", error)
        self.serve({"config.json": b"{}", "\x1b[2J.bin": b"", "good.bin": b""})
        error = self.error()
        self.assertIn("good.bin is a pickle", error)
        self.assertNotIn("\x1b", error)
        for line in (b"HTTP/1.1 400 \x1b[2J\x9b\r\n\r\n", b"\x1b[2J\r\n\r\n"):
            self.hub.faults["list"] = [lambda h, line=line: h.raw(line)]
            self.assertNotRegex(self.error("--retries=0", NAME), "[\x1b\x9b]")

    def test_wrong_command_lines_are_explained(self):
        for argument, words in ((f"{NAME}:Q4_K_M", "hf:owner/name/FILE.gguf"), ("hf:name", "MODEL is hf:name, a"),
                                ("hf:../x", "a name of a model must be"), (f"{NAME}@../x", 'its revision "../x" must'),
                                (f"{NAME}/config.json", 'its file "config.json" must be a GGUF file'),
                                ("--retries=-1", "0 to 1000"), ("--timeout=0", "must be above 0"),
                                ("--deadline=3x", "it is 3x, it must be a time such as 500ms, 30s or 1h30m"),
                                ("--deadline=1e3s", "it is 1e3s"), ("--deadline=3 s", "it is 3 s"),
                                ("--deadline=", "it is , it must be a time"), ("--retry-wait=nan", "it is nan"),
                                ("--deadline=9999h", "at most 10000000 seconds")):
            self.assertIn(words, self.error(argument, code=2))
        for variables, words in (({"HF_ENDPOINT": "ftp://x"}, "must be https://HOST"),
                                 ({"HF_ENDPOINT": "http://x:y"}, "must be https://HOST"),
                                 ({"HF_ENDPOINT": "http://example.invalid", "HF_TOKEN": TOKEN}, "in plain text"),
                                 ({"HF_TOKEN": "a\nb"}, "characters that no token has")):
            self.assertIn(words, self.error(NAME, **variables))
        self.assertIn("HF_TOKEN", self.download("--help")[0])

    def test_times_are_written_as_those_of_the_other_programs(self):
        for text, seconds in (("3s", 3), ("500ms", 0.5), ("1h30m", 5400), ("1.5m", 90), ("2h0.5s", 7200.5), ("30", 30),
                              ("0.25", 0.25), (".5s", 0.5)):
            self.assertAlmostEqual(PROGRAM.seconds(text), seconds)

    def test_the_version_is_that_of_the_other_programs(self):
        header = (SOURCE / "base/version.h").read_text()
        version = re.search(r'kVersion\[\] = "(.*)"', header)[1]
        self.assertEqual(self.download("--version")[0], f"quire-download {version}\n")

    def test_a_cut_connection_continues_where_it_was_cut(self):
        self.hub.faults["model.safetensors"] = [lambda h: h.cut(WEIGHTS, 3000000),
                                                lambda h: h.cut(WEIGHTS, 500000, start=3000000)]
        _, err = self.download()
        self.assertEqual(self.ranges(), [None, "bytes=3000000-", "bytes=3500000-"])
        self.assertIn("the connection was cut after 3000000 of 10240000 bytes; the next try is in", err)
        self.assertEqual((self.snapshot / "model.safetensors").read_bytes(), WEIGHTS)

    def test_progress_is_not_limited_and_its_lack_is(self):
        size = 1000000
        self.hub.faults["model.safetensors"] = [
            lambda h, i=i: h.cut(WEIGHTS, size, start=i * size) for i in range(8)]
        self.download("--retries=1", NAME)
        (self.snapshot / "model.safetensors").resolve().unlink()
        self.hub.faults["model.safetensors"] = [lambda h: h.cut(WEIGHTS, size)] * 9
        self.hub.has_ranges = False
        error = self.error("--retries=2", NAME)
        self.assertIn("given up after 3 tries without progress, the next run continues from here", error)
        self.assertEqual(self.partial().stat().st_size, size)

    def test_the_next_run_continues_where_the_last_one_stopped(self):
        self.leave(WEIGHTS[:4000000])
        self.download()
        self.assertEqual(self.ranges(), ["bytes=4000000-"])
        self.assertEqual((self.snapshot / "model.safetensors").read_bytes(), WEIGHTS)

    def test_a_file_that_was_complete_but_not_named_is_not_asked_for(self):
        self.leave(WEIGHTS)
        self.download()
        self.assertEqual(self.ranges(), [])

    def test_wrong_or_too_long_rests_begin_again(self):
        for rest, count in ((b"x" * 4000000, 2), (WEIGHTS + b"x", 1)):
            with self.subTest(len(rest)):
                self.setUp()
                self.leave(rest)
                _, err = self.download()
                self.assertEqual(len(self.ranges()), count)
                self.assertEqual("what an earlier download has left is wrong" in err, count == 2)
                self.assertEqual((self.snapshot / "model.safetensors").read_bytes(), WEIGHTS)

    def test_a_server_without_ranges_or_with_wrong_ones_sends_the_whole_file(self):
        self.leave(WEIGHTS[:4000000])
        self.hub.faults["model.safetensors"] = [lambda h: h.cut(WEIGHTS, 10, start=5)]
        self.assertIn("another part than bytes 4000000 and on", self.download()[1])
        (self.snapshot / "model.safetensors").resolve().unlink()
        self.partial().write_bytes(WEIGHTS[:4000000])
        self.hub.has_ranges = False
        self.download()
        self.assertEqual((self.snapshot / "model.safetensors").read_bytes(), WEIGHTS)

    def test_wrong_checksums_and_sizes_never_get_a_name(self):
        for name in ("model.safetensors", "config.json"):
            with self.subTest(name):
                self.setUp()
                right = self.hub.files[name]
                self.hub.faults[name] = [lambda h, data=right: h.answer(200, b"x" + data[1:])]
                error = self.error()
                self.assertRegex(error, f"{name}: the sha(1|256) of what the server has sent is [0-9a-f]+, the hub")
                self.assertFalse(self.partial(name).exists())
                self.assertFalse((self.snapshot / name).exists())
                self.assertFalse((self.folder / "refs/main").exists(), "a worker would find it")
        self.hub.faults["config.json"] = [lambda h: h.answer(200, SMALL["config.json"] + b"more")]
        self.assertIn("config.json: the server sends more than the 8 bytes that the hub lists", self.error())

    def test_lists_that_would_lead_out_of_the_cache_are_refused(self):
        for listed in ({"blobId": "../../../x"}, {"blobId": None}, {"size": -1}, {"size": "1"}):
            self.hub.listed["config.json"] = listed
            self.assertIn("config.json: the hub lists no size and checksum of it", self.error())
        for size in ("1", -1, None, 10 ** 400):
            self.serve({"a.gguf": b""})
            self.hub.listed["a.gguf"] = {"size": size}
            self.assertIn(f"its GGUF files are:\n  {NAME}/a.gguf\n", self.error())
            self.assertIn("a.gguf: the hub lists no size and checksum of it", self.error(f"{NAME}/a.gguf"))
        for body in (b"<html>", b"[]", b"{}", b'{"sha": "../x", "siblings": []}', b'{"sha": 1, "siblings": [1]}',
                     b'{"sha": 1, "siblings": [{"rfilename": []}]}'):
            self.hub.faults["list"] = [lambda h, body=body: h.answer(200, body)]
            self.assertRegex(self.error(), "sends no list of files as the hub does|the commit is '../x'")

    def test_json_that_would_break_or_stop_the_reader_is_an_error_of_one_line(self):
        deep = b"[" * 200000
        for body, words in ((deep, "nested too deeply"), (b'{"a":' * 200000, "nested too deeply"),
                            (b"[" + b"{}," * 2000000 + b"1]", "more than 4000000"),
                            (b'{"sha": %s}' % (b"1" * 100000), "an integer has 100000 digits"),
                            (b'{"sha": "\xff"}', "no list of files"),
                            (b'{"sha": %s, "siblings": []}' % (b"1" * 40), "it must have 40 hexadecimal digits"),
                            (b'{"sha": 1e400, "siblings": []}', "the commit is inf"),
                            (b'{"sha": "", "siblings": [%s1]}' % (b"1," * 200000), "it has 200001 files"),
                            (b'{"sha": null, "siblings": []}', "the commit is None")):
            self.hub.faults["list"] = [lambda h, body=body: h.answer(200, body)]
            error = self.error()
            self.assertIn(words, error)
            self.assertEqual(error.count("\n"), 1, error)
        self.serve(SMALL | {"model.safetensors.index.json": deep})
        self.assertTrue(self.error(NAME, "--quiet").startswith(
            "quire-download: model.safetensors.index.json has no weight_map (ValueError('it is nested too deeply'))"))
        self.hub.listed["model.safetensors.index.json"] = {"size": (64 << 20) + 1}
        self.assertIn("model.safetensors.index.json has 67108865 bytes, at most 67108864 are read", self.error())

    def test_a_digest_that_is_a_number_is_no_digest(self):
        self.hub.listed["config.json"] = {"blobId": 10 ** 39}
        self.assertIn("config.json: the hub lists no size and checksum of it", self.error())

    def test_long_numbers_in_headers_are_no_numbers(self):
        long = "9" * 5000
        self.hub.faults["config.json"] = [lambda h: h.answer(503, Retry_After=long),
                                          lambda h: h.cut(SMALL["config.json"], 4),
                                          lambda h: h.answer(206, b"", Content_Range=f"bytes {long}-8/8")]
        self.assertIn("another part than bytes 4 and on", self.download()[1])

    def test_a_reference_of_the_cache_that_is_no_text_counts_as_absent(self):
        self.download()
        (self.folder / "refs" / "main").write_bytes(b"\xff\xfe")
        self.hub.faults["list"] = [lambda h: h.answer(503)] * 9
        self.assertIn("given up after 1 tries", self.error(NAME, "--retries=0"))

    def test_the_token_is_for_the_hub_alone(self):
        self.download(HF_TOKEN=TOKEN)
        sent = {(server, headers.get("Authorization")) for server, _, headers in self.hub.seen}
        self.assertEqual(sent, {("hub", f"Bearer {TOKEN}"), ("store", None)})

    def test_no_proxy_gets_what_is_for_this_machine(self):
        proxy = LocalHub({})
        self.addCleanup(proxy.close)
        self.download(HF_TOKEN=TOKEN, http_proxy=proxy.hub.url)
        self.assertEqual(proxy.seen, [])
        self.error("--retries=0", NAME, HF_ENDPOINT="http://example.invalid", http_proxy=proxy.hub.url)
        self.assertEqual(len(proxy.seen), 1)

    def test_a_redirect_from_tls_to_plain_text_is_refused(self):
        opener = mock.Mock()
        for target in ("http://store.example/file", "HTTP://hub.example/file"):
            found = email.message.Message()
            found["Location"] = target
            opener.open.side_effect = [urllib.error.HTTPError("", 302, "Found", found, io.BytesIO())]
            with mock.patch.object(PROGRAM.Hub, "opener_for", return_value=opener):
                error = self.error("--retries=0", NAME, HF_ENDPOINT="https://hub.example")
            self.assertIn(f"hub.example redirects to '{target}', which is no address with TLS", error)

    def test_redirects_are_limited_and_stay_with_http(self):
        self.hub.faults["list"] = [lambda h: h.answer(307, Location=f"/api/models/new/name/revision/main")] * 2
        self.assertTrue(self.download()[0])
        self.hub.faults["config.json"] = [lambda h: h.answer(302, Location=h.path)] * 9
        (self.snapshot / "config.json").resolve().unlink()
        self.assertIn("config.json: more than 5 redirects", self.error())
        self.hub.faults["config.json"] = [lambda h: h.answer(302, Location="file:///etc/hostname")]
        self.assertIn("redirects to 'file:///etc/hostname', which is no address with TLS", self.error())
        self.hub.faults["config.json"] = [lambda h: h.answer(302, Location="http://[::x:y/")]
        self.assertIn("redirects to 'http://[::x:y/'", self.error())
        for address in ("http://a..b/", f"http://{'a' * 64}.example/"):
            self.hub.faults["config.json"] = [lambda h, address=address: h.answer(302, Location=address)]
            self.assertIn(f"config.json: '{address}' is no valid address", self.error())
        self.hub.faults["config.json"] = [
            lambda h: h.answer(302, Location=f"{self.hub.store.url}/a/\u00e4 b/resolve/x/config.json")]
        self.download()
        self.assertEqual(self.hub.seen[-1][1], "/a/\ufffd b/resolve/x/config.json")

    def test_refusals_say_what_to_do(self):
        for code, header, variables, words in (
                (401, "", {}, "answers 401: there is no such model, or it is private; a private model needs HF_TOKEN"),
                (401, "", {"HF_TOKEN": TOKEN}, "or it is private and HF_TOKEN may not read it"),
                (403, "", {}, "its terms must be accepted on the page of the model"),
                (401, "GatedRepo", {"HF_TOKEN": TOKEN}, "an account that has done so (it is set)"),
                (404, "RepoNotFound", {}, "answers 404: there is no such model"),
                (404, "RevisionNotFound", {}, "answers 404: there is no such revision"),
                (400, "", {}, "answers 400 Bad Request")):
            self.hub.faults["list"] = [lambda h, code=code, header=header: h.answer(code, X_Error_Code=header)]
            seen = len(self.hub.seen)
            self.assertIn(f"quire-download: {NAME}@main: 127.0.0.1 {words}" if words.startswith("answers") else words,
                          self.error(**variables))
            self.assertEqual(len(self.hub.seen), seen + 1, "another try is useless")

    def test_an_unknown_option_is_told_what_was_meant(self):
        for argument, hint in (("--retires=3", "--retires=3; did you mean --retries?\n"), ("--zebra", "--zebra\n")):
            _, err = self.download(NAME, argument, code=2)
            self.assertIn(f"quire-download: error: unexpected argument {hint}", err)

    def test_busy_servers_are_asked_again(self):
        self.hub.faults["list"] = [lambda h: h.answer(429, Retry_After="1"), lambda h: h.answer(503)]
        self.hub.faults["model.safetensors"] = [lambda h: h.answer(500), lambda h: h.answer(416)]
        _, err = self.download()
        self.assertIn("answers 429; the next try is in 1.0 s", err)
        self.assertIn("answers 503; the next try is in 0.0 s", err)
        self.assertIn("model.safetensors: 127.0.0.1 answers 500", err)
        self.hub.faults["list"] = [lambda h: h.answer(503)] * 9
        self.assertIn("answers 503; given up after 3 tries", self.error("--retries=2", f"{NAME}@v1"))

    def test_an_address_that_has_expired_is_asked_for_again(self):
        self.hub.faults["model.safetensors"] = [lambda h: h.cut(WEIGHTS, 1000000), lambda h: h.answer(403)]
        self.assertIn("model.safetensors: 127.0.0.1 answers 403; the next try", self.download()[1])
        self.assertEqual(len(self.hub.requests("model.safetensors", "hub")), 3)

    def test_a_hung_server_is_left(self):
        self.hub.faults["list"] = [lambda h: h.hang()]
        self.hub.faults["model.safetensors"] = [lambda h: h.cut(WEIGHTS, 1000000) and h.wfile.flush() or h.hang()]
        _, err = self.download("--timeout=0.5", NAME)
        self.assertEqual(err.count("127.0.0.1 has sent nothing for 0.5 s (--timeout); the next try is in"), 2, err)
        self.assertEqual(self.ranges(), [None, "bytes=1000000-"])

    def test_the_deadline_ends_everything(self):
        self.hub.faults["model.safetensors"] = [lambda h: h.hang()] * 9
        error = self.error("--timeout=0.2", "--retries=1000", "--deadline=2", NAME)
        self.assertIn("the deadline of 2 s (--deadline) has passed; the next run continues from here", error)

    def test_the_deadline_ends_an_answer_that_comes_byte_by_byte(self):
        for begin in (b"HTTP/1.1 200 OK\r\nX-Long: ", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"):
            self.hub.faults["model.safetensors"] = [lambda h, begin=begin: h.trickle(begin)]
            begun = time.monotonic()
            error = self.error("--timeout=30", "--deadline=1", NAME)
            self.assertIn("the deadline of 1 s (--deadline) has passed; the next run continues from here", error)
            self.assertLess(time.monotonic() - begun, 20, "the server continues for 40 s")

    def test_a_server_that_is_not_there_is_named(self):
        self.assertIn("127.0.0.1: [Errno 111] Connection refused; given up after 2 tries",
                      self.error("--retries=1", NAME, HF_ENDPOINT="http://127.0.0.1:1"))

    def test_without_the_hub_the_cache_is_enough(self):
        nowhere = {"HF_ENDPOINT": "http://127.0.0.1:1"}
        self.download()
        for name in (NAME, f"{NAME}@{COMMIT}"):
            out, err = self.download("--retries=0", name, **nowhere)
            self.assertEqual(out, f"{self.snapshot}\n")
            self.assertIn("refused; given up after 1 tries without progress", err)
            self.assertIn("the cache has the model as the hub had it before", err)
        self.error("--retries=0", f"{NAME}@other", **nowhere)
        (self.snapshot / "model.safetensors").unlink()
        self.error("--retries=0", NAME, **nowhere)

    def test_without_the_files_of_a_later_commit_the_cache_is_enough(self):
        self.download()
        self.hub.commit = LATER
        for name in ("model.safetensors", "tokenizer.json"):
            self.hub.files[name] = b"changed"
            self.hub.faults[name] = [lambda h: h.answer(503)] * 9
            out, err = self.download("--retries=1", NAME)
            self.assertEqual(out, f"{self.snapshot}\n")
            self.assertIn("the cache has the model as the hub had it before", err)
            self.assertEqual((self.folder / "refs/main").read_text(), COMMIT)
        self.error("--retries=1", f"{NAME}@{LATER}")

    def test_a_full_disk_is_found_before_the_download(self):
        self.hub.listed["model.safetensors"] = {"lfs": {"sha256": "0" * 64, "size": 10 ** 18}}
        self.assertRegex(self.error(), rf"1000000000\.0 GB are missing, and {self.cache} has [0-9.]+ [kMG]?B free")
        self.assertEqual(self.ranges(), [])

    def test_a_cache_that_cannot_be_written_is_named(self):
        blocked = self.cache.parent / "file"
        blocked.write_text("")
        self.assertIn(f"quire-download: {blocked}", self.error(HF_HUB_CACHE=str(blocked)))

    def test_two_downloads_at_once_receive_each_file_once(self):
        processes = [self.start(), self.start()]
        for process in processes:
            with process:  # The program as people start it.
                out, err = process.communicate(timeout=120)
                self.assertEqual((process.returncode, out), (0, f"{self.snapshot}\n"), err)
        self.assertEqual(len(self.ranges()), 1)

    def test_the_lock_of_another_program_is_waited_for(self):
        blob = digest(WEIGHTS, True)
        lock = self.cache / ".locks/models--owner--name" / f"{blob}.lock"
        lock.parent.mkdir(parents=True)
        with contextlib.ExitStack() as stack:
            handle = stack.enter_context(open(lock, "w", encoding="utf-8"))
            fcntl.flock(handle, fcntl.LOCK_EX)
            process = stack.enter_context(self.start())
            for line in process.stderr:
                if "another process downloads model.safetensors" in line:
                    break
            (self.folder / "blobs" / blob).write_bytes(WEIGHTS)
            fcntl.flock(handle, fcntl.LOCK_UN)
            process.communicate(timeout=120)
            self.assertEqual(process.returncode, 0)
        self.assertEqual(self.ranges(), [], "the other process has downloaded it")

    def test_a_worker_finds_what_was_downloaded(self):
        if not (BINARIES / "quire-worker").exists():
            self.skipTest("this build has no quire-worker")
        model = SOURCE / "tests/golden/models/llama2"
        self.serve({path.name: path.read_bytes() for path in model.iterdir()}, large=["model.safetensors"])
        command = [BINARIES / "quire-worker", f"--explain-memory={NAME}"]
        environment = {"HF_HUB_CACHE": str(self.cache)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
        self.assertIn(f'"quire-download {NAME}"', done.stderr)
        self.download()
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    BINARIES = pathlib.Path(sys.argv.pop(1)).resolve()
    loader = importlib.machinery.SourceFileLoader("quire_download", str(BINARIES / "quire-download"))
    PROGRAM = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(PROGRAM)
    unittest.main()
