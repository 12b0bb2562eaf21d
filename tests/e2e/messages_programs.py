# SPDX-License-Identifier: Apache-2.0
"""Joins the events of /v1/messages for the tests of the gateway."""

import json

from openai_programs import events_of


def stream_message(quire, body, headers=None, on_event=lambda event: None):
    """Returns the message that a stream of /v1/messages makes, as Anthropic's clients join it, or the error at its
    end."""
    connection = quire.connect()
    try:
        connection.request("POST", "/v1/messages", json.dumps({**body, "stream": True}).encode(), headers or {})
        response = connection.getresponse()
        assert response.status == 200, response.read()
        message, inputs = None, {}
        for event in events_of(response):
            on_event(event)
            kind = event["type"]
            if kind == "error":
                return event
            if kind == "message_start":
                message = {**event["message"], "content": []}
            elif kind == "content_block_start":
                assert event["index"] == len(message["content"])
                message["content"].append(event["content_block"])
            elif kind == "content_block_delta":
                block, delta = message["content"][event["index"]], event["delta"]
                if delta["type"] == "input_json_delta":
                    inputs[event["index"]] = inputs.get(event["index"], "") + delta["partial_json"]
                else:
                    member = delta["type"].removesuffix("_delta")
                    block[member] += delta[member]
            elif kind == "content_block_stop":
                if event["index"] in inputs:
                    message["content"][event["index"]]["input"] = json.loads(inputs[event["index"]])
            elif kind == "message_delta":
                message |= event["delta"]
                message["usage"] = event["usage"]
        assert kind == "message_stop", kind
        return message
    finally:
        connection.close()
