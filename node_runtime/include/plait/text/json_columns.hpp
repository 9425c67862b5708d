// JSON objects, one a value, straight into the columns of a declared schema.
//
// A field is expected where the value before had it, which costs a comparison; else its name is
// looked up. Names that are no column are skipped, and checked like all else. A value that does not
// fit is reported with its number and leaves no row; so is one that has a time or bytes in a form
// that only Python judges: it is *unsettled*, and its row is missing until somebody has asked. What
// is read is what Python's `json` reads, strictly (docs/kafka.md). An object column takes any
// value. One thread at a time; nothing blocks; several readers do not know of each other.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plait/columns/batch.hpp"
#include "plait/text/base64.hpp"
#include "plait/text/column_filler.hpp"
#include "plait/text/iso_time.hpp"
#include "plait/text/json_fault.hpp"
#include "plait/text/json_names.hpp"
#include "plait/text/json_pickle.hpp"
#include "plait/text/json_scanner.hpp"

namespace plait {

// A line of a text: where it is, and its number, from 0.
struct JsonLine {
  int64_t begin, end, number;
};

class JsonColumns {
 public:
  // `only_known`: an object with a name that is no column is unsettled.
  explicit JsonColumns(std::vector<JsonField> fields, bool only_known = false)
      : fields_(std::move(fields)),
        names_(fields_),
        next_(fields_.size() + 1),
        only_known_(only_known) {
    for (const JsonField& field : fields_) {
      slots_.push_back({ColumnFiller(field.type), 0, field.type, field.nullable});
    }
    for (size_t i = 0; i < next_.size(); ++i) next_[i] = i < fields_.size() ? i : 0;
  }

  // The rows of the values that fit, in their order.
  Batch read(const JsonValue* values, int64_t count) {
    return read_all(count, [values](int64_t i) { return values[i]; });
  }
  // Of a column of bytes.
  Batch read(const Column& values) {
    return read_all(values.length, [&values](int64_t i) {
      return JsonValue{values.valid(i) ? values.bytes(i) : nullptr, values.size(i)};
    });
  }
  // Of the lines of a text that are not blank, from one of them on.
  Batch read_lines(const char* text, int64_t size, int64_t first) {
    find_lines(text, size);
    first = std::min(first, int64_t(lines_.size()));
    return read_all(int64_t(lines_.size()) - first, [this, text, first](int64_t i) {
      const JsonLine& line = lines_[size_t(first + i)];
      return JsonValue{text + line.begin, line.end - line.begin};
    });
  }
  // Of the last `read`, in order.
  const std::vector<BadJson>& bad() const { return bad_; }
  // Of the last `read_lines`: all lines that are not blank, and how many end there were of any.
  const std::vector<JsonLine>& lines() const { return lines_; }
  int64_t line_ends() const { return line_ends_; }

 private:
  using Place = JsonScanner::Place;
  struct JsonSlot {
    ColumnFiller filler;
    uint64_t seen;  // the turn in which the column was last there
    Type type;
    bool nullable;
  };

  template <class At>
  Batch read_all(int64_t count, At at) {
    bad_.clear();
    row_ = 0;
    for (JsonSlot& slot : slots_) slot.filler.begin(count);
    for (int64_t i = 0; i < count; ++i) {
      if (read_value(at(i))) {
        ++row_;
      } else {
        for (JsonSlot& slot : slots_) slot.filler.undo(row_);
        bad_.push_back({i, scanner_.fault.wrong == JsonWrong::Unsettled, words()});
      }
    }
    Batch made;
    made.length = row_;
    for (JsonSlot& slot : slots_) made.columns.push_back(slot.filler.finish(row_));
    return made;
  }

  void find_lines(const char* text, int64_t size) {
    lines_.clear();
    line_ends_ = 0;
    for (int64_t begin = 0; begin < size;) {
      const void* found = std::memchr(text + begin, '\n', size_t(size - begin));
      const int64_t end = found ? static_cast<const char*>(found) - text : size;
      const auto blank = [](char c) { return c == ' ' || (c >= '\t' && c <= '\r'); };
      if (!std::all_of(text + begin, text + end, blank)) lines_.push_back({begin, end, line_ends_});
      line_ends_ += found != nullptr;
      begin = end + 1;
    }
  }

  bool read_value(JsonValue value) {
    if (!value.data) return scanner_.fail(JsonWrong::NoBytes, nullptr);
    return scanner_.start(value.data, value.size) && read_object();
  }

