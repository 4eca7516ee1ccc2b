// pieces.cuh: how a block puts the pieces of a long row together.
#pragma once

#include "scalar.cuh"

constexpr int MERGE_WARPS = 8;
