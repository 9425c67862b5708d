// Columns to and from the Arrow C data interface, without copying values.
//
// Importing takes over an ArrowArray: the columns share one owner that calls its release function
// when the last of them is gone, on whichever thread that happens. Exporting gives an ArrowArray
// that holds references to the column's buffers. Only a bitmap whose first bit is not on a byte's
// edge is copied, because Arrow has one offset for all buffers. Structures and meanings are those
// of the published interface (https://arrow.apache.org/docs/format/CDataInterface.html).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "plait/columns/batch.hpp"

#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE
extern "C" {
struct ArrowSchema {
  const char* format;
  const char* name;
  const char* metadata;
  int64_t flags;
  int64_t n_children;
  ArrowSchema** children;
  ArrowSchema* dictionary;
  void (*release)(ArrowSchema*);
  void* private_data;
};
struct ArrowArray {
  int64_t length;
  int64_t null_count;
  int64_t offset;
  int64_t n_buffers;
  int64_t n_children;
  const void** buffers;
  ArrowArray** children;
  ArrowArray* dictionary;
  void (*release)(ArrowArray*);
  void* private_data;
};
}
#endif

namespace plait {

inline constexpr int32_t kNoOffsets[2] = {0, 0};

namespace arrow_detail {
inline void release_owned(void* owner) {
  auto* array = static_cast<ArrowArray*>(owner);
  if (array->release) array->release(array);
  delete array;
}

inline Column view(const ArrowArray& a, Type type, int64_t extra_offset, const BufferRef& owner) {
  Column c;
  const int64_t at = a.offset + extra_offset;
  c.type = type;
  c.length = a.length;
  if (a.null_count != 0 && a.n_buffers > 0 && a.buffers[0]) {
    c.validity = static_cast<const uint8_t*>(a.buffers[0]);
    c.validity_offset = at;
    c.validity_owner = owner;
  }
  if (is_varlen(type)) {
    const auto* offsets = static_cast<const int32_t*>(a.buffers[1]);
    c.offsets = offsets ? offsets + at : kNoOffsets;
    c.data = static_cast<const uint8_t*>(a.buffers[2]);
    static const uint8_t nothing = 0;
    if (!c.data) c.data = &nothing;
  } else if (type == Type::Bool) {
    c.data = static_cast<const uint8_t*>(a.buffers[1]);
    c.data_offset = at;
  } else {
    c.data = static_cast<const uint8_t*>(a.buffers[1]);
    if (c.data) c.data += 8 * at;
  }
  c.data_owner = owner;
  return c;
}

struct Exported {
  Column column;
  BufferRef validity, bits;
  std::array<const void*, 3> buffers{};
};

inline void release_exported(ArrowArray* a) {
  delete static_cast<Exported*>(a->private_data);
  a->release = nullptr;
}

inline BufferRef realigned(const uint8_t* bits, int64_t offset, int64_t n) {
  BufferRef out = BufferRef::zeroed(bit_bytes(n));
  for (int64_t i = 0; i < n; ++i) {
    if (get_bit(bits, offset + i)) set_bit(out.data(), i);
  }
  return out;
}

struct ExportedBatch {
  std::vector<ArrowArray> columns;
  std::vector<ArrowArray*> pointers;
  const void* none[1] = {nullptr};
};

inline void release_batch(ArrowArray* a) {
  auto* e = static_cast<ExportedBatch*>(a->private_data);
  for (auto& c : e->columns) {
    if (c.release) c.release(&c);
  }
  delete e;
  a->release = nullptr;
}
}  // namespace arrow_detail

// Takes over `array` (its release pointer is cleared) and gives its values as a column of `type`,
// which must be the Arrow type that plait maps `type` to.
inline Column import_array(ArrowArray* array, Type type) {
  auto* owned = new ArrowArray(*array);
  array->release = nullptr;
  return arrow_detail::view(*owned, type, 0,
                            BufferRef::foreign(nullptr, owned, arrow_detail::release_owned));
}

// Takes over a struct array (a record batch) and gives its columns.
inline std::vector<Column> import_batch(ArrowArray* array, const std::vector<Type>& types) {
  auto* owned = new ArrowArray(*array);
  array->release = nullptr;
  BufferRef owner = BufferRef::foreign(nullptr, owned, arrow_detail::release_owned);
  std::vector<Column> columns;
  columns.reserve(types.size());
  for (size_t i = 0; i < types.size(); ++i) {
    Column c = arrow_detail::view(*owned->children[i], types[i], owned->offset, owner);
    c.length = owned->length;
    columns.push_back(std::move(c));
  }
  return columns;
}

inline void export_column(const Column& column, ArrowArray* out) {
  using namespace arrow_detail;
  auto* e = new Exported();
  e->column = column;
  const int64_t n = column.length;
  const void* validity = nullptr;
  if (column.validity) {
    if (column.validity_offset % 8 == 0) {
      validity = column.validity + column.validity_offset / 8;
    } else {
      e->validity = realigned(column.validity, column.validity_offset, n);
      validity = e->validity.data();
    }
  }
  const void* data = column.data;
  if (column.type == Type::Bool) {
    if (column.data_offset % 8 == 0) {
      data = column.data ? column.data + column.data_offset / 8 : nullptr;
    } else {
      e->bits = realigned(column.data, column.data_offset, n);
      data = e->bits.data();
    }
  }
  const bool varlen = is_varlen(column.type);
  e->buffers = varlen ? std::array<const void*, 3>{validity, column.offsets, data}
                      : std::array<const void*, 3>{validity, data, nullptr};
  *out = ArrowArray{n,       validity ? -1 : 0, 0, varlen ? 3 : 2, 0, e->buffers.data(), nullptr,
                    nullptr, release_exported,  e};
}

inline void export_batch(const Batch& batch, ArrowArray* out) {
  using namespace arrow_detail;
  auto* e = new ExportedBatch();
  e->columns.resize(batch.columns.size());
  for (size_t i = 0; i < batch.columns.size(); ++i) {
    export_column(batch.columns[i], &e->columns[i]);
    e->pointers.push_back(&e->columns[i]);
  }
  *out = ArrowArray{
      batch.length,  0, 0, 1, int64_t(e->columns.size()), e->none, e->pointers.data(), nullptr,
      release_batch, e};
}

}  // namespace plait
