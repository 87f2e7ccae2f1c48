// A count x split among the components, s ~ Multinomial(x, t_k v_k / Σ t v), and the counts added up.
//
// Small counts are split unit by unit: a unit goes to the component in whose interval of the cumulative sums its uniform
// number falls. Large ones are split by binomials, from the last component on, until few units are left. Everything that
// decides a draw is in double precision, where products of two floats are exact.
#pragma once

#include "random.h"
#include "vector.h"

namespace LEVEL {

constexpr int64_t kUnits = 16;  // units for each component that take as long as binomials
constexpr int kLater = 256;     // units whose columns are counted at once
constexpr int kTogether = 64;   // units that are compared with the bounds at once

typedef int32_t Integers __attribute__((vector_size(VECTOR_BYTES)));
typedef int32_t FewIntegers __attribute__((vector_size(VECTOR_BYTES / 2)));  // as many as there are doubles in a vector

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

// Uniform numbers (h + f) / 2³¹ for the units of an entry: h has 31 bits of its own, f, between 0 and 1, is the same for
// all. So each is uniform to 52 bits, and comparing (h + f) with a bound is comparing h with a whole number.
INLINE double draw_fraction(Stream& random) { return (static_cast<double>(random.next() >> 43) + 0.5) * 0x1p-21; }
INLINE void draw_units(Stream& random, int number, int32_t* units) {
  for (int n = 0; n < number; n += 2) {
    uint64_t word = random.next();
    units[n] = static_cast<int32_t>(word >> 33), units[n + 1] = static_cast<int32_t>(word >> 1 & 0x7fffffff);
  }
}

// Products of two rows, their cumulative sums, and those after each vector, which are filled up with ∞.
struct Shares {
  double *products, *bounds, *ends;
  int32_t *limits, *above;  // of each bound, as a whole number; the units that are not below it
  int64_t width;

  template <class T>
  INLINE double fill(const T* row, const T* column) {
    constexpr int W = kLanes<double>;
    Vec<double> total = {};
    for (int64_t i = 0; i < width; i += W) {
      Vec<double> product = load_double(row + i) * load_double(column + i), within = cumulate(product);
      store<double>(products + i, product);
      store<double>(bounds + i, within + total);
      total += LEVEL::fill<double>(within[W - 1]);
      ends[i / W] = total[0];
    }
    return total[0];
  }

  // The component in whose interval u falls: it has a product above 0, since bounds never fall.
  INLINE int find(double u) const {
    constexpr int W = kLanes<double>;
    int64_t i = 0;
    for (int64_t n = 0; n < width / W; n += W) i += number_up_to(load<double>(ends + n), u);
    return static_cast<int>(i * W + number_up_to(load<double>(bounds + i * W), u));
  }

  // (h + f) / 2³¹ is at least bound / total if h is above the limit, ⌊2³¹ bound / total − f⌋.
  INLINE void set_limits(double total, double fraction) {
    constexpr int W = kLanes<double>;
    double scale = 0x1p31 / total;
    for (int64_t i = 0; i < width; i += W) {
      Vec<double> bound = load<double>(bounds + i), place = bound >= total ? LEVEL::fill<double>(0x1p31) : bound * scale;
      Bits<double> floor = (Bits<double>)((place - (fraction + 0.5)) + kShifter<double>);
      FewIntegers limit = __builtin_convertvector(floor, FewIntegers);
      std::memcpy(limits + i, &limit, sizeof limit);
    }
  }
};

INLINE void find_units(int64_t x, double total, const Shares& shares, Stream& random, int64_t column, Counts& counts) {
  double fraction = draw_fraction(random);
  int32_t units[kTogether];
  for (int64_t left = x; left > 0; left -= kTogether) {
    int number = left < kTogether ? static_cast<int>(left) : kTogether;
    draw_units(random, number, units);
    for (int n = 0; n < number; n++) counts.add_unit(column, shares.find((units[n] + fraction) * 0x1p-31 * total));
  }
}

// The same for many units: how many are above each limit, all limits of a vector at once.
INLINE void count_units(int64_t x, double total, Shares& shares, Stream& random, int64_t column, Counts& counts) {
  constexpr int W = VECTOR_BYTES / 4;
  shares.set_limits(total, draw_fraction(random));
  int32_t units[kTogether], *above = shares.above + 1;
  std::memset(above, 0, shares.width * sizeof *above);
  for (int64_t left = x; left > 0; left -= kTogether) {
    int number = left < kTogether ? static_cast<int>(left) : kTogether;
    draw_units(random, number, units);
    for (int64_t i = 0; i < shares.width; i += W) {
      Integers limit, number_above;
      std::memcpy(&limit, shares.limits + i, sizeof limit);
      std::memcpy(&number_above, above + i, sizeof number_above);
      for (int n = 0; n < number; n++) number_above -= (Integers)(units[n] - Integers{} > limit);
      std::memcpy(above + i, &number_above, sizeof number_above);
    }
  }
  above[-1] = static_cast<int32_t>(x);
  int64_t *row = counts.row, *columns = counts.columns + column;
  for (int64_t k = 0; k < shares.width; k++) {
    int64_t s = above[k - 1] - above[k];
    row[k] += s;
    columns[k] += s;
  }
}

INLINE void split_entry(int64_t x, double total, Shares& shares, int64_t K, Stream& random, int64_t column,
                        Counts& counts) {
  int64_t k = K - 1;
  for (; x > kUnits * K && k > 0; k--) {
    if (shares.products[k] == 0) continue;
    total = shares.bounds[k - 1];
    int64_t s = draw_binomial(x, shares.products[k], total, random);
    counts.add(column, k, s);
    x -= s;
    if (x == 0) return;
  }
  if (k == 0) counts.add(column, 0, x);  // below, a pass over all bounds costs more than to find few units
  else if (x < 4 || 8 * x < K) find_units(x, total, shares, random, column, counts);
  else count_units(x, total, shares, random, column, counts);
}

}  // namespace LEVEL
