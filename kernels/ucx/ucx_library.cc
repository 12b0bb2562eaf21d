// SPDX-License-Identifier: Apache-2.0

// The entry of libquire_ucx.so.

#include "kernels/ucx/open_group.h"
#include "kernels/ucx/ucx_group.h"

extern "C" __attribute__((visibility("default"))) std::unique_ptr<quire::SessionCollective> quire_open_ucx_group(
    const quire::GroupTransport& transport, std::string* why_not) {
  return quire::ucx::UcxGroup::Open(transport, why_not);
}

static_assert(std::is_same_v<quire::ucx::OpenGroupFunction, decltype(quire_open_ucx_group)>);
