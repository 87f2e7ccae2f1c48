// Sums of q(S) over the nonzeros of X, one pass.
//
// For each nonzero x of row i and column j, with g = exp E[log ·]:
//   m = g_row[i] · g_col[j],  ξ = x / m,  Σ_row[i] += ξ g_col[j],  Σ_col[j] += ξ g_row[i],  ratio[i] += x log(m / x),
// and at the end Σ is multiplied by g. The largest value along K is subtracted before the exponential, and added to the
// logarithm of m: nothing depends on it, but g alone would be 0 in single precision for shapes below 0.01.
//
// Rows are taken in tiles: first ξ and Σ_row of all rows of a tile, which read g_col, then Σ_col. So only one of the two
// has to fit into the cache at a time, and the inner loops have all their vectors in registers.
#pragma once

#include "parallel.h"
#include "rows.h"
#include "vector.h"

namespace LEVEL {

constexpr int kChunk = 64;  // entries of a row whose columns are read twice, so that they stay in the first cache
constexpr int kAhead = 8;   // entries between the one that is read and the one that is fetched
constexpr int64_t kTileRows = 512, kTileEntries = 1 << 14;  // of a tile, at most; a row with more entries is a tile
constexpr int64_t kColumns = 256;  // whose factors a thread prepares at once, and whose sums it completes
constexpr int64_t kWorthThreads = 1 << 16;  // numbers of the columns' factor from which threads save more than they cost

template <class T>
struct Allocation {
  Rows rows;
  const T *values, *log_rows, *log_columns, *weights;  // weights may be nullptr
  int64_t columns, K, width, copies, blocks;           // width: K filled up to whole vectors
  T *sum_rows, *sum_columns, *log_ratios;
  int64_t capacity, part;         // entries of a tile at most, numbers for each thread
  T *g, *shifts, *parts, *total;  // columns × width, columns, threads × part, columns × width

