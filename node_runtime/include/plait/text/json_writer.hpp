// Rows of columns as JSON objects: one text a row, behind each other in one buffer.
//
// Names are in the order of the schema. Texts, floats and times are written as Python's `json` and
// `repr` write them (plait/connectors/formats/json_lines.py), so nothing tells who wrote a row.
// What a `write` gave lasts until the next. One thread at a time; nothing blocks.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plait/columns/batch.hpp"
#include "plait/columns/casts.hpp"
#include "plait/core/buffer.hpp"
#include "plait/text/base64.hpp"
#include "plait/text/utf8.hpp"

namespace plait {

class JsonWriter {
 public:
  explicit JsonWriter(const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      make_room(6 * int64_t(name.size()) + 64);
      const uint8_t* begin = to_;
      *to_++ = begins_.empty() ? '{' : ',';
      put_text(name);
      *to_++ = ':';
      begins_.emplace_back(reinterpret_cast<const char*>(begin), size_t(to_ - begin));
    }
  }

  // False if a time is outside the years 1 to 9999, which Python cannot write; the columns are
  // those of the names, and hold no objects. `lines`: a newline is behind each object.
  bool write(const Batch& batch, bool lines = false) {
    to_ = bytes_.data();
    ends_.clear();
    for (int64_t row = 0; row < batch.length; ++row) {
      for (size_t c = 0; c < begins_.size(); ++c) {
        if (!put_value(batch.columns[c], row, begins_[c])) return false;
      }
      *to_++ = '}';
      ends_.push_back(to_ - bytes_.data());
      if (lines) *to_++ = '\n';
    }
    return true;
  }

  std::string_view lines() const { return {bytes_.as<char>(), size_t(to_ - bytes_.data())}; }

  // Of a write without newlines.
  std::string_view row(int64_t i) const {
    const int64_t begin = i ? ends_[size_t(i - 1)] : 0;
    return {bytes_.as<char>() + begin, size_t(ends_[size_t(i)] - begin)};
  }

 private:
  bool put_value(const Column& column, int64_t row, const std::string& begin) {
    const bool there = column.valid(row);
    const bool text = is_varlen(column.type) && there;
    make_room(int64_t(begin.size()) + (text ? 6 * column.size(row) : 0) + 2 * kPrintRoom);
    put(begin);
    if (!there) return put("null"), true;
    switch (column.type) {
      case Type::Int64:
        to_ += print_int(column.i64()[row], chars());
        return true;
      case Type::Float64:
        put_float(column.f64()[row]);
        return true;
      case Type::Bool:
        put(column.boolean(row) ? "true" : "false");
        return true;
      case Type::Timestamp:
        return put_time(column.i64()[row]);
      case Type::String:
        put_text({column.bytes(row), size_t(column.size(row))});
        return true;
      case Type::Bytes:
        *to_++ = '"';
        to_ = write_base64(reinterpret_cast<const uint8_t*>(column.bytes(row)), column.size(row),
                           to_);
        *to_++ = '"';
        return true;
      case Type::Object:
        break;
    }
    return false;
  }

  void put_float(double value) {
    if (std::isfinite(value)) {
      to_ += print_float(value, chars());
    } else {
      put(std::isnan(value) ? "\"NaN\"" : value > 0 ? "\"Infinity\"" : "\"-Infinity\"");
    }
  }

  bool put_time(int64_t us) {
    if (us < kFirstTime || us > kLastTime) return false;
    *to_++ = '"';
    to_ += print_time(us, chars());
    if (us % 1'000'000 == 0) {  // Python leaves out a fraction of nothing
      to_ -= std::string_view(".000000Z").size();
      *to_++ = 'Z';
    }
    *to_++ = '"';
    return true;
  }

  void put_text(std::string_view text) {
    const auto* from = reinterpret_cast<const uint8_t*>(text.data());
    auto left = int64_t(text.size());
    *to_++ = '"';
    while (left > 0) {
      uint8_t last[kTextBlock] = {};
      const uint8_t* block = from;
      if (left < kTextBlock) {
        std::memcpy(last, from, size_t(left));
        block = last;
      }
      const int64_t plain = std::min<int64_t>(first_special(block), left);
      std::memcpy(to_, block, kTextBlock);
      to_ += plain;
      from += plain;
      left -= plain;
      if (left > 0 && plain < kTextBlock) {
        put_escape(*from++);
        --left;
      }
    }
    *to_++ = '"';
  }

  void put_escape(uint8_t c) {
    static constexpr std::string_view short_ones = "\"\\\b\f\n\r\t", letters = "\"\\bfnrt";
    *to_++ = '\\';
    if (const size_t found = short_ones.find(char(c)); found != std::string_view::npos) {
      *to_++ = uint8_t(letters[found]);
      return;
    }
    put("u00");
    *to_++ = uint8_t('0' + (c >> 4));
    *to_++ = uint8_t("0123456789abcdef"[c & 15]);
  }

  void put(std::string_view text) {
    std::memcpy(to_, text.data(), text.size());
    to_ += text.size();
  }

  char* chars() { return reinterpret_cast<char*>(to_); }

  // For `more` bytes and the block that a text may write beyond its end.
  void make_room(int64_t more) {
    const int64_t used = bytes_ ? to_ - bytes_.data() : 0;
    if (used + more <= room_) return;
    room_ = std::max<int64_t>(2 * room_, used + more + 4096);
    BufferRef larger = BufferRef::make(room_);
    if (used) std::memcpy(larger.data(), bytes_.data(), size_t(used));
    bytes_ = std::move(larger);
    to_ = bytes_.data() + used;
  }

  std::vector<std::string> begins_;  // of every value: what stands before it
  BufferRef bytes_;
  int64_t room_ = 0;
  uint8_t* to_ = nullptr;
  std::vector<int64_t> ends_;
};

}  // namespace plait
