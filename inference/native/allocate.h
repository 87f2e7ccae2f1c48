// Sums of q(S) over the nonzeros of X, one pass.
//
// For each nonzero x of row i and column j, with g = exp E[log ·]:
//   m = g_row[i] · g_col[j],  ξ = x / m,  Σ_row[i] += ξ g_col[j],  Σ_col[j] += ξ g_row[i],  ratio[i] += x log(m / x),
// and at the end Σ is multiplied by g. The largest value along K is subtracted before the exponential, and added to the
// logarithm of m: nothing depends on it, but g alone would be 0 in single precision for shapes below 0.01.
#pragma once

#include "parallel.h"
#include "rows.h"
#include "vector.h"

namespace LEVEL {

constexpr int kChunk = 256;  // entries whose logarithms are taken at once
constexpr int kAhead = 6;    // entries between the one that is read and the one that is fetched

template <class T>
struct Allocation {
  Rows rows;
  const T *values, *log_rows, *log_columns, *weights;  // weights may be nullptr
  int64_t columns, K, width, copies, blocks;           // width: K filled up to whole vectors
  T *sum_rows, *sum_columns, *log_ratios;
  T *g, *shifts, *sums, *total;  // columns × width, columns, threads × columns × width, columns × width
};

// Writes exp(x − shift) of K numbers, filled up with 0, and returns the shift, their largest.
template <class T>
INLINE T exp_scaled(const T* x, int64_t K, int64_t width, T* g) {
  constexpr int W = kLanes<T>;
  Vec<T> top = fill<T>(-std::numeric_limits<T>::infinity());
  int64_t k = 0;
  for (; k + W <= K; k += W) top = max<T>(top, load<T>(x + k));
  T shift = largest<T>(top);
  for (; k < K; k++) shift = shift < x[k] ? x[k] : shift;
  for (k = 0; k + W <= K; k += W) store<T>(g + k, exp<T>(load<T>(x + k) - shift));
  if (k < width) {
    T rest[W];
    for (int i = 0; i < W; i++) rest[i] = k + i < K ? x[k + i] - shift : -std::numeric_limits<T>::infinity();
    store<T>(g + k, exp<T>(load<T>(rest)));
  }
  return shift;
}

// Adds ξ g_col to `row` and ξ w g_row to Σ_col for `count` entries, and writes ξ. N: vectors in a row; 0 if not fixed.
template <class T, int N>
INLINE void entries(const Allocation<T>& a, T* sums, const int32_t* indices, const T* x, int64_t count, int64_t left,
                    const T* g_row, T weight, T* row, T* xi) {
  constexpr int W = kLanes<T>;
  const int64_t width = N ? N * W : a.width;
  const T* g = a.g;
  for (int64_t p = 0; p < count; p++) {
    if (p + kAhead < left) {
      int64_t ahead = indices[p + kAhead] * width;
      for (int64_t k = 0; k < width; k += 64 / sizeof(T)) {
        __builtin_prefetch(g + ahead + k, 0, 3);
        __builtin_prefetch(sums + ahead + k, 1, 3);
      }
    }
    const T* g_column = g + indices[p] * width;
    Vec<T> product = load<T>(g_row) * load<T>(g_column), other{};
    int64_t k = W;
#pragma GCC unroll 8
    for (; k + W < width; k += 2 * W) {
      other += load<T>(g_row + k) * load<T>(g_column + k);
      product += load<T>(g_row + k + W) * load<T>(g_column + k + W);
    }
    if (k < width) other += load<T>(g_row + k) * load<T>(g_column + k);
    T m = sum<T>(product + other);
    T ratio = x[p] / (m < Types<T>::floor ? Types<T>::floor : m), weighted = weight * ratio;
    xi[p] = ratio;
    T* sum_column = sums + indices[p] * width;
#pragma GCC unroll 16
    for (k = 0; k < width; k += W) store<T>(row + k, load<T>(row + k) + ratio * load<T>(g_column + k));
    if (weight == 0) continue;
#pragma GCC unroll 16
    for (k = 0; k < width; k += W)
      store<T>(sum_column + k, load<T>(sum_column + k) + weighted * load<T>(g_row + k));
  }
}

// Returns Σ x (log(m/x) + shift of the column + shift of the row) of some entries.
template <class T>
INLINE double log_ratio(const Allocation<T>& a, const int32_t* indices, const T* x, const T* xi, int64_t count, T shift) {
  constexpr int W = kLanes<T>;
  Vec<T> value{};
  for (int64_t p = 0; p < count; p += W) {
    T part_x[W], part_xi[W], shifts[W];
    for (int i = 0; i < W; i++) {
      bool inside = p + i < count;
      part_x[i] = inside ? x[p + i] : 0;
      part_xi[i] = inside ? xi[p + i] : 1;
      shifts[i] = inside ? a.shifts[indices[p + i]] : 0;
    }
    Vec<T> ratio = max<T>(load<T>(part_xi), fill<T>(Types<T>::floor));
    value += load<T>(part_x) * ((load<T>(shifts) + shift) - log<T>(ratio));
  }
  return sum<T>(value);
}

template <class T, int N>
INLINE void one_row(const Allocation<T>& a, T* sums, int64_t r, int64_t last, T* g_row, T* row, T* xi) {
  constexpr int W = kLanes<T>;
  int64_t from = a.rows.begin(r / a.copies), to = a.rows.begin(r / a.copies + 1);
  T shift = exp_scaled<T>(a.log_rows + r * a.K, a.K, a.width, g_row);
  for (int64_t k = 0; k < a.width; k += W) store<T>(row + k, Vec<T>{});
  T weight = a.weights ? a.weights[r] : T(1);
  double ratio = 0;
  for (int64_t p = from; p < to; p += kChunk) {
    int64_t count = to - p < kChunk ? to - p : kChunk;
    entries<T, N>(a, sums, a.rows.indices + p, a.values + p, count, last - p, g_row, weight, row, xi);
    ratio += log_ratio<T>(a, a.rows.indices + p, a.values + p, xi, count, shift);
  }
  a.log_ratios[r] = T(ratio);
  for (int64_t k = 0; k < a.K; k++) a.sum_rows[r * a.K + k] = row[k] * g_row[k];
}

template <class T, int N>
void some_rows(const Allocation<T>& a, T* sums, int64_t begin, int64_t end, T* scratch) {
  int64_t last = a.rows.begin(a.rows.number);
  for (int64_t r = begin; r < end; r++)
    one_row<T, N>(a, sums, r, last, scratch, scratch + a.width, scratch + 2 * a.width);
}

template <class T>
void some_rows(const Allocation<T>& a, T* sums, int64_t begin, int64_t end, T* scratch) {
  switch (a.width / kLanes<T>) {
#define FIXED(N) case N: return some_rows<T, N>(a, sums, begin, end, scratch);
    FIXED(1) FIXED(2) FIXED(3) FIXED(4) FIXED(5) FIXED(6) FIXED(7) FIXED(8)
#undef FIXED
    default: return some_rows<T, 0>(a, sums, begin, end, scratch);
  }
}

template <class T>
INLINE void clear(T* x, int64_t size) {
  for (int64_t k = 0; k < size; k += kLanes<T>) store<T>(x + k, Vec<T>{});
}

template <class T>
void allocate_blocks(void* context, Blocks* blocks, int thread) {
  const Allocation<T>& a = *static_cast<Allocation<T>*>(context);
  int64_t size = a.columns * a.width, scratch_size = 2 * a.width + kChunk;
  T* sums = a.sums + thread * (size + scratch_size);
  clear<T>(sums, size);
  for (int64_t b; (b = next_block(blocks)) < a.blocks;) {
    some_rows<T>(a, sums, a.rows.first_of(b, a.blocks) * a.copies, a.rows.first_of(b + 1, a.blocks) * a.copies, sums + size);
    await_turn(blocks, b);
    for (int64_t k = 0; k < size; k += kLanes<T>) {
      Vec<T> value = load<T>(sums + k);
      store<T>(a.total + k, b == 0 ? value : load<T>(a.total + k) + value);
      store<T>(sums + k, Vec<T>{});
    }
    end_turn(blocks, b);
  }
}

template <class T>
ffi::Error* allocate(ffi::Frame* frame) {
  if (ffi::answer_metadata(frame) || frame->stage != ffi::kExecute) return nullptr;
  constexpr int W = kLanes<T>;
  bool weighted = frame->arguments.size > 5;
  Rows rows(frame, 0);
  int64_t columns = ffi::dim(frame, 4, 0), K = ffi::dim(frame, 4, 1), width = (K + W - 1) / W * W;
  int64_t copies = rows.number ? ffi::dim(frame, 3, 0) / rows.number : 1;
  int64_t blocks = number_of_blocks(rows.begin(rows.number) * copies, columns);
  int threads = threads_allowed() < blocks ? threads_allowed() : static_cast<int>(blocks);
  int64_t size = columns * width, part = size + 2 * width + kChunk, padded = (columns + W - 1) / W * W;
  T* memory = static_cast<T*>(allocate_memory((2 * size + threads * part + padded) * sizeof(T)));
  if (memory == nullptr) return ffi::fail(frame, "not enough memory for the sums of q(S)");
  Allocation<T> a{rows, ffi::argument<T>(frame, 2), ffi::argument<T>(frame, 3), ffi::argument<T>(frame, 4),
                  weighted ? ffi::argument<T>(frame, 5) : nullptr, columns, K, width, copies, blocks,
                  ffi::result<T>(frame, 0), ffi::result<T>(frame, 1), ffi::result<T>(frame, 2),
                  memory, memory + 2 * size + threads * part, memory + 2 * size, memory + size};
  for (int64_t j = 0; j < columns; j++) a.shifts[j] = exp_scaled<T>(a.log_columns + j * K, K, width, a.g + j * width);
  run_parallel(threads, allocate_blocks<T>, &a);
  for (int64_t j = 0; j < columns; j++)
    for (int64_t k = 0; k < K; k++) a.sum_columns[j * K + k] = a.total[j * width + k] * a.g[j * width + k];
  free_memory(memory);
  return nullptr;
}

}  // namespace LEVEL
