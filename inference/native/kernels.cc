// The handlers that XLA calls, compiled once for each level of processors: LEVEL is its name.
#include "allocate.h"
#include "gamma.h"
#include "special.h"
#include "thin.h"

#define JOIN_(kernel, type, level) gsnmf_##kernel##_##type##_##level
#define JOIN(kernel, type, level) JOIN_(kernel, type, level)
#define HANDLER(kernel, function, type, ...)                                 \
  extern "C" ffi::Error* JOIN(kernel, type, LEVEL)(ffi::Frame * frame) {     \
    return LEVEL::function<__VA_ARGS__>(frame);                              \
  }
#define HANDLERS(kernel) HANDLER(kernel, kernel, f32, float) HANDLER(kernel, kernel, f64, double)

HANDLERS(allocate)
HANDLERS(thin)
HANDLERS(gamma)
HANDLERS(log_moments)
