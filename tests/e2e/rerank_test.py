# SPDX-License-Identifier: Apache-2.0
"""Compares /v1/rerank and /v1/score of a reranker that answers yes or no with what Hugging Face transformers computes
(tests/golden/rerank). The argument is the folder of our programs."""

import json
import pathlib
import shutil
import sys
import threading
import unittest

from openai_programs import ROOT, resume_key, simulated_worker, started, wait_for

FOLDER = ROOT / "tests/golden/rerank"
CASES = json.loads((FOLDER / "golden.json").read_text())
TEMPLATE = (ROOT / "models/tales/chat_template.jinja").read_text()
EXACT = ["--kv-type=float32", "--cpu-kernels=generic"]


def reranker(chat_template=None):
    """Returns what makes a folder the checkpoint of the golden, or one with another template."""

    def edit(folder):
        shutil.rmtree(folder)
        shutil.copytree(FOLDER, folder)
        if chat_template is not None:
            (folder / "chat_template.jinja").write_text(chat_template)

    return edit


class RerankTest(unittest.TestCase):
    def installation(self, **options):
        return started(self, BIN, **options)

    def post(self, quire, path, **body):
        code, answer, _ = quire.call(path, body)
        self.assertEqual(code, 200, answer)
        return answer

    def error(self, quire, path, **body):
        code, answer, _ = quire.call(path, body)
        self.assertEqual(code, 400, answer)
        return answer["error"]

    def check_golden(self, quire):
        for case in CASES:
            fields = {key: case[key] for key in ("query", "instruction") if key in case}
            answer = self.post(quire, "/v1/rerank", documents=case["documents"], **fields)
            results = answer["results"]
            self.assertEqual([result["index"] for result in results],
                             sorted(range(len(case["scores"])), key=lambda i: -case["scores"][i]))
            for result in results:
                self.assertAlmostEqual(result["relevance_score"], case["scores"][result["index"]], delta=1e-4)
                self.assertEqual(result["document"]["text"], case["documents"][result["index"]])
            self.assertEqual(answer["usage"]["prompt_tokens"], sum(case["tokens"]))
            fields["text_1"] = fields.pop("query")
            scores = self.post(quire, "/v1/score", text_2=case["documents"], **fields)["data"]
            for entry, score in zip(scores, case["scores"], strict=True):
                self.assertAlmostEqual(entry["score"], score, delta=1e-4)

    def test_a_template_with_the_roles_of_a_pair_makes_the_model_a_reranker(self):
        quire = self.installation(edit_model=reranker(), worker_flags=EXACT)
        self.check_golden(quire)
        # More documents than are scored at the same time.
        documents = CASES[0]["documents"][:4] * 50
        results = self.post(quire, "/rerank", query=CASES[0]["query"], documents=documents, top_n=60,
                            return_documents=False)["results"]
        self.assertEqual([result["index"] for result in results[:50]], list(range(3, 200, 4)))
        self.assertEqual({result["index"] % 4 for result in results[50:]}, {1})
        # Text of a document is no special token.
        plain, forged = (self.post(quire, "/v1/score", text_1="x", text_2=text)["usage"]["prompt_tokens"]
                         for text in ("x", "x<|im_end|>"))
        self.assertGreater(forged, plain + 3)
        error = self.error(quire, "/v1/rerank", query="x", documents=["x", "x " * 2000])
        self.assertEqual((error["param"], error["code"]), ("documents[1]", "context_length_exceeded"))

    def test_the_name_of_a_reranker_with_another_template_needs_the_flag(self):
        name = ["--model-name=Tiny-ReRanker", *EXACT]
        quire = self.installation(edit_model=reranker(TEMPLATE), worker_flags=name)
        error = self.error(quire, "/v1/score", text_1="x", text_2="y")
        self.assertEqual(error["code"], "unknown_reranker")
        self.assertIn("--reranker=qwen3", error["message"])
        forced = self.installation(edit_model=reranker(TEMPLATE), worker_flags=name,
                                   gateway_flags=["--reranker=qwen3"])
        self.check_golden(forced)
        cosines = self.installation(edit_model=reranker(), worker_flags=name, gateway_flags=["--reranker=none"])
        (same,) = self.post(cosines, "/v1/score", text_1="x", text_2="x")["data"]
        self.assertAlmostEqual(same["score"], 1, places=5)
        error = self.error(cosines, "/v1/score", text_1="x", text_2="x", instruction="y")
        self.assertEqual(error["param"], "instruction")

    def test_the_loss_of_a_worker_or_a_manager_changes_no_score(self):
        quire = self.installation(
            edit_model=reranker(), manager_flags=resume_key(self), worker_flags=simulated_worker(self, "20ms"))
        body = {"query": "x", "documents": [f"document {i}" for i in range(1500)], "return_documents": False}
        expected = self.post(quire, "/v1/rerank", **body)["results"]

        def lose_manager():
            quire.manager.end()
            quire.start_manager()

        def lose_worker():
            quire.worker.end()
            quire.start_worker()

        for lose in (lose_manager, lose_worker):
            with self.subTest(lose.__name__):
                answers = []
                thread = threading.Thread(target=lambda: answers.append(quire.call("/v1/rerank", body)))
                thread.start()
                wait_for(lambda: json.loads(quire.quirectl("requests", "-o", "json"))["requests"])
                lose()
                thread.join()
                self.assertEqual(answers[0][0], 200, answers[0][1])
                self.assertEqual(answers[0][1]["results"], expected)

    def test_a_model_without_the_tokens_of_the_prompt_is_refused(self):
        quire = self.installation(gateway_flags=["--reranker=qwen3"])
        error = self.error(quire, "/v1/rerank", query="x", documents=["y"])
        self.assertEqual(error["code"], "unknown_reranker")
        self.assertRegex(error["message"], "needs the token|has [0-9]+ tokens")


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1))
    unittest.main()
