// Vectors of floating-point numbers, their exponential and logarithm.
//
// Vectors are those of GCC and Clang: one type for all processors, as wide as the level at which a file is compiled.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

#if defined(__AVX2__)
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES 16
#endif
#if defined(__AVX2__)
#include <immintrin.h>
#endif
#define INLINE inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

namespace LEVEL {

template <class T>
struct Types;

template <>
struct Types<float> {
  typedef float Vector __attribute__((vector_size(VECTOR_BYTES)));
  typedef uint32_t Bits __attribute__((vector_size(VECTOR_BYTES)));
  static constexpr int mantissa = 23, bias = 127, exp_terms = 7, log_terms = 5;
  static constexpr uint32_t half = 0x3f3504f3;               // the bits of √½
  static constexpr float ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
  static constexpr float lowest = -87.0f, highest = 88.72f;  // exp is 0 below, ∞ above
  static constexpr float floor = 5.16987e-26f;             // tiny^(2/3), as in observed/dense.py
};

template <>
struct Types<double> {
  typedef double Vector __attribute__((vector_size(VECTOR_BYTES)));
  typedef uint64_t Bits __attribute__((vector_size(VECTOR_BYTES)));
  static constexpr int mantissa = 52, bias = 1023, exp_terms = 13, log_terms = 11;
  static constexpr uint64_t half = 0x3fe6a09e667f3bcd;
  static constexpr double ln2_high = 0x1.62e42fee00000p-1, ln2_low = 0x1.a39ef35793c76p-33;
  static constexpr double lowest = -708.0, highest = 709.78;
  static constexpr double floor = 7.91096787527241e-206;
};

template <class T>
using Vec = typename Types<T>::Vector;
template <class T>
using Bits = typename Types<T>::Bits;
template <class T>
constexpr int kLanes = VECTOR_BYTES / sizeof(T);

template <class T>
INLINE Vec<T> load(const T* x) {
  Vec<T> value;
  std::memcpy(&value, x, sizeof value);
  return value;
}

template <class T>
INLINE void store(T* x, Vec<T> value) {
  std::memcpy(x, &value, sizeof value);
}

template <class T>
INLINE Vec<T> fill(T x) {
  return x - Vec<T>{};
}

template <class T>
INLINE Vec<T> max(Vec<T> x, Vec<T> y) {  // x if it is not a number
  return x < y ? y : x;
}

// Combines the numbers of a vector: halves first, so always in the same order.
template <class T, class Combine>
INLINE T reduce(Vec<T> x, Combine combine) {
  typedef T Quarter __attribute__((vector_size(16)));
  Quarter parts[VECTOR_BYTES / 16];
  std::memcpy(parts, &x, sizeof x);
  for (int width = VECTOR_BYTES / 32; width > 0; width /= 2)
    for (int i = 0; i < width; i++) parts[i] = combine(parts[i], parts[i + width]);
  if constexpr (sizeof(T) == 8) return combine(parts[0][0], parts[0][1]);
  else return combine(combine(parts[0][0], parts[0][2]), combine(parts[0][1], parts[0][3]));
}

template <class T>
INLINE T sum(Vec<T> x) {
  return reduce<T>(x, [](auto a, auto b) { return a + b; });
}

template <class T>
INLINE T largest(Vec<T> x) {
  return reduce<T>(x, [](auto a, auto b) { return a < b ? b : a; });
}

// All bits are set in the first `count` places.
template <class T>
INLINE Bits<T> first(int64_t count) {
  Bits<T> place;
  for (int i = 0; i < kLanes<T>; i++) place[i] = i;
  return (Bits<T>)(place < Bits<T>{} + static_cast<uint32_t>(count));
}

// Loads `count` numbers, at most as many as a vector has, and fills it up.
template <class T>
INLINE Vec<T> load_some(const T* x, int64_t count, T rest) {
#if defined(__AVX2__)
  Bits<T> there = first<T>(count);
  Vec<T> value;
  if constexpr (sizeof(T) == 8) value = (Vec<T>)_mm256_maskload_pd(x, (__m256i)there);
  else value = (Vec<T>)_mm256_maskload_ps(x, (__m256i)there);
  return there ? value : fill<T>(rest);
#else
  Vec<T> value = fill<T>(rest);
  for (int i = 0; i < kLanes<T>; i++) value[i] = i < count ? x[i] : rest;
  return value;
#endif
}

template <class T>
INLINE void store_some(T* x, int64_t count, Vec<T> value) {
#if defined(__AVX2__)
  if constexpr (sizeof(T) == 8) _mm256_maskstore_pd(x, (__m256i)first<T>(count), (__m256d)value);
  else _mm256_maskstore_ps(x, (__m256i)first<T>(count), (__m256)value);
#else
  std::memcpy(x, &value, count * sizeof(T));
#endif
}

// Loads as many numbers as a vector of doubles has, and makes them doubles.
template <class T>
INLINE Vec<double> load_double(const T* x) {
  typedef T Part __attribute__((vector_size(kLanes<double> * sizeof(T))));
  Part part;
  std::memcpy(&part, x, sizeof part);
  return __builtin_convertvector(part, Vec<double>);
}

// Cumulative sums of the numbers of a vector, which are not negative: (a + b) + c and (a + b) + (c + d), so that no sum is
// below the one before it, and adding 0 changes nothing.
INLINE Vec<double> cumulate(Vec<double> x) {
#if defined(__AVX2__)
  __m256d zero = _mm256_setzero_pd(), pairs = _mm256_add_pd((__m256d)x, _mm256_unpacklo_pd(zero, (__m256d)x));
  return (Vec<double>)_mm256_add_pd(pairs, _mm256_blend_pd(zero, _mm256_permute4x64_pd(pairs, 0x50), 0xc));
#else
  static_assert(kLanes<double> == 2, "a step for each power of 2");
  x[1] += x[0];
  return x;
#endif
}

// The number of x that are not above u.
INLINE int number_up_to(Vec<double> x, double u) {
  Bits<double> yes = (Bits<double>)(x <= u);
#if defined(__AVX2__)
  return __builtin_popcount(_mm256_movemask_pd((__m256d)yes));
#else
  return static_cast<int>((yes[0] & 1) + (yes[1] & 1));
#endif
}

// Added to a number far below it, it rounds to a whole number and shows it in the low bits.
template <class T>
constexpr T kShifter = T(3) * (uint64_t(1) << (Types<T>::mantissa - 1));

// 1/k!, in a table: compilers compute a function of k at run time.
struct InverseFactorials {
  double of[20] = {1};
  constexpr InverseFactorials() {
    for (int k = 1; k < 20; k++) of[k] = of[k - 1] / k;
  }
};
constexpr InverseFactorials kInverseFactorials;

// exp x = 2ⁿ exp r with |r| ≤ ½ log 2, by the Taylor series of exp r, whose first term left out is below rounding.
template <class T>
INLINE Vec<T> exp(Vec<T> x) {
  using P = Types<T>;
  Vec<T> inside = max<T>(x > P::highest ? fill<T>(P::highest) : x, fill<T>(P::lowest));
  Vec<T> shifted = inside * T(1.4426950408889634) + kShifter<T>, n = shifted - kShifter<T>;
  Vec<T> r = (inside - n * P::ln2_high) - n * P::ln2_low;
  Vec<T> value = fill<T>(T(kInverseFactorials.of[P::exp_terms]));
UNROLL
  for (int k = P::exp_terms - 1; k >= 0; k--) value = value * r + T(kInverseFactorials.of[k]);
  Bits<T> power = ((Bits<T>)shifted - (Bits<T>)fill<T>(kShifter<T>) + (P::bias - 1)) << P::mantissa;
  value = value * (Vec<T>)power * T(2);
  value = x < P::lowest ? Vec<T>{} : value;
  return x > P::highest ? fill<T>(std::numeric_limits<T>::infinity()) : value;
}

// log x = e log 2 + 2 artanh s with x = 2ᵉ m, √½ ≤ m < √2, s = (m − 1)/(m + 1); for positive x that are not subnormal.
template <class T>
INLINE Vec<T> log(Vec<T> x) {
  using P = Types<T>;
  using Word = decltype(P::half + 0);
  constexpr Word offset = Word(P::bias + 1);
  Bits<T> e = (((Bits<T>)x - P::half + (offset << P::mantissa)) >> P::mantissa) - offset;
  Vec<T> m = (Vec<T>)((Bits<T>)x - (e << P::mantissa));
  Vec<T> s = (m - T(1)) / (m + T(1)), s2 = s * s, series = fill<T>(T(1) / (2 * P::log_terms - 1));
UNROLL
  for (int k = P::log_terms - 2; k >= 0; k--) series = series * s2 + T(1) / (2 * k + 1);
  Vec<T> power = (Vec<T>)((Bits<T>)fill<T>(kShifter<T>) + e) - kShifter<T>;
  Vec<T> value = power * P::ln2_high + (T(2) * s * series + power * P::ln2_low);
  return x == x ? value : x;
}

}  // namespace LEVEL
