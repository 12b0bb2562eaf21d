# SPDX-License-Identifier: Apache-2.0
"""Records what jinja2 renders, for the tests of kv_manager/jinja.

    jinja_goldens.py constructs              renders the templates of tests/golden/jinja/constructs.json again: pairs
                                             of a template of our own and its text, or null for an error
    jinja_goldens.py models DIRECTORY        rewrites tests/golden/jinja/models.json: hashes of what the chat templates
                                             DIRECTORY/*.jinja give for tests/golden/jinja/conversations.json
    jinja_goldens.py compare B TEMPLATE...   shows where B (render_template) differs from jinja2 in these conversations,
                                             and counts how often both give the same bytes

Needs the Python packages jinja2 and transformers, whose renderer of chat templates is the reference.
"""

import datetime
import hashlib
import json
import pathlib
import subprocess
import sys

import transformers.utils.chat_template_utils as chat

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "jinja"
NOW = datetime.datetime(2026, 7, 4, 13, 5, 9)


class FixedClock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


chat.datetime = FixedClock


def render(source, variables):
    """The text that the template gives, or None when it fails to compile or render."""
    try:
        return chat._compile_jinja_template(source).render(**variables)
    except Exception:  # Any error counts, of Python as well.
        return None


def write_json(path, value):
    path.write_text(json.dumps(value, ensure_ascii=True, indent=1) + "\n")


def write_constructs():
    path = GOLDEN / "constructs.json"
    golden = json.loads(path.read_text())
    golden["cases"] = [[source, render(source, golden["variables"])] for source, _ in golden["cases"]]
    write_json(path, golden)


def conversations():
    return json.loads((GOLDEN / "conversations.json").read_text())


def write_models(directory):
    hashes = {}
    for path in sorted(pathlib.Path(directory).glob("*.jinja")):
        source = path.read_text()
        texts = [render(source, conversation["variables"]) for conversation in conversations()]
        # A sixteenth of a hash is enough to see a difference. The template has one too, because it may have changed.
        short = [hashlib.sha256(text.encode()).hexdigest()[:16] if text is not None else "error" for text in texts]
        hashes[path.name] = {"source": hashlib.sha256(path.read_bytes()).hexdigest()[:16], "rendered": short}
    write_json(GOLDEN / "models.json", hashes)


def is_equal(binary, template, conversation):
    expected = render(pathlib.Path(template).read_text(), conversation["variables"])
    run = subprocess.run([binary, template], input=json.dumps(conversation["variables"]).encode(),
                         capture_output=True, check=False)
    found = run.stdout.decode() if run.returncode == 0 else None
    if found == expected:
        return True
    print(f"{template}, {conversation['name']}: DIFFERENT", run.stderr.decode().strip())
    if expected is not None and found is not None:
        at = next((i for i, (a, b) in enumerate(zip(expected, found)) if a != b), min(len(expected), len(found)))
        print("  expected", repr(expected[max(at - 40, 0):at + 60]), "\n  found   ",
              repr(found[max(at - 40, 0):at + 60]))
    return False


def compare(binary, templates):
    results = [is_equal(binary, template, conversation) for template in templates for conversation in conversations()]
    print(f"{len(templates)} templates, {len(results)} renderings, {sum(results)} equal")
    sys.exit(0 if all(results) else 1)


def main():
    command = sys.argv[1] if len(sys.argv) > 1 else ""
    if command == "constructs":
        write_constructs()
    elif command == "models" and len(sys.argv) == 3:
        write_models(sys.argv[2])
    elif command == "compare" and len(sys.argv) >= 4:
        compare(sys.argv[2], sys.argv[3:])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
