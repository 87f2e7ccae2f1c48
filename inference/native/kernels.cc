// The handlers that XLA calls, compiled once for each level of processors: LEVEL is its name.
#include "allocate.h"

#define NAME_(function, level) gsnmf_##function##_##level
#define NAME(function, level) NAME_(function, level)
#define HANDLER(function, type)                                     \
  extern "C" ffi::Error* NAME(function##_##type, LEVEL)(ffi::Frame* frame)

HANDLER(allocate, f32) { return LEVEL::allocate<float>(frame); }
HANDLER(allocate, f64) { return LEVEL::allocate<double>(frame); }
