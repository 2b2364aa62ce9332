#pragma once
#include "tilegrad/cuda.h"