  bool read_object() {
    JsonScanner& scan = scanner_;
    Place p = scan.space(scan.begin());
    if (*p != '{') return refuse_value(p);
    ++turn_;
    size_t before = 0, found = 0;
    bool others = false;
    p = scan.space(p + 1);
    if (*p != '}') {
      for (;;) {
        size_t column = next_[before];
        if (const int64_t size = names_.at(p, scan.end(), column)) {
          p += size;
        } else {
          column = size_t(find_name(p));
          if (!p) return false;
          others = others || column == size_t(-1);
        }
        if (!(p = scan.colon(p))) return false;
        if (column == size_t(-1)) {
          p = scan.skip(p, 1);
        } else {
          JsonSlot& slot = slots_[column];
          if (slot.seen == turn_) return refuse_column(JsonWrong::Twice, p, column);
          slot.seen = turn_;
          ++found;
          next_[before] = column;
          before = column + 1;
          p = read_field(p, column);
        }
        if (!p) return false;
        p = scan.space(p);
        if (*p == '}') break;
        if (*p != ',') return scan.fail(JsonWrong::NoComma, p);
        p = scan.space(p + 1);
      }
    }
    p = scan.space(p + 1);
    if (p != scan.end()) return scan.fail(JsonWrong::After, p);
    if (others && only_known_) return scan.fail(JsonWrong::Unsettled, p);
    if (others && !scan.names_differ()) return false;
    return found == fields_.size() || fill_missing();
  }

  // The column of the name at p, or -1; p moves behind it, or is null.
  int64_t find_name(Place& p) {
    const int plain = first_special(p + 1);
    if (*p == '"' && plain < kTextBlock && p[1 + plain] == '"') {
      const int64_t known = names_.find_short(p, scanner_.end(), plain);
      if (known < 0) {
        scanner_.note_name({reinterpret_cast<const char*>(p + 1), size_t(plain)});
      }
      p += plain + 2;
      return known;
    }
    const std::string_view name = scanner_.name(p);
    if (!p) return -1;
    const int64_t known = names_.find(name);
    if (known < 0) scanner_.note_name(name);
    return known;
  }

  bool fill_missing() {
    for (size_t i = 0; i < fields_.size(); ++i) {
      if (slots_[i].seen == turn_) continue;
      if (!slots_[i].nullable) return refuse_column(JsonWrong::Missing, scanner_.begin(), i);
      slots_[i].filler.put_null(row_);
    }
    return true;
  }

  PLAIT_INLINE Place read_field(Place p, size_t column) {
    ColumnFiller& filler = slots_[column].filler;
    switch (slots_[column].type) {
      case Type::Int64:
        if (*p == '-' || json_detail::is_digit(*p)) return read_int(p, column);
        break;
      case Type::Float64:
        if (*p == '-' || json_detail::is_digit(*p)) return read_float(p, column);
        if (*p == '"') return read_float_word(p, column);
        break;
      case Type::String:
        if (*p == '"') {
          uint8_t* out = filler.text_room(row_, scanner_.end() - p);
          bool half = false;
          Place after = scanner_.text(p + 1, out, half);
          if (!after) return nullptr;
          if (half) return refuse_column(JsonWrong::HalfPair, p, column);
          filler.end_text(row_, out);
          return after;
        }
        break;
      case Type::Bool:
        if (const bool yes = is_word(p, "true"); yes | (is_word(p, "fals") & (p[4] == 'e'))) {
          filler.put_bool(row_, yes);  // which of them is no branch
          return p + 5 - yes;
        }
        break;
      case Type::Bytes:
      case Type::Timestamp:
        if (*p == '"') return read_other(p, column);
        break;
      case Type::Object:
        if (*p != 'n') return read_any(p, column);
        break;
    }
    if (slots_[column].nullable && std::memcmp(p, "null", 4) == 0) {
      filler.put_null(row_);
      return p + 4;
    }
    return refuse_field(p, column);
  }

  static bool is_word(Place p, const char (&word)[5]) {
    uint32_t here, wanted;
    std::memcpy(&here, p, 4);
    std::memcpy(&wanted, word, 4);
    return here == wanted;
  }

  PLAIT_INLINE Place read_int(Place p, size_t column) {
    const Place begin = p;
    const bool negative = *p == '-';
    p += negative;
    const Place first = p;
    uint64_t digits = 0;
    p = json_detail::take_digits(p, digits);
    const int64_t count = p - first;
    const bool strange = count == 0 || count > 19 || (*first == '0' && count > 1) ||
                         digits > uint64_t(INT64_MAX) + negative || *p == '.' || (*p | 0x20) == 'e';
    if (strange) return refuse_field(begin, column, JsonWrong::Range);
    slots_[column].filler.put_int(row_, int64_t(negative ? 0 - digits : digits));
    return p;
  }

