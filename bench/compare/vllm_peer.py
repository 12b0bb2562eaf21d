# SPDX-License-Identifier: Apache-2.0
"""vLLM's CPU backend, for resident.py. engines.py sets the environment that it needs."""

import vllm
from vllm.sampling_params import RequestOutputKind

KV_BYTES = 1 << 30
STEP_TOKENS = 2048  # Most prompt tokens of a step.
MAX_SEQUENCES = 256


class Peer:
    """Weights, K and V are bfloat16. vLLM compiles the model, as it does by default."""

    def __init__(self, model, threads):
        del threads  # They are in the environment.
        self.engine = vllm.LLM(
            str(model), dtype="bfloat16", skip_tokenizer_init=True, max_num_seqs=MAX_SEQUENCES,
            max_num_batched_tokens=STEP_TOKENS, kv_cache_memory_bytes=KV_BYTES,
            enable_prefix_caching=True).llm_engine
        self.version = f"vLLM {vllm.__version__}"
        self.indices = {}
        self.next_request = 0

    def add(self, index, prompt, output):
        name = str(self.next_request)
        self.next_request += 1
        self.indices[name] = index
        self.engine.add_request(
            name, {"prompt_token_ids": prompt},
            vllm.SamplingParams(temperature=0, max_tokens=output, min_tokens=output, ignore_eos=True, detokenize=False,
                                output_kind=RequestOutputKind.DELTA))

    def step(self):
        return {self.indices[output.request_id]: len(output.outputs[0].token_ids) for output in self.engine.step()}
