// E[log y] and the entropy of log y, y ~ Gamma(x, 1), of large arrays, in one pass: the formulas of model/special.py.
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

// ψ(x), and x + log Γ(x) − x ψ(x), whose terms of order x log x are cancelled analytically. n and the number of terms are
// such that the first term left out, at y = n, is below the unit roundoff.
template <class T>
INLINE void log_moments(Vec<T> x, Vec<T>& mean, Vec<T>& entropy) {
  constexpr bool single = sizeof(T) == 4;
  constexpr int n = single ? 6 : 12;
  Shifted<T, n, single ? 3 : 7> at(x);
  Vec<T> rest = at.series - at.slope / at.product, log_y = log<T>(at.y);
  mean = log_y + rest;
  entropy = T(kHalfLogTwoPi - n) + at.tail - x * rest - log<T>(at.product) - T(0.5) * log_y;
}

template <class T>
struct LogMoments {
  const T* x;
  T *means, *entropies;
  int64_t size;
};

template <class T>
void log_moments_of_pieces(void* context, Blocks* blocks, int) {
  const LogMoments<T>& e = *static_cast<LogMoments<T>*>(context);
  Vec<T> mean, entropy;
  for (int64_t piece; (piece = next_block(blocks)) * kPiece < e.size;) {
    int64_t i = piece * kPiece, end = i + kPiece < e.size ? i + kPiece : e.size;
    for (; i + kLanes<T> <= end; i += kLanes<T>) {
      log_moments<T>(load<T>(e.x + i), mean, entropy);
      store<T>(e.means + i, mean);
      store<T>(e.entropies + i, entropy);
    }
    if (i == end) continue;
    log_moments<T>(load_some<T>(e.x + i, end - i, T(1)), mean, entropy);
    std::memcpy(e.means + i, &mean, (end - i) * sizeof(T));
    std::memcpy(e.entropies + i, &entropy, (end - i) * sizeof(T));
  }
}

template <class T>
ffi::Error* log_moments(ffi::Frame* frame) {
  if (ffi::answer_metadata(frame) || frame->stage != ffi::kExecute) return nullptr;
  LogMoments<T> e{ffi::argument<T>(frame, 0), ffi::result<T>(frame, 0), ffi::result<T>(frame, 1), ffi::size(frame, 0)};
  int64_t pieces = e.size / kPiece;
  run_parallel(threads_allowed() < pieces ? threads_allowed() : static_cast<int>(pieces), log_moments_of_pieces<T>, &e);
  return nullptr;
}

}  // namespace LEVEL
