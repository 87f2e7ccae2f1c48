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

constexpr int kChunk = 16;          // entries whose divisions and logarithms are done at once
constexpr int kAhead = 6;           // entries between the one that is read and the one that is fetched
constexpr int64_t kNear = 1 << 18;  // bytes of the columns' factor

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
  constexpr T none = -std::numeric_limits<T>::infinity();
  int64_t whole = K / W * W;
  Vec<T> rest = load_some<T>(x + whole, K - whole, none), top = rest;
  for (int64_t k = 0; k < whole; k += W) top = max<T>(top, load<T>(x + k));
  T shift = largest<T>(top);
  for (int64_t k = 0; k < whole; k += W) store<T>(g + k, exp<T>(load<T>(x + k) - shift));
  if (whole < width) store<T>(g + whole, exp<T>(rest - shift));
  return shift;
}

// Rows of a fixed number of vectors stay in registers while the entries of a row of X pass by; N = 0: of any number.
template <class T, int N>
struct Row {
  Vec<T> g[N], sum[N];
  Row(const T* g_row, T*, int64_t) {
    for (int i = 0; i < N; i++) g[i] = load<T>(g_row + i * kLanes<T>), sum[i] = Vec<T>{};
  }
  static constexpr int size = N;
};

template <class T>
struct Row<T, 0> {
  const Vec<T>* g;
  Vec<T>* sum;
  int size;
  Row(const T* g_row, T* row, int64_t width)
      : g((const Vec<T>*)g_row), sum((Vec<T>*)row), size(static_cast<int>(width / kLanes<T>)) {
    for (int i = 0; i < size; i++) sum[i] = Vec<T>{};
  }
};

template <class T, int N>
INLINE void fetch(const Allocation<T>& a, const T* sums, int64_t column, const Row<T, N>& row) {
  const char* g = reinterpret_cast<const char*>(a.g + column * row.size * kLanes<T>);
  const char* sum = reinterpret_cast<const char*>(sums + column * row.size * kLanes<T>);
UNROLL
  for (int k = 0; k < row.size * VECTOR_BYTES; k += 64) {
    __builtin_prefetch(g + k, 0, 2);
    __builtin_prefetch(sum + k, 0, 2);
  }
}

// The products of a row and a column, to be added up.
template <class T, int N>
INLINE Vec<T> multiply(const Row<T, N>& row, const T* g_column) {
  constexpr int W = kLanes<T>;
  Vec<T> even = row.g[0] * load<T>(g_column), odd{};
UNROLL
  for (int i = 1; i + 1 < row.size; i += 2) {
    odd += row.g[i] * load<T>(g_column + i * W);
    even += row.g[i + 1] * load<T>(g_column + (i + 1) * W);
  }
  if (row.size % 2 == 0) odd += row.g[row.size - 1] * load<T>(g_column + (row.size - 1) * W);
  return even + odd;
}

// Replaces m by ξ = x / m and returns x (log(m/x) + shift), for whole vectors of entries: x = 0 adds nothing.
template <class T>
INLINE Vec<T> divide(T* m, const T* x, const T* shifts, T shift) {
  Vec<T> value{};
UNROLL
  for (int p = 0; p < kChunk; p += kLanes<T>) {
    Vec<T> xi = load<T>(x + p) / max<T>(load<T>(m + p), fill<T>(Types<T>::floor));
    value += load<T>(x + p) * ((load<T>(shifts + p) + shift) - log<T>(max<T>(xi, fill<T>(Types<T>::floor))));
    store<T>(m + p, xi);
  }
  return value;
}

// Adds ξ g_col to `row` and ξ w g_row to Σ_col, and returns x log(m/x), for up to `kChunk` entries.
template <class T, int N>
INLINE Vec<T> entries(const Allocation<T>& a, T* sums, const int32_t* indices, const T* x, int count, int64_t left,
                      Row<T, N>& row, T shift, T weight) {
  constexpr int W = kLanes<T>;
  const int64_t width = row.size * W;
  const bool far = a.columns * width * int64_t(sizeof(T)) > kNear;  // else all columns stay in the cache by themselves
  T xi[kChunk] = {}, shifts[kChunk] = {}, counts[kChunk] = {};
  for (int p = 0; p < count; p++) {
    if (far && p + kAhead < left) fetch<T, N>(a, sums, indices[p + kAhead], row);
    xi[p] = sum<T>(multiply<T, N>(row, a.g + indices[p] * width));
    shifts[p] = a.shifts[indices[p]];
  }
  if (count < kChunk) std::memcpy(counts, x, count * sizeof(T)), x = counts;
  Vec<T> log_ratio = divide<T>(xi, x, shifts, shift);
  if (weight == 0) {
    for (int p = 0; p < count; p++)
      for (int i = 0; i < row.size; i++) row.sum[i] += xi[p] * load<T>(a.g + indices[p] * width + i * W);
    return log_ratio;
  }
  for (int p = 0; p < count; p++) {
    const T* g_column = a.g + indices[p] * width;
    T* sum_column = sums + indices[p] * width;
    Vec<T> ratio = fill<T>(xi[p]), weighted = ratio * weight;
UNROLL
    for (int i = 0; i < row.size; i++) {
      row.sum[i] += ratio * load<T>(g_column + i * W);
      store<T>(sum_column + i * W, load<T>(sum_column + i * W) + weighted * row.g[i]);
    }
  }
  return log_ratio;
}

template <class T, int N>
INLINE void one_row(const Allocation<T>& a, T* sums, int64_t r, int64_t last, T* g_row, T* scratch) {
  constexpr int W = kLanes<T>;
  int64_t from = a.rows.begin(r / a.copies), to = a.rows.begin(r / a.copies + 1);
  T shift = exp_scaled<T>(a.log_rows + r * a.K, a.K, a.width, g_row);
  Row<T, N> row(g_row, scratch, a.width);
  T weight = a.weights ? a.weights[r] : T(1);
  Vec<T> log_ratio{};
  for (int64_t p = from; p < to; p += kChunk) {
    int count = static_cast<int>(to - p < kChunk ? to - p : kChunk);
    log_ratio += entries<T, N>(a, sums, a.rows.indices + p, a.values + p, count, last - p, row, shift, weight);
  }
  a.log_ratios[r] = sum<T>(log_ratio);
  T* result = a.sum_rows + r * a.K;
  int whole = static_cast<int>(a.K / W);
UNROLL
  for (int i = 0; i < row.size; i++) {
    Vec<T> value = row.sum[i] * row.g[i];
    if (i < whole) store<T>(result + i * W, value);
    else std::memcpy(result + i * W, &value, (a.K - whole * W) * sizeof(T));
  }
}

template <class T, int N>
void some_rows(const Allocation<T>& a, T* sums, int64_t begin, int64_t end, T* scratch) {
  int64_t last = a.rows.begin(a.rows.number);
  for (int64_t r = begin; r < end; r++)
    one_row<T, N>(a, sums, r, last, scratch, scratch + a.width);
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
  int64_t size = a.columns * a.width, scratch_size = 2 * a.width;
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
  int64_t size = columns * width, part = size + 2 * width, padded = (columns + W - 1) / W * W;
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
