// A column that is written row by row, in Arrow's layout.
//
// `begin` takes memory for so many rows; every row is put once, in order, by the calls for the
// column's type, and `undo` forgets what was put at the row that is now to be put again. Texts grow
// as they come. `finish` hands the memory over; then `begin` is next. One thread at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "plait/columns/batch.hpp"

namespace plait {

class ColumnFiller {
 public:
  explicit ColumnFiller(Type type) : type_(type) {}

  void begin(int64_t rows) {
    rows_ = rows;
    validity_.reset();
    if (is_varlen(type_)) {
      offsets_ = BufferRef::make(4 * (rows + 1));
      offsets_.as<int32_t>()[0] = 0;
      room_ = 16 * rows;
      data_ = BufferRef::make(room_);
    } else {
      data_ = BufferRef::make(type_ == Type::Bool ? bit_bytes(rows) : 8 * rows);
    }
  }

  void put_int(int64_t row, int64_t value) { data_.as<int64_t>()[row] = value; }
  void put_float(int64_t row, double value) { data_.as<double>()[row] = value; }
  void put_bool(int64_t row, bool value) {
    uint8_t& byte = data_.data()[row >> 3];
    byte = uint8_t((byte & ~(1u << (row & 7))) | unsigned(value) << (row & 7));
  }
  void put_null(int64_t row) {
    if (!validity_) {
      validity_ = BufferRef::make(bit_bytes(rows_));
      std::memset(validity_.data(), 0xFF, size_t(bit_bytes(rows_)));
    }
    clear_bit(validity_.data(), row);
    if (is_varlen(type_)) {
      offsets_.as<int32_t>()[row + 1] = offsets_.as<int32_t>()[row];
    } else if (type_ == Type::Bool) {
      put_bool(row, false);
    } else {
      put_int(row, 0);
    }
  }
  // Where the text of the row begins, with room for `most` bytes and 64 more.
  uint8_t* text_room(int64_t row, int64_t most) {
    const int64_t start = offsets_.as<int32_t>()[row];
    if (start + most > room_) grow(start, most);
    return data_.data() + start;
  }
  // `end`: behind the last byte of the text.
  void end_text(int64_t row, const uint8_t* end) {
    const int64_t bytes = end - data_.data();
    check_text(bytes);
    offsets_.as<int32_t>()[row + 1] = int32_t(bytes);
  }
  void undo(int64_t row) {
    if (validity_) set_bit(validity_.data(), row);
  }

  Column finish(int64_t rows) {
    Column made;
    made.type = type_;
    made.length = rows;
    made.data = data_.data();
    made.data_owner = std::move(data_);
    if (validity_) made.validity = validity_.data();
    made.validity_owner = std::move(validity_);
    if (is_varlen(type_)) made.offsets = offsets_.as<int32_t>();
    made.offsets_owner = std::move(offsets_);
    return made;
  }

 private:
  void grow(int64_t used, int64_t most) {
    room_ = std::max(2 * room_, used + most);
    BufferRef larger = BufferRef::make(room_);
    std::memcpy(larger.data(), data_.data(), size_t(used));
    data_ = std::move(larger);
  }

  Type type_;
  int64_t rows_ = 0, room_ = 0;
  BufferRef data_, offsets_, validity_;
};

}  // namespace plait
