// E[log y], and sums along rows of the entropy of log y, y ~ Gamma(x, 1), of large arrays, in one pass: the formulas of
// model/special.py.
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
constexpr int64_t kPiece = 1 << 14;  // numbers that a thread takes at once, or a row if that has more
constexpr int64_t kAtOnce = 1 << 10;  // numbers whose entropies wait to be added up

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
  int64_t rows, length;

  int64_t rows_at_once() const { return length < kPiece ? kPiece / length : 1; }
};

template <class T>
INLINE void log_moments(const T* x, int64_t number, T* means, T* entropies) {
  constexpr int W = kLanes<T>;
  Vec<T> mean, entropy;
  int64_t whole = number / W * W;
  for (int64_t i = 0; i < whole; i += W) {
    log_moments<T>(load<T>(x + i), mean, entropy);
    store<T>(means + i, mean);
    store<T>(entropies + i, entropy);
  }
  if (whole == number) return;
  log_moments<T>(load_some<T>(x + whole, number - whole, T(1)), mean, entropy);
  store_some<T>(means + whole, number - whole, mean);
  store_some<T>(entropies + whole, number - whole, entropy);
}

template <class T>
INLINE T add_up(const T* x, int64_t number) {
  constexpr int W = kLanes<T>;
  int64_t whole = number / W * W;
  Vec<T> total = load_some<T>(x + whole, number - whole, T(0));
  for (int64_t i = 0; i < whole; i += W) total += load<T>(x + i);
  return sum<T>(total);
}

// Of rows that are short together, of a long one in parts, whose sums are added in double precision.
template <class T>
INLINE void log_moments_of_rows(const LogMoments<T>& e, int64_t begin, int64_t end) {
  T entropies[kAtOnce];
  for (int64_t r = begin, some; r < end; r += some) {
    some = e.length > kAtOnce ? 1 : kAtOnce / e.length < end - r ? kAtOnce / e.length : end - r;
    int64_t from = r * e.length, number = some * e.length;
    double total = 0;
    for (int64_t i = from, part; i < from + number; i += part) {
      part = from + number - i < kAtOnce ? from + number - i : kAtOnce;
      log_moments<T>(e.x + i, part, e.means + i, entropies);
      if (e.length > kAtOnce) total += add_up<T>(entropies, part);
    }
    if (e.length > kAtOnce) e.entropies[r] = static_cast<T>(total);
    else for (int64_t n = 0; n < some; n++) e.entropies[r + n] = add_up<T>(entropies + n * e.length, e.length);
  }
}

template <class T>
void log_moments_of_pieces(void* context, Blocks* blocks, int) {
  const LogMoments<T>& e = *static_cast<LogMoments<T>*>(context);
  for (int64_t piece, rows = e.rows_at_once(); (piece = next_block(blocks)) * rows < e.rows;)
    log_moments_of_rows<T>(e, piece * rows, (piece + 1) * rows < e.rows ? (piece + 1) * rows : e.rows);
}

template <class T>
ffi::Error* log_moments(ffi::Frame* frame) {
  if (ffi::answer_metadata(frame) || frame->stage != ffi::kExecute) return nullptr;
  int64_t length = ffi::last_dim(frame, 0), rows = ffi::size(frame, 0) / length;
  LogMoments<T> e{ffi::argument<T>(frame, 0), ffi::result<T>(frame, 0), ffi::result<T>(frame, 1), rows, length};
  int64_t pieces = (rows + e.rows_at_once() - 1) / e.rows_at_once();
  run_parallel(threads_allowed() < pieces ? threads_allowed() : static_cast<int>(pieces), log_moments_of_pieces<T>, &e);
  return nullptr;
}

}  // namespace LEVEL
