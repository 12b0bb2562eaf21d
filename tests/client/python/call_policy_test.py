# SPDX-License-Identifier: Apache-2.0
"""Replays the sequences of tests/golden/calls, as tests/client/policy/call_policy_test.cc does."""

import json
import pathlib
import unittest

import grpc
import quire
from client_test import FakeError, details_of
from quire import v1
from quire import _call_policy as policies
from quire._call_policy import CallPolicy, CallRequest

GOLDEN = pathlib.Path(__file__).resolve().parents[3] / "tests/golden/calls"


def read_golden(name):
    return json.loads((GOLDEN / f"{name}.json").read_text())


def error_of(end):
    """Returns an error from its description in ends.json."""
    details = ()
    if "reason" in end:
        details = details_of(("ErrorInfo", {"reason": end["reason"]}) if end["reason"] else ("BadRequest", {}))
    return quire.Error(FakeError(grpc.StatusCode[end["code"]], end["message"], details))


def request_of(facts):
    on_disconnect = facts.get("on_disconnect", "")
    return CallRequest(
        num_managers=facts.get("num_managers", 1),
        deadline=facts.get("timeout", 300.0),
        resume_time=facts.get("resume_time", 30.0),
        is_stream=facts.get("kind", "stream") == "stream",
        has_on_disconnect=bool(on_disconnect),
        is_detachable=on_disconnect == "detach",
        **{name: facts.get(name, False)
           for name in ("is_named", "is_continued", "is_ranked", "has_prompt_logprobs")})


class CallPolicyTest(unittest.TestCase):
    def replay(self, sequence, ends):
        policy = CallPolicy(request_of(sequence["request"]))
        policy.begin(0)
        for event in sequence["events"]:
            if "response" in event:
                policy.note(event["response"], event.get("has_token", False))
                continue
            with self.subTest(event=event):
                action = policy.after(error_of(ends[event["end"]]), event["at"])
                self.assertEqual((action.kind, action.delay, action.leaves),
                                 (event["action"], event.get("delay", 0), event.get("leaves", False)))
                if "error" in event:
                    error = error_of(ends[event["error"]])
                    self.assertEqual((str(action.error), action.error.reason), (str(error), error.reason))
                policy.begin(event["at"] + action.delay)

    def test_every_sequence_has_the_actions_and_the_error_of_the_golden_files(self):
        ends = read_golden("ends")
        for file in ("streams", "several_managers", "unary_calls"):
            for sequence in read_golden(file):
                with self.subTest(sequence=sequence["name"]):
                    self.replay(sequence, ends)

    def test_the_numbers_of_fields_are_those_of_the_wire(self):
        fields = v1.GenerateRequest.DESCRIPTOR.fields_by_name
        self.assertEqual((policies._ON_DISCONNECT, policies._CONTINUE_FROM),
                         (fields["on_disconnect"].number, fields["continue_from"].number))


if __name__ == "__main__":
    unittest.main()
