// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_UCX_OPEN_GROUP_H_
#define QUIRE_KERNELS_UCX_OPEN_GROUP_H_

#include <memory>
#include <string>

#include "kernels/collective.h"

namespace quire::ucx {

// UcxGroup::Open in libquire_ucx.so of the program's folder, which is loaded here. So a worker without ranks neither
// needs UCX nor gets the signal handlers that it installs. Returns null and the reason in one line when the library
// cannot be loaded, or when UCX cannot use the transport.
std::unique_ptr<SessionCollective> OpenGroup(const GroupTransport& transport, std::string* why_not);

// The same function inside that library, and its name there.
using OpenGroupFunction = std::unique_ptr<SessionCollective>(const GroupTransport& transport, std::string* why_not);
inline constexpr char kOpenGroup[] = "quire_open_ucx_group";

}  // namespace quire::ucx

#endif  // QUIRE_KERNELS_UCX_OPEN_GROUP_H_
