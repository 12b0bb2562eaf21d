# SPDX-License-Identifier: Apache-2.0
"""OpenVINO GenAI with continuous batching, for resident.py."""

import importlib.metadata

import numpy
import openvino
import openvino_genai

CACHE_GIB = 1
STEP_TOKENS = 2048  # Most prompt tokens of a step.
MAX_SEQUENCES = 256


class Peer:
    """16-bit weights are multiplied in bfloat16. Quantized ones have been rounded by export_openvino.py. K and V are
    bfloat16. All other settings are OpenVINO's own."""

    def __init__(self, model, threads):
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.cache_size = CACHE_GIB
        scheduler.max_num_batched_tokens = STEP_TOKENS
        scheduler.max_num_seqs = MAX_SEQUENCES
        scheduler.dynamic_split_fuse = True
        scheduler.enable_prefix_caching = True
        self.pipeline = openvino_genai.ContinuousBatchingPipeline(
            str(model), scheduler, "CPU",
            {"INFERENCE_PRECISION_HINT": "bf16", "KV_CACHE_PRECISION": "bf16", "INFERENCE_NUM_THREADS": threads,
             "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY", "ENABLE_CPU_PINNING": True})
        self.version = f"OpenVINO GenAI {importlib.metadata.version('openvino-genai')}"
        self.handles = {}
        self.next_request = 0

    def add(self, index, prompt, output):
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens = config.min_new_tokens = output
        config.ignore_eos = True
        config.do_sample = False
        tokens = openvino.Tensor(numpy.array([prompt], dtype=numpy.int64))
        self.handles[index] = self.pipeline.add_request(self.next_request, tokens, config)
        self.next_request += 1

    def step(self):
        self.pipeline.step()
        new = {}
        for index, handle in list(self.handles.items()):
            while handle.can_read():
                for output in handle.read().values():
                    new[index] = new.get(index, 0) + len(output.generated_ids)
            if handle.get_status() != openvino_genai.GenerationStatus.RUNNING:
                del self.handles[index]
        return new
