// The part of XLA's foreign function interface that the kernels need, as plain structs.
//
// XLA calls a handler with one call frame. Its layout is the same in all versions 0.1 to 0.4 (jaxlib 0.8.0 to 0.11), and
// new minor versions only append to it: so no header of a particular jaxlib is needed to build, and one library serves all.
// XLA's headers check at compile time what tests/inference/test_native.py checks by running the kernels.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ffi {

struct Extension {
  size_t struct_size;
  int type;
  Extension* next;
};

struct Version {
  size_t struct_size;
  Extension* extensions;
  int major, minor;
};

struct Error;

struct ErrorArguments {
  size_t struct_size;
  Extension* extensions;
  const char* message;
  int code;
};

struct Api {
  size_t struct_size;
  Extension* extensions;
  Version version;
  const void* internal;
  Error* (*create_error)(ErrorArguments*);
};

struct Metadata {
  size_t struct_size;
  Version version;
  uint32_t traits;
  int64_t state_type;
};

struct MetadataExtension {
  Extension base;
  Metadata* metadata;
};

struct Buffer {
  size_t struct_size;
  Extension* extensions;
  int dtype;
  void* data;
  int64_t rank;
  int64_t* dims;
};

struct Buffers {  // arguments, or results
  size_t struct_size;
  Extension* extensions;
  int64_t size;
  int* types;
  Buffer** buffers;
};

struct Frame {
  size_t struct_size;
  Extension* extensions;
  const Api* api;
  void* context;
  int stage;
  Buffers arguments, results;
};

constexpr int kMetadata = 1, kExecute = 3, kInt64 = 5, kResourceExhausted = 8;

// Answers XLA's question for the version, which it asks before the first call, and returns true if this was one.
inline bool answer_metadata(Frame* frame) {
  Extension* extension = frame->extensions;
  if (extension == nullptr || extension->type != kMetadata) return false;
  Metadata* metadata = reinterpret_cast<MetadataExtension*>(extension)->metadata;
  // A runtime refuses handlers of versions older than those it supports, or newer than itself. What is used here is
  // common to all versions 0.x, so the runtime's own version is true as well.
  bool known = frame->api != nullptr && frame->api->version.major == 0;
  metadata->version = Version{sizeof(Version), nullptr, 0, known ? frame->api->version.minor : 1};
  metadata->traits = 0;
  metadata->state_type = 0;
  return true;
}

inline Error* fail(Frame* frame, const char* message) {
  ErrorArguments arguments{sizeof(ErrorArguments), nullptr, message, kResourceExhausted};
  return frame->api->create_error(&arguments);
}

template <class T>
const T* argument(Frame* frame, int n) {
  return static_cast<const T*>(frame->arguments.buffers[n]->data);
}

template <class T>
T* result(Frame* frame, int n) {
  return static_cast<T*>(frame->results.buffers[n]->data);
}

inline int64_t size(Frame* frame, int n) {
  int64_t product = 1;
  for (int64_t axis = 0; axis < frame->arguments.buffers[n]->rank; axis++) product *= frame->arguments.buffers[n]->dims[axis];
  return product;
}

inline int64_t dim(Frame* frame, int n, int axis) { return frame->arguments.buffers[n]->dims[axis]; }
inline int64_t last_dim(Frame* frame, int n) { return dim(frame, n, static_cast<int>(frame->arguments.buffers[n]->rank) - 1); }

}  // namespace ffi
