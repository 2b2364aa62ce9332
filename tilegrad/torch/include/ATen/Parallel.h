#pragma once
#include "../tilegrad/torch.h"
