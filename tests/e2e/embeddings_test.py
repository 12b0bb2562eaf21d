# SPDX-License-Identifier: Apache-2.0
"""Compares /v1/embeddings, /v1/rerank and /v1/score of quire-openai with Sentence Transformers, for checkpoints with
its files. The argument is the folder of our programs."""

import base64
import importlib.util
import json
import math
import pathlib
import struct
import sys
import threading
import unittest

from openai_programs import ROOT, started

GOLDEN = json.loads((ROOT / "tests/golden/embeddings/tales.json").read_text())
TEXTS = GOLDEN["texts"]
SIZE = 128
CONTEXT = 1024


def checkpoint(name):
    """Returns what makes a copy of the bundled model the checkpoint of this golden."""

    def edit(folder):
        for path, content in GOLDEN[name]["files"].items():
            (folder / path).parent.mkdir(exist_ok=True)
            (folder / path).write_text(json.dumps(content))
        if "post_processor" in GOLDEN[name]:
            tokenizer = json.loads((folder / "tokenizer.json").read_text())
            tokenizer["post_processor"] = GOLDEN[name]["post_processor"]
            (folder / "tokenizer.json").write_text(json.dumps(tokenizer))

    return edit


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True)) / (math.hypot(*a) * math.hypot(*b))


class Embeddings(unittest.TestCase):
    def installation(self, **options):
        return started(self, BIN, **options)

    def embed(self, quire, **body):
        code, answer, _ = quire.call("/v1/embeddings", body)
        self.assertEqual(code, 200, answer)
        self.assertEqual([entry["index"] for entry in answer["data"]], list(range(len(answer["data"]))))
        return [entry["embedding"] for entry in answer["data"]], answer

    def error(self, quire, path, body, code=400):
        status, answer, _ = quire.call(path, body)
        self.assertEqual(status, code, answer)
        return answer["error"]


class GoldenTest(Embeddings):
    def check(self, name):
        quire = self.installation(edit_model=checkpoint(name))
        vectors, answer = self.embed(quire, input=TEXTS)
        for vector, expected in zip(vectors, GOLDEN[name]["vectors"], strict=True):
            self.assertGreater(cosine(vector, expected), 0.9999)
            self.assertAlmostEqual(math.hypot(*vector), math.hypot(*expected), delta=0.01 * math.hypot(*expected))
        self.assertEqual(answer["usage"]["prompt_tokens"], sum(len(ids) for ids in GOLDEN[name]["tokens"]))
        # Token ids are used as they are.
        (again,), _ = self.embed(quire, input=GOLDEN[name]["tokens"][0])
        self.assertGreater(cosine(again, vectors[0]), 0.99999)
        (alone,), _ = self.embed(quire, input=TEXTS[0])
        self.assertGreater(cosine(alone, vectors[0]), 0.99999)
        return quire

    def test_the_last_token_behind_an_end_token_that_the_tokenizer_appends(self):
        self.check("lasttoken")

    def test_the_mean_of_all_tokens(self):
        self.check("mean")

    def test_the_first_token_without_normalization(self):
        self.check("cls")

    def test_a_worker_with_small_steps_adds_the_same_mean(self):
        quire = self.installation(edit_model=checkpoint("mean"), manager_flags=["--max-chunk-tokens=5"])
        vectors, _ = self.embed(quire, input=TEXTS)
        for vector, expected in zip(vectors, GOLDEN["mean"]["vectors"], strict=True):
            self.assertGreater(cosine(vector, expected), 0.9999)

    def test_orders_and_scores_are_the_cosines_of_the_embeddings(self):
        quire = self.installation(edit_model=checkpoint("mean"))
        query, *documents = GOLDEN["mean"]["vectors"]
        expected = [cosine(query, document) for document in documents]
        code, answer, _ = quire.call("/v1/rerank", {"query": TEXTS[0], "documents": TEXTS[1:], "model": "caller"})
        self.assertEqual(code, 200, answer)
        results = answer["results"]
        scores = [result["relevance_score"] for result in results]
        self.assertEqual(scores, sorted(scores, reverse=True))
        self.assertEqual(sorted(result["index"] for result in results), [0, 1, 2])
        for result in results:
            self.assertAlmostEqual(result["relevance_score"], expected[result["index"]], delta=0.002)
            self.assertEqual(result["document"]["text"], TEXTS[1:][result["index"]])
        body = {"query": TEXTS[0], "documents": [{"text": t} for t in TEXTS[1:]], "top_n": 1, "return_documents": False}
        for path in ("/rerank", "/v2/rerank"):
            (best,) = quire.call(path, body)[1]["results"]
            self.assertEqual(best, {key: results[0][key] for key in ("index", "relevance_score")})
        code, answer, _ = quire.call("/v1/score", {"text_1": TEXTS[0], "text_2": TEXTS[1:]})
        self.assertEqual(code, 200, answer)
        for entry, score in zip(answer["data"], expected, strict=True):
            self.assertAlmostEqual(entry["score"], score, delta=0.002)
        pairs = {"text_1": TEXTS[1:], "text_2": TEXTS[1:]}
        for entry in quire.call("/score", pairs)[1]["data"]:
            self.assertAlmostEqual(entry["score"], 1, places=5)
        self.assertEqual(self.error(quire, "/v1/score", {"text_1": TEXTS[:2], "text_2": TEXTS[:3]})["param"], "text_1")
        self.assertEqual(self.error(quire, "/v1/rerank", {"query": "x", "documents": []})["param"], "documents")
        long = {"query": "x", "documents": ["x", "x " * 2000]}
        self.assertEqual(self.error(quire, "/v1/rerank", long)["param"], "documents[1]")