  struct Entries {
    const int32_t* indices;
    const T* x;
    int64_t number, after;  // `after` more follow in memory
  };
  INLINE Entries entries(int64_t r) const {
    int64_t row = copies == 1 ? r : r / copies, from = rows.begin(row), to = rows.begin(row + 1);
    return {rows.indices + from, values + from, to - from, rows.begin(rows.number) - to};
  }
};

// What a thread has for itself: sums of the columns, and of a tile g of its rows and ξ of its entries.
template <class T>
struct Part {
  T *sums, *row, *g_rows, *xi;
  Part(const Allocation<T>& a, int thread)
      : sums(a.parts + thread * a.part),
        row(sums + a.columns * a.width),
        g_rows(row + a.width),
        xi(g_rows + kTileRows * a.width) {}
  static int64_t size(int64_t columns, int64_t width, int64_t capacity) {
    return (columns + 1 + kTileRows) * width + capacity / kLanes<T> * kLanes<T> + 2 * kLanes<T>;
  }
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

// A row of a fixed number of vectors stays in registers while the entries of a row of X pass by; N = 0: of any number.
template <class T, int N>
struct Row {
  Vec<T> vectors[N];
  Row(const T* row, int64_t) {
    for (int i = 0; i < N; i++) vectors[i] = load<T>(row + i * kLanes<T>);
  }
  static constexpr int size = N;
  INLINE void clear() {
    for (int i = 0; i < N; i++) vectors[i] = Vec<T>{};
  }
};

template <class T>
struct Row<T, 0> {
  Vec<T>* vectors;
  int size;
  Row(T* row, int64_t width) : vectors((Vec<T>*)row), size(static_cast<int>(width / kLanes<T>)) {}
  INLINE void clear() {
    for (int i = 0; i < size; i++) vectors[i] = Vec<T>{};
  }
};

INLINE void fetch(const void* address, int64_t bytes) {
UNROLL
  for (int64_t k = 0; k < bytes; k += 64) __builtin_prefetch(static_cast<const char*>(address) + k);
}

template <class T, int N>
INLINE T multiply(const Row<T, N>& g_row, const T* g_column) {
  constexpr int W = kLanes<T>;
  Vec<T> even = g_row.vectors[0] * load<T>(g_column), odd{};
UNROLL
  for (int i = 1; i + 1 < g_row.size; i += 2) {
    odd += g_row.vectors[i] * load<T>(g_column + i * W);
    even += g_row.vectors[i + 1] * load<T>(g_column + (i + 1) * W);
  }
  if (g_row.size % 2 == 0) odd += g_row.vectors[g_row.size - 1] * load<T>(g_column + (g_row.size - 1) * W);
  return sum<T>(even + odd);
}

// Replaces m by ξ = x / m and returns x log(m/x), for a vector of entries. Where x = 0, m may be anything.
template <class T>
INLINE Vec<T> divide(T* m, Vec<T> x) {
  Vec<T> xi = x > T(0) ? x / max<T>(load<T>(m), fill<T>(Types<T>::floor)) : Vec<T>{};
  store<T>(m, xi);
  return -x * log<T>(max<T>(xi, fill<T>(Types<T>::floor)));
}

// Writes ξ of up to `kChunk` entries and returns a vector whose sum is Σ x log(m/x).
template <class T, int N>
INLINE Vec<T> ratios(const Allocation<T>& a, const int32_t* indices, const T* x, int count, int64_t after, T* g_row,
                     T shift, T* xi) {
  constexpr int W = kLanes<T>;
  Row<T, N> row(g_row, a.width);
  const int64_t width = row.size * W, ahead = after < kAhead ? after : kAhead;
  T shifts = 0;
  for (int p = 0; p < count; p++) {
    fetch(a.g + indices[p + ahead] * width, width * sizeof(T));
    xi[p] = multiply<T, N>(row, a.g + indices[p] * width);
    shifts += x[p] * (a.shifts[indices[p]] + shift);
  }
  Vec<T> value{};
  value[0] = shifts;
  int whole = count / W * W;
  for (int p = 0; p < whole; p += W) value += divide<T>(xi + p, load<T>(x + p));
  if (whole < count) value += divide<T>(xi + whole, load_some<T>(x + whole, count - whole, T(0)));
  return value;
}

// Writes ξ, Σ_row and Σ x log(m/x) of a row.
template <class T, int N>
INLINE void one_row(const Allocation<T>& a, int64_t r, const typename Allocation<T>::Entries& e, T* g_row, T* xi,
                    T* scratch) {
  constexpr int W = kLanes<T>;
  T shift = exp_scaled<T>(a.log_rows + r * a.K, a.K, a.width, g_row);
  Vec<T> log_ratio{};
  Row<T, N> row(scratch, a.width);
  row.clear();
  fetch(a.log_rows + (r + 2) * a.K, row.size * VECTOR_BYTES);
  for (int64_t from = 0; from < e.number; from += kChunk) {
    int count = static_cast<int>(e.number - from < kChunk ? e.number - from : kChunk);
    int64_t after = e.number - from - count + e.after;
    log_ratio += ratios<T, N>(a, e.indices + from, e.x + from, count, after, g_row, shift, xi + from);
    for (int64_t p = from; p < from + count; p++) {
      const T* g_column = a.g + e.indices[p] * (row.size * W);
UNROLL
      for (int i = 0; i < row.size; i++) row.vectors[i] += xi[p] * load<T>(g_column + i * W);
    }
  }
  a.log_ratios[r] = sum<T>(log_ratio);
  T* result = a.sum_rows + r * a.K;
  int whole = static_cast<int>(a.K / W);
UNROLL
  for (int i = 0; i < row.size; i++) {
    Vec<T> value = row.vectors[i] * load<T>(g_row + i * W);
    if (i < whole) store<T>(result + i * W, value);
    else store_some<T>(result + i * W, a.K - whole * W, value);
  }
}

// Adds ξ w g_row to Σ_col for the entries of a row.
template <class T, int N>
INLINE void add_to_columns(const Allocation<T>& a, const typename Allocation<T>::Entries& e, T weight, T* g_row,
                           const T* xi, T* sums) {
  constexpr int W = kLanes<T>;
  Row<T, N> row(g_row, a.width);
  for (int64_t p = 0; p < e.number; p++) {
    T* sum = sums + e.indices[p] * (row.size * W);
    Vec<T> weighted = fill<T>(xi[p] * weight);
UNROLL
    for (int i = 0; i < row.size; i++) store<T>(sum + i * W, load<T>(sum + i * W) + weighted * row.vectors[i]);
  }
}

template <class T, int N>
void some_rows(const Allocation<T>& a, const Part<T>& part, int64_t begin, int64_t end) {
  for (int64_t first = begin, next; first < end; first = next) {
    T* xi = part.xi;
    for (next = first; next < end && next < first + kTileRows; next++) {
      auto entries = a.entries(next);
      if (xi + entries.number > part.xi + a.capacity) break;
      one_row<T, N>(a, next, entries, part.g_rows + (next - first) * a.width, xi, part.row);
      xi += entries.number;
    }
    xi = part.xi;
    for (int64_t r = first; r < next; r++) {
      auto entries = a.entries(r);
      T weight = a.weights ? a.weights[r] : T(1);
      if (weight != 0) add_to_columns<T, N>(a, entries, weight, part.g_rows + (r - first) * a.width, xi, part.sums);
      xi += entries.number;
    }
  }
}

template <class T>
void some_rows(const Allocation<T>& a, const Part<T>& part, int64_t begin, int64_t end) {
  switch (a.width / kLanes<T>) {
#define FIXED(N) case N: return some_rows<T, N>(a, part, begin, end);
    FIXED(1) FIXED(2) FIXED(3) FIXED(4) FIXED(5) FIXED(6) FIXED(7) FIXED(8)
    FIXED(9) FIXED(10) FIXED(11) FIXED(12) FIXED(13)
#undef FIXED
    default: return some_rows<T, 0>(a, part, begin, end);
  }
}

// Calls one(j) for all columns j, some of them in each thread.
template <class T, class One>
INLINE void for_columns(const Allocation<T>& a, Blocks* blocks, One one) {
  for (int64_t begin; (begin = next_block(blocks) * kColumns) < a.columns;)
    for (int64_t j = begin; j < begin + kColumns && j < a.columns; j++) one(j);
}

// g of the columns.
template <class T>
void prepare_columns(void* context, Blocks* blocks, int) {
  const Allocation<T>& a = *static_cast<Allocation<T>*>(context);
  for_columns<T>(a, blocks, [&](int64_t j) {
    a.shifts[j] = exp_scaled<T>(a.log_columns + j * a.K, a.K, a.width, a.g + j * a.width);
  });
}

// Multiplies the sums of the columns by g.
template <class T>
void complete_columns(void* context, Blocks* blocks, int) {
  const Allocation<T>& a = *static_cast<Allocation<T>*>(context);
  for_columns<T>(a, blocks, [&](int64_t j) {
    const T *total = a.total + j * a.width, *g = a.g + j * a.width;
    for (int64_t k = 0; k < a.K; k++) a.sum_columns[j * a.K + k] = total[k] * g[k];
  });
}

template <class T>
INLINE void clear(T* x, int64_t size) {
  for (int64_t k = 0; k < size; k += kLanes<T>) store<T>(x + k, Vec<T>{});
}

template <class T>
void allocate_blocks(void* context, Blocks* blocks, int thread) {
  const Allocation<T>& a = *static_cast<Allocation<T>*>(context);
  const Part<T> part(a, thread);
  int64_t size = a.columns * a.width;
  clear<T>(part.sums, size);
  for (int64_t b; (b = next_block(blocks)) < a.blocks;) {
    some_rows<T>(a, part, a.rows.first_of(b, a.blocks) * a.copies, a.rows.first_of(b + 1, a.blocks) * a.copies);
    await_turn(blocks, b);
    for (int64_t k = 0; k < size; k += kLanes<T>) {
      Vec<T> value = load<T>(part.sums + k);
      store<T>(a.total + k, b == 0 ? value : load<T>(a.total + k) + value);
      store<T>(part.sums + k, Vec<T>{});
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
  int64_t longest = rows.longest(), capacity = longest < kTileEntries ? kTileEntries : longest;
  int64_t size = columns * width, part = Part<T>::size(columns, width, capacity), padded = (columns + W - 1) / W * W;
  T* memory = static_cast<T*>(allocate_memory((2 * size + threads * part + padded) * sizeof(T)));
  if (memory == nullptr) return ffi::fail(frame, "not enough memory for the sums of q(S)");
  Allocation<T> a{rows, ffi::argument<T>(frame, 2), ffi::argument<T>(frame, 3), ffi::argument<T>(frame, 4),
                  weighted ? ffi::argument<T>(frame, 5) : nullptr, columns, K, width, copies, blocks,
                  ffi::result<T>(frame, 0), ffi::result<T>(frame, 1), ffi::result<T>(frame, 2),
                  capacity, part, memory, memory + 2 * size + threads * part, memory + 2 * size, memory + size};
  int for_each = size < kWorthThreads ? 1 : threads_allowed();
  run_parallel(for_each, prepare_columns<T>, &a);
  run_parallel(threads, allocate_blocks<T>, &a);
  run_parallel(for_each, complete_columns<T>, &a);
  free_memory(memory);
  return nullptr;
}

}  // namespace LEVEL