  PLAIT_INLINE Place read_float(Place p, size_t column) {
    JsonNumber number;
    const Place after = scanner_.number(p, number);
    if (!after) return nullptr;
    const auto value = float_of(number, after);
    if (!value) return refuse_column(JsonWrong::Range, p, column, after);
    slots_[column].filler.put_float(row_, *value);
    return after;
  }

  // JSON has no word for them, so they are texts.
  Place read_float_word(Place p, size_t column) {
    Place after = p + 1;
    bool half = false;
    const std::string_view word = scanner_.spare_text(after, half);
    if (!after) return nullptr;
    const double infinity = std::numeric_limits<double>::infinity();
    if (word == "NaN") {
      slots_[column].filler.put_float(row_, std::numeric_limits<double>::quiet_NaN());
    } else if (word == "Infinity" || word == "-Infinity") {
      slots_[column].filler.put_float(row_, word[0] == '-' ? -infinity : infinity);
    } else {
      return refuse_column(JsonWrong::Misfit, p, column, after);
    }
    return after;
  }

  Place read_other(Place p, size_t column) {
    Place after = p + 1;
    bool half = false;
    const std::string_view word = scanner_.spare_text(after, half);
    if (!after) return nullptr;
    const auto* text = reinterpret_cast<const uint8_t*>(word.data());
    const auto size = int64_t(word.size());
    if (fields_[column].type == Type::Timestamp) {
      int64_t us = 0;
      if (!read_iso_time(text, size, us)) return refuse_column(JsonWrong::Unsettled, p, column);
      slots_[column].filler.put_int(row_, us);
    } else {
      uint8_t* out = slots_[column].filler.text_room(row_, size);
      if (!read_base64(text, size, out)) return refuse_column(JsonWrong::Unsettled, p, column);
      slots_[column].filler.end_text(row_, out);
    }
    return after;
  }

  Place read_any(Place p, size_t column) {
    const Place after = pickle_.write(scanner_, p, 1);
    if (!after) return nullptr;
    uint8_t* out = slots_[column].filler.text_room(row_, pickle_.size());
    std::memcpy(out, pickle_.data(), size_t(pickle_.size()));
    slots_[column].filler.end_text(row_, out + pickle_.size());
    return after;
  }

  JsonRefused refuse_column(JsonWrong wrong, Place at, size_t column, Place end = nullptr) {
    scanner_.fail(wrong, at, end);
    scanner_.fault.column = int64_t(column);
    scanner_.fault.name = fields_[column].name;
    return {};
  }

  // A value that its column does not take, unless it is none of JSON. `number`: what is wrong with
  // an integer.
  [[gnu::noinline]] JsonRefused refuse_field(Place p, size_t column,
                                             JsonWrong number = JsonWrong::Misfit) {
    const Place after = scanner_.skip(p, 1);
    if (!after) return {};
    const bool whole = std::string_view(reinterpret_cast<const char*>(p), size_t(after - p))
                           .find_first_of(".eE") == std::string_view::npos;
    return refuse_column(whole ? number : JsonWrong::Misfit, p, column, after);
  }

  // A value that is not an object.
  [[gnu::noinline]] bool refuse_value(Place p) {
    const Place after = scanner_.skip(p, 0);
    if (!after) return false;
    const Place rest = scanner_.space(after);
    if (rest != scanner_.end()) return scanner_.fail(JsonWrong::After, rest);
    return scanner_.fail(JsonWrong::NoObject, p, after);
  }

  [[gnu::noinline]] std::string words() {
    const JsonFault fault = scanner_.fault;
    const JsonField* field = fault.column < 0 ? nullptr : &fields_[size_t(fault.column)];
    std::string others;
    if (fault.wrong == JsonWrong::Missing) others = names_in(scanner_);
    return words_of(fault, scanner_.begin(), field, others);
  }

  std::vector<JsonField> fields_;
  JsonNames names_;
  std::vector<JsonSlot> slots_;
  std::vector<size_t> next_;  // the column after a column (number + 1), and the first
  uint64_t turn_ = 0;
  int64_t row_ = 0;
  JsonScanner scanner_;
  JsonPickle pickle_;
  std::vector<BadJson> bad_;
  std::vector<JsonLine> lines_;
  int64_t line_ends_ = 0;
  bool only_known_;
};

}  // namespace plait
