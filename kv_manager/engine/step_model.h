// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_ENGINE_STEP_MODEL_H_
#define QUIRE_KV_MANAGER_ENGINE_STEP_MODEL_H_

namespace quire {

// Learns from the steps that have run how much longer each further request makes a step, before that number of requests
// runs. The model is that a step takes a fixed time, a time for each request that takes part, and a time for each token
// of prompts beyond that. A token of a prompt usually takes much less time than the token of a request that decodes, so
// the two have times of their own. They are fitted by least squares in which older steps count less and less.
//
// Steps that all have about the same number of requests say nothing about the time per request; then it keeps its last
// value.
class StepModel {
 public:
  // A step in which `num_requests` sequences took part, with `num_tokens` tokens together, has taken `step_us`.
  void Record(int num_requests, int num_tokens, double step_us);

  // Both are 0 while they are not known.
  double us_per_request() const { return us_per_request_; }
  double us_per_prompt_token() const { return us_per_prompt_token_; }

 private:
  void Fit();

  double us_per_request_ = 0;
  double us_per_prompt_token_ = 0;
  // Decaying means over the steps of the requests r, the further tokens p, the time t, and their products.
  double count_ = 0;
  double r_ = 0;
  double p_ = 0;
  double t_ = 0;
  double rr_ = 0;
  double pp_ = 0;
  double rp_ = 0;
  double rt_ = 0;
  double pt_ = 0;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ENGINE_STEP_MODEL_H_
