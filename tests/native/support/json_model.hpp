// JSON as a slow, plain parser reads it: the values of an object, or that there is none.
//
// What a schema makes of them is said once more, too, as one text a column; "?" stands for what a
// time or bytes may be. It shares no code with the reader that it judges.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "plait/text/json_columns.hpp"

namespace plait::testing {

struct JsonTree {
  enum Kind { Null, True, False, Number, Text, List, Object } kind = Null;
  std::string text;  // of a number: as it stands
  bool half = false;
  std::vector<std::pair<std::string, JsonTree>> members;
};

class JsonModel {
 public:
  explicit JsonModel(std::string text) : text_(std::move(text)) {}

  std::optional<JsonTree> object() {
    if (!utf8()) return std::nullopt;
    JsonTree tree;
    space();
    if (!value(tree, 0)) return std::nullopt;
    space();
    if (at_ != text_.size() || tree.kind != JsonTree::Object) return std::nullopt;
    return tree;
  }

 private:
  int next() const { return at_ < text_.size() ? uint8_t(text_[at_]) : -1; }
  bool take(char c) { return next() == uint8_t(c) ? (++at_, true) : false; }
  bool word(const char* w) {
    if (text_.compare(at_, std::strlen(w), w) != 0) return false;
    at_ += std::strlen(w);
    return true;
  }
  void space() {
    while (next() >= 0 && std::strchr(" \t\n\r", next()) && next() != 0) ++at_;
  }
  bool digits(size_t& count) {
    const size_t first = at_;
    while (next() >= '0' && next() <= '9') ++at_;
    count += at_ - first;
    return at_ > first;
  }
  bool value(JsonTree& to, int depth) {
    if (next() == '{' || next() == '[') {
      if (depth == 64) return false;
      return next() == '{' ? members(to, depth + 1, '}') : members(to, depth + 1, ']');
    }
    if (next() == '"') return to.kind = JsonTree::Text, text(to.text, to.half);
    if (word("null")) return to.kind = JsonTree::Null, true;
    if (word("true")) return to.kind = JsonTree::True, true;
    if (word("false")) return to.kind = JsonTree::False, true;
    return number(to);
  }
  bool number(JsonTree& to) {
    const size_t first = at_;
    size_t count = 0, unused = 0;
    to.kind = JsonTree::Number;
    take('-');
    if (take('0')) {
      if (next() >= '0' && next() <= '9') return false;
    } else if (!digits(count)) {
      return false;
    }
    bool whole = true;
    if (take('.')) {
      whole = false;
      if (!digits(unused)) return false;
    }
    if (take('e') || take('E')) {
      whole = false;
      if (!take('-')) take('+');
      if (!digits(unused)) return false;
    }
    to.text = text_.substr(first, at_ - first);
    return !whole || count <= 4300;
  }
  bool members(JsonTree& to, int depth, char end) {
    to.kind = end == '}' ? JsonTree::Object : JsonTree::List;
    std::set<std::string> names;
    ++at_;
    space();
    if (take(end)) return true;
    for (;;) {
      to.members.emplace_back();
      auto& [name, inner] = to.members.back();
      if (end == '}') {
        bool half = false;
        if (next() != '"' || !text(name, half) || !names.insert(name).second) return false;
        space();
        if (!take(':')) return false;
        space();
      }
      if (!value(inner, depth)) return false;
      space();
      if (take(end)) return true;
      if (!take(',')) return false;
      space();
    }
  }
  bool hex(uint32_t& code) {
    code = 0;
    for (int i = 0; i < 4; ++i) {
      const int c = next();
      if (c < 0 || !std::isxdigit(c)) return false;
      code = code * 16 + uint32_t(c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
      ++at_;
    }
    return true;
  }
  bool text(std::string& to, bool& half) {
    to.clear();
    ++at_;
    while (!take('"')) {
      if (next() < 0x20) return false;
      if (!take('\\')) {
        to += char(next());
        ++at_;
        continue;
      }
      const int c = next();
      static const char* const from = "\"\\/bfnrt";
      static const char* const becomes = "\"\\/\b\f\n\r\t";
      const char* found = c > 0 ? std::strchr(from, c) : nullptr;
      if (c != 'u' && !found) return false;
      ++at_;
      if (found) {
        to += becomes[found - from];
        continue;
      }
      uint32_t code = 0, low = 0;
      if (!hex(code)) return false;
      if (code >= 0xD800 && code < 0xDC00) {
        const size_t before = at_;
        if (word("\\u")) {
          if (!hex(low)) return false;
          if (low >= 0xDC00 && low < 0xE000) {
            code = 0x10000 + (code - 0xD800) * 0x400 + (low - 0xDC00);
          } else {
            at_ = before;
          }
        }
      }
      half = half || (code >= 0xD800 && code < 0xE000);
      add(to, code);
    }
    return true;
  }
  static void add(std::string& to, uint32_t code) {
    const int more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static constexpr int leads[] = {0, 0xC0, 0xE0, 0xF0};
    to += char(leads[more] | int(code >> (6 * more)));
    for (int i = more - 1; i >= 0; --i) to += char(0x80 | ((code >> (6 * i)) & 0x3F));
  }
  // By making every character anew: only the shortest form of one comes out the same.
  bool utf8() const {
    for (size_t i = 0; i < text_.size();) {
      const auto lead = uint8_t(text_[i]);
      const int more = lead < 0x80 ? 0 : lead < 0xC0 ? -1 : lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
      if (more < 0 || i + size_t(more) >= text_.size()) return false;
      uint32_t code = more == 0 ? lead : lead & (0x3Fu >> more);
      for (int k = 1; k <= more; ++k) code = code << 6 | (uint8_t(text_[i + size_t(k)]) & 0x3F);
      std::string again;
      if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return false;
      add(again, code);
      if (text_.compare(i, again.size(), again) != 0 || int(again.size()) != more + 1) return false;
      i += again.size();
    }
    return true;
  }

  std::string text_;
  size_t at_ = 0;
};

inline std::string bits_of(double value) {
  uint64_t bits;
  std::memcpy(&bits, &value, 8);
  return std::to_string(bits);
}

// What a column holds of a value, as a text; nothing: it does not fit.
inline std::optional<std::string> cell_of(const JsonTree& tree, const JsonField& field) {
  if (tree.kind == JsonTree::Null) return field.nullable ? std::optional("null") : std::nullopt;
  const bool text = tree.kind == JsonTree::Text;
  const bool whole = tree.text.find_first_of(".eE") == std::string::npos;
  switch (field.type) {
    case Type::Bool:
      if (tree.kind == JsonTree::True || tree.kind == JsonTree::False)
        return tree.kind == JsonTree::True ? "true" : "false";
      return std::nullopt;
    case Type::String:
      return text && !tree.half ? std::optional("'" + tree.text) : std::nullopt;
    case Type::Int64: {
      if (tree.kind != JsonTree::Number || !whole) return std::nullopt;
      errno = 0;
      const long long value = std::strtoll(tree.text.c_str(), nullptr, 10);
      return errno ? std::nullopt : std::optional(std::to_string(value));
    }
    case Type::Float64: {
      if (text) {
        if (tree.text == "NaN") return bits_of(std::nan(""));
        if (tree.text == "Infinity") return bits_of(HUGE_VAL);
        return tree.text == "-Infinity" ? std::optional(bits_of(-HUGE_VAL)) : std::nullopt;
      }
      if (tree.kind != JsonTree::Number) return std::nullopt;
      const double value = std::strtod(tree.text.c_str(), nullptr);
      if (std::isinf(value)) return std::nullopt;
      return bits_of(whole && value == 0 ? 0.0 : value);
    }
    default:
      return text ? std::optional("?") : std::nullopt;
  }
}

inline std::optional<std::vector<std::string>> row_of(const std::string& text,
                                                      const std::vector<JsonField>& fields) {
  const auto tree = JsonModel(text).object();
  if (!tree) return std::nullopt;
  std::vector<std::string> row;
  for (const JsonField& field : fields) {
    JsonTree missing;
    const JsonTree* found = &missing;
    for (const auto& [name, inner] : tree->members)
      if (name == field.name) found = &inner;
    const auto cell = cell_of(*found, field);
    if (!cell) return std::nullopt;
    row.push_back(*cell);
  }
  return row;
}

}  // namespace plait::testing
