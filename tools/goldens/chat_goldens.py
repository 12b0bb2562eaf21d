# SPDX-License-Identifier: Apache-2.0
"""Compares the prompts of whole chats with Transformers' apply_chat_template.

    chat_goldens.py models DIRECTORY        rewrites tests/golden/jinja/chat_models.json: hashes of what the chat
                                            templates DIRECTORY/*.jinja give for tests/golden/jinja/chats.json
    chat_goldens.py compare B TEMPLATE...   shows where B (render_chat) differs from Transformers in these chats, and
                                            counts how often both give the same

chats.json has bodies of requests as OpenAI's clients send them. What Transformers is given differs in these points:
- Arguments of calls are parsed. Texts that are no JSON object become {}, as in vLLM.
- If a template fails because a message has no content, the content is "", as in vLLM.
- If a template does not take a content in parts, it is one text.
- A role that the template leaves out is an error.

Needs the Python packages jinja2 and transformers.
"""

import copy
import hashlib
import json
import pathlib
import subprocess
import sys

import jinja_goldens
import transformers.utils.chat_template_utils as chat

LEFT_OUT = "left out"
DATE = "{%- macro strftime_now(format) -%}04 Jul 2026{%- endmacro -%}"


def chats():
    return json.loads((jinja_goldens.GOLDEN / "chats.json").read_text())


def parsed(arguments):
    try:
        value = json.loads(arguments)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def render(source, messages, body):
    """The text that Transformers gives, or None when the template fails."""
    conversation = chat._normalize_chat_messages(messages)
    variables = {"bos_token": "<s>", "eos_token": "</s>"} | body.get("chat_template_kwargs", {})
    try:
        return chat.render_jinja_template([conversation], tools=body.get("tools"), chat_template=source,
                                          add_generation_prompt=True, **variables)[0][0]
    except Exception:  # Any error counts, of Python as well.
        return None


def joined(message):
    is_list = isinstance(message.get("content"), list)
    return message | ({"content": "".join(part["text"] for part in message["content"])} if is_list else {})


def last_text(message):
    content = message.get("content")
    return content[-1]["text"] if isinstance(content, list) else content


def role_takes_parts(source, role):
    """Renders a short conversation in which a message of the role has its content in parts."""
    parts = [{"type": "text", "text": "qfirst"}, {"type": "text", "text": "qsecond"}]
    user = {"role": "user", "content": "q"}
    call = {"id": "abcdefghi", "type": "function", "function": {"name": "f", "arguments": {}}}
    message = {"role": role, "content": parts}
    messages = {"system": [message, user], "user": [message], "assistant": [user, message, user],
                "tool": [user, {"role": "assistant", "content": "", "tool_calls": [call]},
                         message | {"name": "f", "tool_call_id": "abcdefghi"}]}[role]
    text = render(source, messages, {})
    return text is not None and "qfirst" in text and "qsecond" in text and "'qfirst'" not in text and \
        '"qfirst"' not in text


def expected(source, body):
    """The text that Quire shall give, None for an error of the template, or LEFT_OUT."""
    messages = copy.deepcopy(body["messages"])
    for call in (call for message in messages for call in message.get("tool_calls") or []):
        call["function"]["arguments"] = parsed(call["function"]["arguments"])
    messages = [message if isinstance(message.get("content"), list) and role_takes_parts(source, message["role"])
                else joined(message) for message in messages]
    text = render(source, messages, body)
    if text is None:
        messages = [message | {"content": ""} if message.get("content") is None else message for message in messages]
        text = render(source, messages, body)
    if text is None:
        return None
    knows_tools = "'tool'" in source or '"tool"' in source
    results = [last_text(message) for message in messages if message["role"] == "tool"]
    if not knows_tools and any(result and result not in text for result in results):
        return LEFT_OUT
    return text


def source_of(path):
    source = pathlib.Path(path).read_text()
    return (DATE if "strftime_now(" in source else "") + source


def write_models(directory):
    hashes = {}
    for path in sorted(pathlib.Path(directory).glob("*.jinja")):
        texts = [expected(source_of(path), chat["body"]) for chat in chats()]
        short = ["error" if text is None else text if text == LEFT_OUT else
                 hashlib.sha256(text.encode()).hexdigest()[:16] for text in texts]
        hashes[path.name] = {"source": hashlib.sha256(path.read_bytes()).hexdigest()[:16], "rendered": short}
    jinja_goldens.write_json(jinja_goldens.GOLDEN / "chat_models.json", hashes)


def is_equal(template, name, wanted, found):
    error = found.get("error", "")
    if wanted is None:
        same = "is refused by the chat template" in error
    elif wanted == LEFT_OUT:
        same = "the chat template leaves the message out" in error
    else:
        same = found.get("text") == wanted
    if not same:
        print(f"{template}, {name}: DIFFERENT {error}\n  expected {wanted!r}\n  found    {found.get('text')!r}")
    return same


def compare(binary, templates):
    bodies = json.dumps([chat["body"] for chat in chats()]).encode()
    results = []
    for template in templates:
        run = subprocess.run([binary, template], input=bodies, capture_output=True, check=True)
        for chat, found in zip(chats(), json.loads(run.stdout), strict=True):
            results.append(is_equal(template, chat["name"], expected(source_of(template), chat["body"]), found))
    print(f"{len(templates)} templates, {len(results)} prompts, {sum(results)} equal")
    sys.exit(0 if all(results) else 1)


def main():
    command = sys.argv[1] if len(sys.argv) > 1 else ""
    if command == "models" and len(sys.argv) == 3:
        write_models(sys.argv[2])
    elif command == "compare" and len(sys.argv) >= 4:
        compare(sys.argv[2], sys.argv[3:])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
