// A compiled expression: a flat list of kernel calls over registers, interpreted chunk by chunk.
//
// A register (`Vec`) holds one chunk of up to kChunk rows: 8-byte values, bytes 0/1 for bool, or
// `Text` views for string and bytes; `valid` is one byte a row, or null when no row is null, so
// that columns without nulls do no validity work. A constant is a register of one value. A Program
// is immutable once built and shared by all threads; a Workspace belongs to one thread at a time.
// Nothing here blocks.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "plait/columns/batch.hpp"

namespace plait {

inline constexpr int kChunk =
    1024;  // rows; a register of 8-byte values takes 8 KiB and stays in L1

// Why a row failed. The numbers are shared with ERRORS in lower.py.
enum class RowError : int32_t {
  DivisionByZero = 1,
  NotAnInteger = 2,
  NotANumber = 3,
  NotABool = 4,
  OutOfRange = 5,
  NotUtf8 = 6,
  TooLong = 7,
  ModuloByZero = 8,
  TimeOutOfRange = 9,
  Overflow = 10,
  NotATime = 11,
  NoZone = 12,
  TooFine = 13,
  NoSuchTime = 14,
  OutsideZone = 15,
  OutsideYears = 16,
  NumberTooFine = 17,
  NumberOutsideYears = 18,
};

struct ErrorRow {
  int64_t row;
  RowError code;
  std::string detail;  // the value that could not be cast: text and bytes as they are, else printed
};

// Rows that failed; after a run ascending by row, at most one a row (the first in evaluation
// order).
struct ErrorRows {
  std::vector<ErrorRow> rows;
  static constexpr size_t kDetail = 1 << 20;  // a longer text is cut
  void add(int64_t row, RowError code, std::string_view detail = {}) {
    rows.push_back({row, code, std::string(detail.substr(0, kDetail))});
  }
};

struct Text {
  const char* data;
  int64_t size;
  std::string_view view() const { return {data, size_t(size)}; }
};

struct Vec {
  const void* data = nullptr;
  const uint8_t* valid = nullptr;
  bool constant = false;

  template <class T>
  const T* as() const {
    return static_cast<const T*>(data);
  }
  bool ok(int64_t i) const { return !valid || valid[i]; }
  const Text& text(int64_t i) const { return as<Text>()[constant ? 0 : i]; }
};

// Division by a constant d > 0 as multiply-high and shift, for dividends below 2^63.
struct Magic {
  uint64_t multiplier = 0;
  int shift = -1;         // after the high half; -1: not usable (d <= 0)
  int power_of_two = -1;  // log2(d) when d is one

  __extension__ typedef unsigned __int128 Wide;

  static Magic of(int64_t d) {
    Magic m;
    if (d <= 0) return m;
    if ((d & (d - 1)) == 0) {
      m.power_of_two = std::countr_zero(uint64_t(d));
      return m;
    }
    const int bits = std::bit_width(uint64_t(d));  // 2^(bits-1) < d < 2^bits
    m.multiplier = uint64_t((Wide(1) << (63 + bits)) / uint64_t(d)) + 1;
    m.shift = bits - 1;
    return m;
  }
};

class MemberSet;   // the constants of `is_in`
class TimeFormat;  // how texts and numbers are read as times
struct Context;
struct Instr;
using Kernel = void (*)(Context&, const Instr&);
using CompiledLoop = void (*)(const void* const* args, int64_t n, void* out);

struct Instr {
  Kernel kernel = nullptr;
  int dst = 0;
  std::vector<int> args;  // registers; constants come after the slots
  int64_t value = 0;      // column index, shift, width: what the kernel says
  Magic magic;
  std::shared_ptr<const MemberSet> members;
  std::shared_ptr<const TimeFormat> times;
  CompiledLoop function = nullptr;
  int a() const { return args[0]; }
  int b() const { return args[1]; }
};

struct Constant {
  int64_t i64 = 0;
  double f64 = 0;
  uint8_t boolean = 0;
  std::string bytes;
  Text text{nullptr, 0};
  Type type = Type::Int64;
  const void* address() const {
    if (is_varlen(type)) return &text;
    if (type == Type::Float64) return &f64;
    return type == Type::Bool ? static_cast<const void*>(&boolean) : &i64;
  }
};

struct Program {
  Type type = Type::Int64;
  int slots = 0;
  int result = 0;                  // a register
  std::deque<Constant> constants;  // a deque: registers point at them
  std::vector<Instr> code;

