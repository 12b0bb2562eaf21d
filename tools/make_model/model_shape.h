// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TOOLS_MAKE_MODEL_MODEL_SHAPE_H_
#define QUIRE_TOOLS_MAKE_MODEL_MODEL_SHAPE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace quire::make_model {

// The model to make: the architecture of a family and its dimensions.
struct ModelShape {
  std::string family = "llama";  // llama, mistral, qwen2, qwen3 or qwen3_moe
  int dim = 64;
  int layers = 2;
  int heads = 4;
  int kv_heads = 2;
  int head_dim = 0;  // 0: dim / heads
  int ffn = 128;
  int vocab = 512;
  int context = 4096;
  int window = 0;  // Sliding window, mistral only; 0: none.
  bool tied = false;
  // Of the layers of qwen3_moe; 0 of other families.
  int experts = 0;            // 0: 8
  int experts_per_token = 0;  // 0: 2
  int expert_ffn = 0;         // Intermediate size of an expert; 0: ffn / 2
};

// The shape behind a --preset name; nothing for an unknown name.
std::optional<ModelShape> Preset(const std::string& name);

// Sets head_dim if it is 0, and the sizes of experts. Returns what is wrong with the shape, or an empty string.
std::string Complete(ModelShape* shape);

// The distribution of the numbers of a tensor: uniform in center +- width.
struct TensorSpec {
  std::string name;
  std::vector<int64_t> shape;
  double center;
  double width;

  int64_t size() const;
};

// Every tensor of the checkpoint under its Hugging Face name, in the order of the file. The widths keep the variance of
// the activations near 1 and spread the logits, so that sampled text is varied.
std::vector<TensorSpec> TensorsOf(const ModelShape& shape);

// config.json, readable by transformers 4 and 5. `dtype` is float32, bfloat16 or float16.
std::string ConfigJson(const ModelShape& shape, const std::string& dtype);

}  // namespace quire::make_model

#endif  // QUIRE_TOOLS_MAKE_MODEL_MODEL_SHAPE_H_
