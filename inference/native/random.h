// Random numbers that depend on a key and a place only, and binomial draws from them.
#pragma once

#include <cmath>
#include <cstdint>

#include "ffi.h"
#include "vector.h"

namespace LEVEL {

// Philox 4×64 with ten rounds (Salmon et al., 2011), the generator of numpy.random.Philox.
struct Stream {
  uint64_t key[2], counter[2], words[4];
  int used = 4;  // of the four words

  // The numbers of one place, from counter `begin` on: those of other places and of other keys are independent of them.
  Stream(const uint64_t* key_, uint64_t place, uint64_t begin = 0) : key{key_[0], key_[1]}, counter{begin, place} {}

  INLINE void refill() {
    uint64_t c0 = counter[0]++, c1 = counter[1], c2 = 0, c3 = 0, k0 = key[0], k1 = key[1];
UNROLL
    for (int round = 0; round < 10; round++) {
      unsigned __int128 a = static_cast<unsigned __int128>(0xD2E7470EE14C6C93) * c0;
      unsigned __int128 b = static_cast<unsigned __int128>(0xCA5A826395121157) * c2;
      c0 = static_cast<uint64_t>(b >> 64) ^ c1 ^ k0;
      c1 = static_cast<uint64_t>(b);
      c2 = static_cast<uint64_t>(a >> 64) ^ c3 ^ k1;
      c3 = static_cast<uint64_t>(a);
      k0 += 0x9E3779B97F4A7C15;
      k1 += 0xBB67AE8584CAA73B;
    }
    words[0] = c0, words[1] = c1, words[2] = c2, words[3] = c3;
    used = 0;
  }

  INLINE uint64_t next() {
    if (used == 4) refill();
    return words[used++];
  }

  INLINE double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }         // from 0 to below 1
  INLINE double positive() { return static_cast<double>((next() >> 11) + 1) * 0x1p-53; }  // above 0 to 1
};

// Reads argument n, the two or four words of a JAX key.
inline void read_key(ffi::Frame* frame, int n, uint64_t* key) {
  const uint32_t* words = ffi::argument<uint32_t>(frame, n);
  int64_t number = ffi::dim(frame, n, 0);
  key[0] = words[0] | uint64_t(number > 1 ? words[1] : 0) << 32;
  key[1] = number > 3 ? words[2] | uint64_t(words[3]) << 32 : 0;
}

// log k! − (k + ½) log(k + 1) + (k + 1) − ½ log 2π
inline double stirling_tail(double k) {
  static const double small[] = {0.08106146679532726,  0.0413406959554093,   0.02767792568499834, 0.020790672103765093,
                                 0.016644691189821193, 0.013876128823070748, 0.01189670994589177, 0.010411265261972096,
                                 0.009255462182712733, 0.00833056343336287};
  if (k < 10) return small[static_cast<int>(k)];
  double r = 1 / (k + 1), r2 = r * r;
  return r * (1.0 / 12 - r2 * (1.0 / 360 - r2 * (1.0 / 1260 - r2 / 1680)));
}

// By inversion: probabilities are added up from 0 on. For n p below 10, p at most ½.
inline double binomial_by_inversion(double n, double p, double odds, Stream& random) {
  double first = std::exp(n * std::log1p(-p));
  for (;;) {
    double u = random.uniform(), probability = first, k = 0;
    for (; u >= probability && k <= n; k++) {
      u -= probability;
      probability *= odds * (n - k) / (k + 1);
    }
    if (k <= n) return k;  // else the probabilities add up to less than u by rounding: again
  }
}

// By transformed rejection (Hörmann, 1993, algorithm BTRS). For n p of at least 10, p at most ½.
//
// A draw of k is accepted with probability f(k) / f(mode) times the slope of the transformation over alpha, which must be
// at most 1, and at least `inner` where edge is at least 0.07: integrated numerically, it is 0.94 to 0.995 at most, and
// 0.005 to 0.13 above `inner`, for n from 20 to 10⁷. Binomials are exact except for the rounding of `ratio`, log f(k) /
// f(mode), whose terms are of the order of k − mode, not of n.
inline double binomial_by_rejection(double n, double p, double odds, Stream& random) {
  double sd = std::sqrt(n * p * (1 - p)), b = 1.15 + 2.53 * sd, a = -0.0873 + 0.0248 * b + 0.01 * p, centre = n * p + 0.5;
  double inner = 0.92 - 4.2 / b, alpha = (2.83 + 5.1 / b) * sd, mode = std::floor((n + 1) * p);
  for (;;) {
    double u = random.uniform() - 0.5, v = random.positive(), edge = 0.5 - std::fabs(u);
    double k = std::floor((2 * a / edge + b) * u + centre), up = k - mode;
    if (edge >= 0.07 && v <= inner) return k;
    if (!(k >= 0 && k <= n)) continue;
    double ratio = up * std::log(odds * ((n - mode + 1) / (mode + 1))) - (k + 0.5) * std::log1p(up / (mode + 1)) -
                   (n - k + 0.5) * std::log1p(-up / (n - mode + 1)) + stirling_tail(mode) + stirling_tail(n - mode) -
                   stirling_tail(k) - stirling_tail(n - k);
    if (std::log(v * alpha / (a / (edge * edge) + b)) <= ratio) return k;
  }
}

// Of n, those that fall to a share rather than to the rest, both at least 0: Binomial(n, share / (share + rest)).
inline int64_t draw_binomial(int64_t n, double share, double rest, Stream& random) {
  if (!(share > 0) || n == 0) return 0;
  if (!(rest > 0)) return n;
  bool less = share <= rest;
  double odds = less ? share / rest : rest / share, p = odds / (1 + odds), number = static_cast<double>(n);
  double k = number * p < 10 ? binomial_by_inversion(number, p, odds, random)
                             : binomial_by_rejection(number, p, odds, random);
  return less ? static_cast<int64_t>(k) : n - static_cast<int64_t>(k);
}

}  // namespace LEVEL
