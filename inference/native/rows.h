// A sparse matrix by rows, and its rows in blocks of similar work.
#pragma once

#include <cstdint>

#include "ffi.h"

namespace LEVEL {

// Row r has the entries from begin(r) to begin(r + 1). The pointers are 32 or 64 bits wide, as XLA's arrays may not be
// the latter in single precision: 64 bits also come as two columns of 32.
struct Rows {
  const void* pointers;
  bool wide;
  const int32_t* indices;
  int64_t number;

  Rows(ffi::Frame* frame, int n)
      : pointers(ffi::argument<void>(frame, n)),
        wide(frame->arguments.buffers[n]->dtype == ffi::kInt64 || frame->arguments.buffers[n]->rank == 2),
        indices(ffi::argument<int32_t>(frame, n + 1)),
        number(ffi::dim(frame, n, 0) - 1) {}

  int64_t begin(int64_t row) const {
    return wide ? static_cast<const int64_t*>(pointers)[row] : static_cast<const int32_t*>(pointers)[row];
  }

  int64_t longest() const {
    int64_t most = 0;
    for (int64_t r = 0; r < number; r++) most = begin(r + 1) - begin(r) > most ? begin(r + 1) - begin(r) : most;
    return most;
  }

  // The first row of block b of B; entries and rows both count as work.
  int64_t first_of(int64_t b, int64_t B) const {
    int64_t work = (begin(number) + number) / B * b, low = 0, high = number;
    if (b == B) return number;
    while (low < high) {
      int64_t middle = (low + high) / 2;
      if (begin(middle) + middle < work) low = middle + 1;
      else high = middle;
    }
    return low;
  }
};

// The number of blocks: a power of 2 that depends on the problem only, so that sums do not depend on the threads. Each
// block adds columns × K numbers to the sums, at most 1/16 of what its entries cost.
inline int64_t number_of_blocks(int64_t entries, int64_t columns) {
  int64_t blocks = 1;
  while (blocks < 64 && blocks * 2 * 16 * columns <= entries) blocks *= 2;
  return blocks;
}

}  // namespace LEVEL
