// A draw of S: each count x of X split among the components, s ~ Multinomial(x, t_k v_k / Σ t v), and its sums.
//
// Small counts are split unit by unit: a unit goes to the component in whose interval of the cumulative sums its uniform
// number falls. Large ones are split by binomials, from the last component on, until few units are left. An entry's
// random numbers depend on the key and on its place among the entries: not on the threads, nor on other entries.
#pragma once

#include "parallel.h"
#include "random.h"
#include "rows.h"
#include "vector.h"

namespace LEVEL {

constexpr int64_t kUnits = 16;                // units that take as long as a binomial
constexpr int kLater = 256;                   // units whose columns are counted at once
constexpr int64_t kSpoiled = INT64_MIN / 2;   // instead of a count, where probabilities were no numbers

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

// Copies K numbers, divided by the largest of them so that products do not underflow, and fills them up with 0.
template <class T>
INLINE void scale(const T* x, int64_t K, int64_t width, T* scaled) {
  T top = 0;
  for (int64_t k = 0; k < K; k++) top = top < x[k] ? x[k] : top;
  T by = top > std::numeric_limits<T>::min() ? 1 / top : T(1);
  for (int64_t k = 0; k < width; k++) scaled[k] = k < K ? x[k] * by : 0;
}

// Products of two rows, their cumulative sums, and those after each vector, which are filled up with ∞.
template <class T>
struct Shares {
  T *products, *bounds, *ends;
  int N;  // vectors

  INLINE T fill(const T* row, const T* column) {
    constexpr int W = kLanes<T>;
    T total = 0;
    for (int i = 0; i < N; i++) {
      Vec<T> product = load<T>(row + i * W) * load<T>(column + i * W), bound = cumulate<T>(product) + total;
      store<T>(products + i * W, product);
      store<T>(bounds + i * W, bound);
      ends[i] = total = bound[W - 1];
    }
    return total;
  }

  // The component in whose interval u falls. Bounds within a vector may fall by rounding: if so, its neighbour.
  INLINE int find(T u) const {
    constexpr int W = kLanes<T>;
    int i = 0;
    for (int n = 0; n < N; n += W) i += number_up_to<T>(load<T>(ends + n), u);
    int k = i * W + number_up_to<T>(load<T>(bounds + i * W), u);
    while (products[k] == 0) k = k > 0 ? k - 1 : N * W - 1;
    return k;
  }
};

// The uniform number below `total` that 32 (64) random bits stand for.
INLINE float below(uint32_t bits, float total) {
  float u = static_cast<float>(bits >> 8) * 0x1p-24f * total;
  return u < total ? u : std::nextafter(total, 0.0f);
}
INLINE double below(uint64_t bits, double total) {
  double u = static_cast<double>(bits >> 11) * 0x1p-53 * total;
  return u < total ? u : std::nextafter(total, 0.0);
}

// Counts of a row and of all columns. Those of the columns are scattered over memory: units are collected, so that many
// reads are under way at the same time.
struct Counts {
  int64_t *row, *columns, later[kLater];
  int waiting = 0;

  INLINE void add_unit(int64_t column, int k) {
    row[k]++;
    later[waiting++] = column + k;
    if (waiting == kLater) flush();
  }
  INLINE void add(int64_t column, int64_t k, int64_t s) { row[k] += s, columns[column + k] += s; }
  void flush() {
    for (int n = 0; n < waiting; n++) columns[later[n]]++;
    waiting = 0;
  }
};

template <class T>
INLINE void split_units(int64_t x, T total, const Shares<T>& shares, Stream& random, int64_t column, Counts& counts) {
  constexpr int per_word = 8 / sizeof(T);
  for (int64_t n = 0; n < x;) {
    uint64_t word = random.next();
    for (int i = 0; i < per_word && n < x; i++, n++) {
      if constexpr (sizeof(T) == 4)
        counts.add_unit(column, shares.find(below(static_cast<uint32_t>(word >> (32 * i)), total)));
      else counts.add_unit(column, shares.find(below(word, total)));
    }
  }
}

template <class T>
INLINE void split_entry(int64_t x, T total, const Shares<T>& shares, int64_t K, Stream& random, int64_t column,
                        Counts& counts) {
  int64_t k = K - 1;
  for (; x > kUnits * K && k > 0; k--) {
    if (shares.products[k] == 0) continue;
    int64_t s = draw_binomial(x, static_cast<double>(shares.products[k]) / shares.bounds[k], random);
    counts.add(column, k, s);
    x -= s;
    total = shares.bounds[k - 1];
    if (x == 0 || total == 0) return;
  }
  if (k == 0) counts.add(column, 0, x);
  else split_units<T>(x, total, shares, random, column, counts);
}

template <class T>
void thin_blocks(void* context, Blocks* blocks, int thread) {
  const Thinning<T>& t = *static_cast<Thinning<T>*>(context);
  int64_t size = t.columns * t.width, last = t.rows.begin(t.rows.number), *memory = t.counts + thread * t.part;
  T* factor = reinterpret_cast<T*>(memory + size + t.width);
  Counts counts{memory + size, memory, {}};
  Shares<T> shares{factor + t.width, factor + 2 * t.width, factor + 3 * t.width, static_cast<int>(t.width / kLanes<T>)};
  for (int64_t k = 0; k < t.width; k++) shares.ends[k] = std::numeric_limits<T>::infinity();
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
        T total = shares.fill(factor, t.scaled + column);
        Stream random(t.key, static_cast<uint64_t>(p));
        if (total > 0 && total < std::numeric_limits<T>::infinity() && x < T(0x1p62))
          split_entry<T>(static_cast<int64_t>(x), total, shares, t.K, random, column, counts);
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
  constexpr int W = kLanes<T>;
  Rows rows(frame, 1);
  int64_t columns = ffi::dim(frame, 5, 0), K = ffi::dim(frame, 5, 1), width = (K + W - 1) / W * W;
  int64_t entries = rows.begin(rows.number), blocks = entries / 1024 < 1 ? 1 : entries / 1024 > 64 ? 64 : entries / 1024;
  int threads = threads_allowed() < blocks ? threads_allowed() : static_cast<int>(blocks);
  int64_t size = columns * width, part = size + 5 * width;
  int64_t* memory = static_cast<int64_t*>(allocate_memory((threads * part + size) * sizeof(int64_t)));
  if (memory == nullptr) return ffi::fail(frame, "not enough memory for the sums of S");
  const uint32_t* key = ffi::argument<uint32_t>(frame, 0);
  int64_t words = ffi::dim(frame, 0, 0);
  uint64_t low = key[0] | uint64_t(words > 1 ? key[1] : 0) << 32, high = words > 3 ? key[2] | uint64_t(key[3]) << 32 : 0;
  Thinning<T> t{rows, {low, high}, ffi::argument<T>(frame, 3), ffi::argument<T>(frame, 4), ffi::argument<T>(frame, 5),
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
