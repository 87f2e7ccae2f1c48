// Draws from Gamma(a, 1) for many shapes a, by the method of Marsaglia and Tsang (2000); see inference/gammas.py.
//
// A number depends on the key and on its place: not on the threads, nor on other shapes. All is in double precision.
#pragma once

#include <cmath>

#include "ffi.h"
#include "parallel.h"
#include "random.h"
#include "vector.h"

namespace LEVEL {

constexpr int64_t kDraws = 1 << 10;  // that a thread takes at once
constexpr int kMostProposals = 200;  // as many are rejected in a row only if the shape is not a number
constexpr double kPi = 3.14159265358979323846;

// sin x for |x| ≤ π/2, by its Taylor series: the first term left out is 2e-16.
INLINE Vec<double> sine(Vec<double> x) {
  Vec<double> x2 = x * x, value = fill<double>(-kInverseFactorials.of[19]);
UNROLL
  for (int k = 8; k >= 0; k--) value = value * x2 + (k % 2 ? -1 : 1) * kInverseFactorials.of[2 * k + 1];
  return value * x;
}

// y − log(1 + y) for y > −1, without cancellation for small y: with s = y / (2 + y), it is s y − 2 (s³/3 + s⁵/5 + …).
INLINE Vec<double> minus_log1p(Vec<double> y) {
  Vec<double> s = y / (2.0 + y), s2 = s * s, series = fill<double>(1.0 / 11);
UNROLL
  for (int k = 4; k > 0; k--) series = series * s2 + 1.0 / (2 * k + 1);
  return s2 < 2.5e-4 ? s * (y - 2.0 * s2 * series) : y - log<double>(1.0 + y);
}

// One proposal for each of a vector of shapes, from four uniform numbers u above 0 and up to 1.
//
// With d = a − 1/3 (a + 1 for a < 1), a standard normal x, y = x/√(9d) and v = (1 + y)³, the proposal dv is accepted with
// probability exp(x²/2 − d(v − 1 − log v)), where v − 1 − log v = 3 (y − log(1 + y)) + y² (3 + y). For a < 1 it is then
// multiplied by u^(1/a). The normal is √(−2 log u) cos 2πu, with cos 2πu = sin 2π(¼ − |u − ½|) up to its sign.
struct Proposal {
  Vec<double> value;
  Bits<double> accepted;

  INLINE Proposal(Vec<double> a, const Vec<double>* u) {
    Vec<double> d = (a < 1.0 ? a + 1.0 : a) - 1.0 / 3, half = u[1] - 0.5;
    Vec<double> x = root(-2.0 * log<double>(u[0])) * sine(2 * kPi * (0.25 - (half < 0.0 ? -half : half)));
    Vec<double> y = x / root(9.0 * d);
    Bits<double> inside = (Bits<double>)(y > -1.0);
    y = y > -1.0 ? y : Vec<double>{};
    Vec<double> loss = d * (3.0 * minus_log1p(y) + y * y * (3.0 + y)) - 0.5 * x * x, cube = (1.0 + y) * (1.0 + y) * (1.0 + y);
    accepted = inside & (Bits<double>)(-log<double>(u[2]) > loss);
    value = d * cube;
    bool small = false;
    for (int i = 0; i < kLanes<double>; i++) small |= a[i] < 1.0;
    if (small) value *= a < 1.0 ? exp<double>(log<double>(u[3]) / a) : fill<double>(1.0);
  }

  INLINE static Vec<double> root(Vec<double> x) {
    for (int i = 0; i < kLanes<double>; i++) x[i] = std::sqrt(x[i]);
    return x;
  }
};

template <class T>
struct Gammas {
  uint64_t key[2];
  const T* shape;
  T* drawn;
  int64_t size;
};

template <class T>
INLINE void draw_vector(const Gammas<T>& g, int64_t first, int number) {
  constexpr int W = kLanes<double>;
  Vec<double> a = fill<double>(1.0), u[4], drawn = {};
  Bits<double> done = {};
  for (int i = 0; i < number; i++) a[i] = g.shape[first + i];
  for (int n = 0, left = number; n < kMostProposals && left > 0; n++) {
    for (int i = 0; i < W; i++) {
      Stream random(g.key, static_cast<uint64_t>(first + i), static_cast<uint64_t>(n));
      for (int j = 0; j < 4; j++) u[j][i] = random.positive();
    }
    Proposal proposal(a, u);
    drawn = (Vec<double>)(((Bits<double>)drawn & done) | ((Bits<double>)proposal.value & ~done));
    done |= proposal.accepted;
    left = 0;
    for (int i = 0; i < number; i++) left += done[i] == 0;
  }
  for (int i = 0; i < number; i++) g.drawn[first + i] = static_cast<T>(drawn[i]);
}

template <class T>
void draw_pieces(void* context, Blocks* blocks, int) {
  constexpr int W = kLanes<double>;
  const Gammas<T>& g = *static_cast<Gammas<T>*>(context);
  for (int64_t piece; (piece = next_block(blocks)) * kDraws < g.size;) {
    int64_t end = (piece + 1) * kDraws < g.size ? (piece + 1) * kDraws : g.size;
    for (int64_t i = piece * kDraws; i < end; i += W) draw_vector(g, i, end - i < W ? static_cast<int>(end - i) : W);
  }
}

template <class T>
ffi::Error* gamma(ffi::Frame* frame) {
  if (ffi::answer_metadata(frame) || frame->stage != ffi::kExecute) return nullptr;
  uint64_t key[2];
  read_key(frame, 0, key);
  Gammas<T> g{{key[0], key[1]}, ffi::argument<T>(frame, 1), ffi::result<T>(frame, 0), ffi::dim(frame, 1, 0)};
  int64_t pieces = g.size / (4 * kDraws) + 1;
  run_parallel(threads_allowed() < pieces ? threads_allowed() : static_cast<int>(pieces), draw_pieces<T>, &g);
  return nullptr;
}

}  // namespace LEVEL