  int registers() const { return slots + int(constants.size()); }
};

// Bump memory for the texts of one chunk. Addresses stay good until `reset`.
class Arena {
 public:
  char* take(int64_t bytes) {
    if (bytes > left_ || !next_) grow(bytes);  // never a null pointer, not even for no bytes
    char* p = next_;
    next_ += bytes;
    left_ -= bytes;
    return p;
  }
  void give_back(int64_t bytes) {  // the tail of the last take
    next_ -= bytes;
    left_ += bytes;
  }
  void reset() {
    if (blocks_.empty()) return;
    if (blocks_.size() > 1) {  // keep the newest, which is the largest
      std::swap(blocks_.front(), blocks_.back());
      blocks_.resize(1);
    }
    if (blocks_[0].size > kKeep) {
      blocks_.clear();
      next_ = nullptr;
      left_ = 0;
      return;
    }
    next_ = blocks_[0].memory.get();
    left_ = blocks_[0].size;
  }

 private:
  static constexpr int64_t kFirst = 64 << 10, kKeep = 16 << 20;
  struct ArenaBlock {
    std::unique_ptr<char[]> memory;
    int64_t size;
  };
  void grow(int64_t bytes) {
    const int64_t size = std::max({kFirst, bytes, blocks_.empty() ? 0 : 2 * blocks_.back().size});
    blocks_.push_back({std::unique_ptr<char[]>(new char[size_t(size)]), size});
    next_ = blocks_.back().memory.get();
    left_ = size;
  }
  std::vector<ArenaBlock> blocks_;
  char* next_ = nullptr;
  int64_t left_ = 0;
};

// One thread's scratch memory for any number of programs.
struct Workspace {
  // Room of a register: values, then validity; the odd stride keeps registers off each other's
  // cache sets.
  static constexpr int64_t kValues = int64_t(kChunk) * 16, kStride = kValues + kChunk + 192;

  std::vector<Vec> vecs;
  BufferRef memory;
  int64_t slots = 0;
  Arena arena;
  std::vector<size_t> scopes;
  std::vector<const void*> pointers;
  int64_t text_limit = TextLimit::bytes();  // of one text, and of all texts of a result column

  void prepare(const Program& p) {
    if (p.slots > slots) {
      memory = BufferRef::make(p.slots * kStride);
      slots = p.slots;
    }
    vecs.assign(size_t(p.registers()), Vec{});
    for (size_t i = 0; i < p.constants.size(); ++i)
      vecs[size_t(p.slots) + i] = Vec{p.constants[i].address(), nullptr, true};
    scopes.clear();
  }
};

// What a kernel sees: one chunk of a batch.
struct Context {
  const Batch& batch;
  Workspace& ws;
  ErrorRows& errors;
  int64_t base = 0;  // first row of the chunk
  int64_t n = 0;
  void* target = nullptr;  // where the last kernel writes its values instead of its register
  int target_slot = -1;

  const Vec& vec(int r) const { return ws.vecs[size_t(r)]; }
  template <class T>
  T* out(const Instr& in) {
    if (target && in.dst == target_slot) return static_cast<T*>(target);
    return reinterpret_cast<T*>(ws.memory.data() + in.dst * Workspace::kStride);
  }
  uint8_t* valid_out(const Instr& in) {
    return ws.memory.data() + in.dst * Workspace::kStride + Workspace::kValues;
  }
  void set(const Instr& in, const void* data, const uint8_t* valid) {
    ws.vecs[size_t(in.dst)] = Vec{data, valid, false};
  }
  void fail(int64_t i, RowError code, std::string_view detail = {}) {
    errors.add(base + i, code, detail);
  }

  // Validity of a result that is null where an operand is: copied, since the operand's register may
  // be reused first.
  const uint8_t* valid_of(const Instr& in, const Vec& a) {
    if (!a.valid) return nullptr;
    std::memcpy(valid_out(in), a.valid, size_t(n));
    return valid_out(in);
  }
  const uint8_t* valid_of(const Instr& in, const Vec& a, const Vec& b) {
    if (!b.valid) return valid_of(in, a);
    if (!a.valid) return valid_of(in, b);
    uint8_t* v = valid_out(in);
    for (int64_t i = 0; i < n; ++i) v[i] = a.valid[i] & b.valid[i];
    return v;
  }
};

}  // namespace plait
