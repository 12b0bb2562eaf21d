# SPDX-License-Identifier: Apache-2.0
"""Reads the events of /v1/responses for the tests of the gateway."""

import json

from openai_programs import events_of

LAST = ("response.completed", "response.incomplete", "response.failed")


def joined(events):
    """The events without names and numbers, and with one delta instead of several behind each other. A stream names an
    item in the same way in all of its events, and an event of a text has what its deltas had."""
    result, names, texts = [], {}, {}
    for event in events:
        event = {**event}
        del event["sequence_number"]
        event.pop("obfuscation", None)
        name = event.pop("item_id", None) or event.get("item", {}).get("id")
        if name is not None:
            index = event["output_index"]
            assert names.setdefault(index, name) == name, event
            if event["type"].endswith(".delta"):
                texts[index] = texts.get(index, "") + event["delta"]
            if event["type"].endswith(("text.done", "arguments.done")):
                assert event["text" if "text" in event else "arguments"] == texts[index], event
        if "response" in event:
            response = event.pop("response")
            assert names.setdefault("response", response["id"]) == response["id"], event
            assert [item["id"] for item in response["output"]] == [names[i] for i in range(len(response["output"]))]
        if "item" in event:
            event["item"] = {key: value for key, value in event["item"].items() if key not in ("id", "call_id")}
        if event["type"].endswith(".delta") and result and result[-1]["type"] == event["type"]:
            result[-1]["delta"] += event["delta"]
            result[-1]["logprobs"] = result[-1].get("logprobs", []) + event.get("logprobs", [])
        else:
            result.append(event)
    return result


def stream_response(quire, body, on_event=lambda event: None):
    """Returns the response at the end of a stream, and its events. The events must have consecutive numbers and tell of
    the same items as the response."""
    connection = quire.connect()
    try:
        connection.request("POST", "/v1/responses", json.dumps({**body, "stream": True}).encode(), {})
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        events = []
        for event in events_of(answer):
            assert event["sequence_number"] == len(events), event
            events.append(event)
            on_event(event)
        last = events[-1]
        assert last["type"] in LAST, last
        done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
        assert last["response"]["status"] == "failed" or last["response"]["output"] == done, last
        return last["response"], events
    finally:
        connection.close()
