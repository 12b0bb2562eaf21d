// SPDX-License-Identifier: Apache-2.0

// Compiled for sm_90a only: other devices have no instructions for warp groups.

#include "kernels/cuda/entry_apart.h"

namespace quire::cuda {

template const void* EntryApart<AttentionPrefillSm90<Bf16, 64>>();
template const void* EntryApart<AttentionPrefillSm90<Bf16, 128>>();
template const void* EntryApart<AttentionPrefillSm90<F16, 64>>();
template const void* EntryApart<AttentionPrefillSm90<F16, 128>>();
template const void* EntryApart<AttentionPrefillSm90<Int8Kv<Bf16>, 64>>();
template const void* EntryApart<AttentionPrefillSm90<Int8Kv<Bf16>, 128>>();
template const void* EntryApart<AttentionPrefillSm90<Int8Kv<F16>, 64>>();
template const void* EntryApart<AttentionPrefillSm90<Int8Kv<F16>, 128>>();

}  // namespace quire::cuda