class FieldsTest(Embeddings):
    """The bundled model, whose checkpoint says nothing about embeddings: the last state, normalized."""

    @classmethod
    def setUpClass(cls):
        cls.quire = started(cls, BIN)

    def test_the_answer_is_that_of_openai(self):
        vectors, answer = self.embed(self.quire, input=["Once", "upon"], model="tales", user="me")
        self.assertEqual(answer["object"], "list")
        self.assertEqual(answer["model"], "tales")
        self.assertEqual(answer["data"][0]["object"], "embedding")
        self.assertEqual(answer["usage"]["total_tokens"], answer["usage"]["prompt_tokens"])
        for vector in vectors:
            self.assertEqual(len(vector), SIZE)
            self.assertAlmostEqual(math.hypot(*vector), 1, places=5)

    def test_base64_has_the_same_floats(self):
        (vector,), _ = self.embed(self.quire, input="Once", encoding_format="float")
        (encoded,), _ = self.embed(self.quire, input="Once", encoding_format="base64")
        self.assertEqual(list(struct.unpack(f"<{SIZE}f", base64.b64decode(encoded))),
                         list(struct.unpack(f"<{SIZE}f", struct.pack(f"<{SIZE}f", *vector))))

    def test_fewer_dimensions_are_the_first_ones_normalized(self):
        (vector,), _ = self.embed(self.quire, input="Once")
        (short,), _ = self.embed(self.quire, input="Once", dimensions=16)
        self.assertEqual(len(short), 16)
        self.assertAlmostEqual(math.hypot(*short), 1, places=5)
        self.assertGreater(cosine(short, vector[:16]), 0.999999)
        error = self.error(self.quire, "/v1/embeddings", {"input": "Once", "dimensions": SIZE + 1})
        self.assertEqual(error["param"], "dimensions")
        self.assertIn("129, the embeddings of the model have 128 values", error["message"])

    def test_many_inputs_come_in_order(self):
        words = [f"word {i % 50}" for i in range(1500)]
        vectors, answer = self.embed(self.quire, input=words)
        self.assertEqual(len(vectors), 1500)
        for i in range(50, 1500):
            self.assertGreater(cosine(vectors[i], vectors[i % 50]), 0.99999, i)
        self.assertLess(cosine(vectors[0], vectors[1]), 0.9999)
        self.assertGreater(answer["usage"]["prompt_tokens"], 3000)

    def test_errors_name_the_input(self):
        def error(body):
            return self.error(self.quire, "/v1/embeddings", body)

        self.assertEqual(error({})["message"], "input is missing")
        self.assertEqual(error({"input": []})["param"], "input")
        self.assertEqual(error({"input": ["x", 5]})["param"], "input[1]")
        self.assertEqual(error({"input": [[1], [1, "x"]]})["param"], "input[1][1]")
        self.assertEqual(error({"input": [[1], [1, 999999]]})["param"], "input[1][1]")
        self.assertEqual(error({"input": [1, 999999]})["param"], "input[1]")
        too_long = error({"input": ["x", "x"] * 600 + ["x " * 2000]})
        self.assertEqual((too_long["param"], too_long["code"]), ("input[1200]", "context_length_exceeded"))
        self.assertRegex(too_long["message"], rf"^input\[1200\] has \d+ tokens, the model's context is {CONTEXT}$")
        self.assertEqual(error({"input": "x", "encoding_format": "int8"})["param"], "encoding_format")
        self.assertEqual(error({"input": "x", "truncate_prompt_tokens": 5})["code"], "unsupported_parameter")
        self.assertEqual(error({"input": ["x"] * 2049})["message"], "input has 2049 texts, at most 2048 are allowed")
        other = self.error(self.quire, "/v1/embeddings", {"input": "x", "model": "other"}, 404)
        self.assertEqual(other["param"], "model")

    def test_texts_are_embedded_beside_answers(self):
        body = {"prompt": "Once upon a time", "max_tokens": 200, "temperature": 0, "ignore_eos": True}
        story = {}
        thread = threading.Thread(target=lambda: story.update(self.quire.call("/v1/completions", body)[1]))
        alone = self.embed(self.quire, input=TEXTS)[0]
        thread.start()
        for _ in range(5):
            for vector, expected in zip(self.embed(self.quire, input=TEXTS)[0], alone, strict=True):
                self.assertGreater(cosine(vector, expected), 0.99999)
        thread.join()
        self.assertEqual(story["usage"]["completion_tokens"], 200)

    @unittest.skipUnless(importlib.util.find_spec("openai"), "the package openai is missing")
    def test_the_client_of_openai(self):
        import openai

        url = f"http://127.0.0.1:{self.quire.port}/v1"
        with openai.OpenAI(base_url=url, api_key="unused", max_retries=0) as client:
            # It asks for base64 by itself.
            done = client.embeddings.create(model="tales", input=TEXTS, dimensions=32)
            plain = client.embeddings.create(model="tales", input=TEXTS, dimensions=32, encoding_format="float")
        self.assertEqual([len(entry.embedding) for entry in done.data], [32] * len(TEXTS))
        for entry, expected in zip(done.data, plain.data, strict=True):
            self.assertGreater(cosine(entry.embedding, expected.embedding), 0.999999)
        self.assertGreater(done.usage.prompt_tokens, 20)


class RefusedTest(Embeddings):
    def test_a_checkpoint_with_another_module_generates_and_says_why_it_does_not_embed(self):
        def edit(folder):
            checkpoint("mean")(folder)
            modules = GOLDEN["mean"]["files"]["modules.json"]
            dense = {"idx": 3, "name": "3", "path": "3_Dense", "type": "sentence_transformers.models.Dense"}
            (folder / "modules.json").write_text(json.dumps([*modules, dense]))

        quire = self.installation(edit_model=edit)
        error = self.error(quire, "/v1/embeddings", {"input": "x"})
        self.assertEqual(error["code"], "no_embeddings")
        self.assertIn('modules.json: [3].type is "sentence_transformers.models.Dense"', error["message"])
        self.assertEqual(quire.call("/v1/completions", {"prompt": "Once", "max_tokens": 2})[0], 200)

    def test_an_answer_that_would_take_too_much_memory_is_refused_before(self):
        quire = self.installation(gateway_flags=["--max-answer-bytes=1MiB"])
        error = self.error(quire, "/v1/embeddings", {"input": ["x"] * 1000})
        self.assertEqual(error["code"], "answer_too_large")
        self.embed(quire, input=["x"] * 10)


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1))
    unittest.main()
