// Blocks of work shared among threads, and memory for them.
#pragma once

#include <cstdint>

struct Blocks;  // the state of one call

constexpr int kMostThreads = 64;  // in one call

// Runs work(context, blocks, thread) on up to `threads` threads and returns when all have ended.
void run_parallel(int threads, void (*work)(void*, Blocks*, int), void* context);

int64_t next_block(Blocks* blocks);                     // 0, 1, 2, ...: each once, in this order
void await_turn(Blocks* blocks, int64_t block);         // until all blocks before it have ended their turns
void end_turn(Blocks* blocks, int64_t block);
int threads_allowed();

void* allocate_memory(uint64_t bytes);  // aligned to cache lines, not cleared; nullptr if there is none
void free_memory(void* memory);
