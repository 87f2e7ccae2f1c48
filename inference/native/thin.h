// A draw of S: each count of X split among the components (see split.h), and its sums.
//
// An entry's random numbers depend on the key and on its place among the entries: not on the threads, nor on other
// entries.
#pragma once

#include "parallel.h"
#include "rows.h"
#include "split.h"

namespace LEVEL {

constexpr int64_t kSpoiled = INT64_MIN / 2;  // instead of a count, where probabilities were no numbers

template <class T>
struct Thinning {
  Rows rows;
  uint64_t key[2];
  const T *values, *row_factor, *column_factor;
  int64_t columns, K, width, blocks;
  T *sum_rows, *sum_columns, *scaled;  // scaled: columns × width
  int64_t* counts;                     // threads × columns × width
  int64_t part;                        // memory of a thread
};

// Copies K numbers, multiplied by a power of 2 so that products do not underflow, and fills them up with 0.
template <class T>
INLINE void scale(const T* x, int64_t K, int64_t width, T* scaled) {
  T top = 0;
  for (int64_t k = 0; k < K; k++) top = top < x[k] ? x[k] : top;
  int power = 0;
  if (top > 0 && top <= std::numeric_limits<T>::max()) std::frexp(top, &power);
  constexpr int most = sizeof(T) == 4 ? 100 : 1000;
  T by = std::ldexp(T(1), power > most ? -most : power < -most ? most : -power);
  for (int64_t k = 0; k < width; k++) scaled[k] = k < K ? x[k] * by : 0;
}

template <class T>
void thin_blocks(void* context, Blocks* blocks, int thread) {
  const Thinning<T>& t = *static_cast<Thinning<T>*>(context);
  int64_t size = t.columns * t.width, last = t.rows.begin(t.rows.number), *memory = t.counts + thread * t.part;
  double* space = reinterpret_cast<double*>(memory + size + t.width);
  T* factor = reinterpret_cast<T*>(space + 3 * t.width);
  int32_t* whole = reinterpret_cast<int32_t*>(space + 4 * t.width);
  Counts counts{memory + size, memory, {}};
  Shares shares{space, space + t.width, space + 2 * t.width, whole, whole + t.width, t.width};
  for (int64_t k = 0; k < t.width; k++) shares.ends[k] = std::numeric_limits<double>::infinity();
  for (int64_t b; (b = next_block(blocks)) < t.blocks;) {
    for (int64_t r = t.rows.first_of(b, t.blocks); r < t.rows.first_of(b + 1, t.blocks); r++) {
      scale<T>(t.row_factor + r * t.K, t.K, t.width, factor);
      std::memset(counts.row, 0, t.width * sizeof(int64_t));
      for (int64_t p = t.rows.begin(r); p < t.rows.begin(r + 1); p++) {
        if (p + 4 < last) {
          const T* ahead = t.scaled + t.rows.indices[p + 4] * t.width;
          for (int64_t k = 0; k < t.width; k += 64 / sizeof(T)) __builtin_prefetch(ahead + k, 0, 3);
        }
        T x = t.values[p];
        if (x <= 0) continue;
        int64_t column = t.rows.indices[p] * t.width;
        double total = shares.fill(factor, t.scaled + column);
        Stream random(t.key, static_cast<uint64_t>(p));
        if (total > 0 && total < std::numeric_limits<double>::infinity() && x < T(0x1p62))
          split_entry(static_cast<int64_t>(x), total, shares, t.K, random, column, counts);
        else if (total == 0 && x < T(0x1p62))  // all products underflow: whoever is last takes all
          counts.add(column, t.K - 1, static_cast<int64_t>(x));
        else
          for (int64_t k = 0; k < t.K; k++) counts.row[k] = counts.columns[column + k] = kSpoiled;
      }
      for (int64_t k = 0; k < t.K; k++)
        t.sum_rows[r * t.K + k] = counts.row[k] < 0 ? std::numeric_limits<T>::quiet_NaN() : T(counts.row[k]);
    }
  }
  counts.flush();
}

template <class T>
ffi::Error* thin(ffi::Frame* frame) {
  if (ffi::answer_metadata(frame) || frame->stage != ffi::kExecute) return nullptr;
  constexpr int W = VECTOR_BYTES / 4;
  Rows rows(frame, 1);
  int64_t columns = ffi::dim(frame, 5, 0), K = ffi::dim(frame, 5, 1), width = (K + W - 1) / W * W;
  int64_t entries = rows.begin(rows.number), blocks = entries / 1024 < 1 ? 1 : entries / 1024 > 64 ? 64 : entries / 1024;
  int threads = threads_allowed() < blocks ? threads_allowed() : static_cast<int>(blocks);
  int64_t size = columns * width, part = size + 6 * width + 8;
  int64_t* memory = static_cast<int64_t*>(allocate_memory((threads * part + size) * sizeof(int64_t)));
  if (memory == nullptr) return ffi::fail(frame, "not enough memory for the sums of S");
  uint64_t key[2];
  read_key(frame, 0, key);
  Thinning<T> t{rows, {key[0], key[1]}, ffi::argument<T>(frame, 3), ffi::argument<T>(frame, 4), ffi::argument<T>(frame, 5),
                columns, K, width, blocks, ffi::result<T>(frame, 0), ffi::result<T>(frame, 1),
                reinterpret_cast<T*>(memory + threads * part), memory, part};
  for (int64_t j = 0; j < columns; j++) scale<T>(t.column_factor + j * K, K, width, t.scaled + j * width);
  std::memset(memory, 0, threads * part * sizeof *memory);
  run_parallel(threads, thin_blocks<T>, &t);
  for (int64_t j = 0; j < columns; j++)
    for (int64_t k = 0; k < K; k++) {
      int64_t count = 0;
      for (int n = 0; n < threads; n++) {
        int64_t more = memory[n * part + j * width + k];
        count = count < 0 || more < 0 ? kSpoiled : count + more;
      }
      t.sum_columns[j * K + k] = count < 0 ? std::numeric_limits<T>::quiet_NaN() : T(count);
    }
  free_memory(memory);
  return nullptr;
}

}  // namespace LEVEL
