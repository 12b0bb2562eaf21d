# SPDX-License-Identifier: Apache-2.0
"""Reads the events of /v1/responses for the tests of the gateway."""

import json

from openai_programs import events_of

LAST = ("response.completed", "response.incomplete", "response.failed")


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
