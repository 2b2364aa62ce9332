// Everything that <torch/extension.h> gives.
#pragma once
#include "checks.h"
#include "module.h"

namespace torch {
using namespace at;
namespace indexing {}
namespace autograd {}
struct NoGradGuard {};
}  // namespace torch
