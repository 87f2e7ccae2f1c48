// ψ, exp ψ, log Γ and the entropy of log y, y ~ Gamma, of large arrays: the formulas of model/special.py.
//
// Asymptotic series at y = x + n, n even, are brought back to x by recurrence; with r = 1/y and the product
// P = Π_{k<n} (x + k) r,  ψ(x) = log y + series − slope / P  and  log Γ(y) = (y − ½) log y − y + ½ log 2π + tail.
#pragma once

#include "parallel.h"
#include "ffi.h"
#include "vector.h"

namespace LEVEL {

constexpr double kBernoulli[] = {1. / 6, -1. / 30, 1. / 42, -1. / 30, 5. / 66, -691. / 2730, 7. / 6, -3617. / 510};
constexpr double kHalfLogTwoPi = 0.91893853320467274178;
constexpr int64_t kPiece = 1 << 14;  // numbers that a thread takes at once

template <class T, int n, int terms>
struct Shifted {
  Vec<T> y, product, slope, series, tail;

  INLINE explicit Shifted(Vec<T> x) {
    y = x + T(n);
    Vec<T> r = T(1) / y, r2 = r * r;
    product = fill<T>(1), slope = Vec<T>{};
UNROLL
    for (int k = 0; k < n / 2; k++) {
      Vec<T> factor = (x * r) * ((x + T(n - 1)) * r) + T(k * (n - 1 - k)) * r2;
      slope = slope * factor + product;
      product = product * factor;
    }
    slope = (T(2) * x + T(n - 1)) * r * (r * slope);
    Vec<T> by_j = Vec<T>{}, by_square = Vec<T>{};
UNROLL
    for (int j = terms; j > 0; j--) {
      by_j = by_j * r2 + T(kBernoulli[j - 1] / (2 * j));
      by_square = by_square * r2 + T(kBernoulli[j - 1] / (2 * j * (2 * j - 1)));
    }
    series = T(-0.5) * r - r2 * by_j;
    tail = r * by_square;
  }
};

// n and terms such that the first term left out, at y = n, is below the unit roundoff.
template <class T>
INLINE Vec<T> digamma(Vec<T> x) {
  constexpr bool single = sizeof(T) == 4;
  Shifted<T, single ? 4 : 10, single ? 4 : 8> at(x);
  return (at.product * (log<T>(at.y) + at.series) - at.slope) / at.product;
}

template <class T>
INLINE Vec<T> exp_digamma(Vec<T> x) {
  constexpr bool single = sizeof(T) == 4;
  Shifted<T, single ? 4 : 10, single ? 4 : 8> at(x);
  return at.y * exp<T>(at.series - at.slope / at.product);  // without the logarithm
}

template <class T>
INLINE Vec<T> gammaln(Vec<T> x) {
  constexpr bool single = sizeof(T) == 4;
  constexpr int n = single ? 4 : 12;
  Shifted<T, n, single ? 4 : 7> at(x);
  // (x − ½) log y − y = (x − ½)(log y − 1) − n − ½: smaller terms, which lose fewer digits where log Γ is close to 0
  return (x - T(0.5)) * (log<T>(at.y) - T(1)) + (T(kHalfLogTwoPi - n - 0.5) + at.tail - log<T>(at.product));
}

// x + log Γ(x) − x ψ(x), whose terms are of order x log x: they are cancelled analytically.
template <class T>
INLINE Vec<T> log_entropy(Vec<T> x) {
  constexpr bool single = sizeof(T) == 4;
  constexpr int n = single ? 6 : 12;
  Shifted<T, n, single ? 3 : 7> at(x);
  Vec<T> rest = at.series - at.slope / at.product;
  return T(kHalfLogTwoPi - n) + at.tail - x * rest - log<T>(at.product) - T(0.5) * log<T>(at.y);
}

template <class T>
struct Elementwise {
  const T* x;
  T* y;
  int64_t size;
};

template <class T, Vec<T> (*function)(Vec<T>)>
void apply_pieces(void* context, Blocks* blocks, int) {
  const Elementwise<T>& e = *static_cast<Elementwise<T>*>(context);
  for (int64_t piece; (piece = next_block(blocks)) * kPiece < e.size;) {
    int64_t i = piece * kPiece, end = i + kPiece < e.size ? i + kPiece : e.size;
    for (; i + kLanes<T> <= end; i += kLanes<T>) store<T>(e.y + i, function(load<T>(e.x + i)));
    Vec<T> rest = i < end ? function(load_some<T>(e.x + i, end - i, T(1))) : Vec<T>{};
    std::memcpy(e.y + i, &rest, (end - i) * sizeof(T));
  }
}

template <class T, Vec<T> (*function)(Vec<T>)>
ffi::Error* apply(ffi::Frame* frame) {
  if (ffi::answer_metadata(frame) || frame->stage != ffi::kExecute) return nullptr;
  Elementwise<T> e{ffi::argument<T>(frame, 0), ffi::result<T>(frame, 0), ffi::dim(frame, 0, 0)};
  int64_t pieces = e.size / kPiece;
  run_parallel(threads_allowed() < pieces ? threads_allowed() : static_cast<int>(pieces), apply_pieces<T, function>, &e);
  return nullptr;
}

}  // namespace LEVEL
