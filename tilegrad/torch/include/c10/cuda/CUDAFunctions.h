#pragma once
#include "../../tilegrad/torch.h"
#include "../../tilegrad/cuda.h"
