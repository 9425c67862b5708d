// What can be wrong with a value of JSON: kept as a code and a place, in words when it is asked
// for.
//
// Pure data and functions: any thread, nothing blocks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "plait/columns/batch.hpp"
#include "plait/columns/strings.hpp"

namespace plait {

enum class JsonWrong : uint8_t {
  Nothing,
  NoBytes,  // a record without a value
  NotUtf8,
  NoObject,  // another value than an object; from `at` to `end`
  NoValue,   // no value where one must be
  NoName,
  NoColon,
  NoComma,
  Open,     // the value ends within a text
  Control,  // a control character in a text
  Escape,
  Number,
  Constant,  // NaN, Infinity
  LongNumber,
  Deep,
  After,    // something behind the object
  Twice,    // `name`
  Missing,  // a column that may not be null
  Misfit,   // a value of another type; from `at` to `end`
  Range,    // a number that its type does not hold; from `at` to `end`
  HalfPair,
  Unsettled,  // Python has to look at it
};

struct JsonFault {
  JsonWrong wrong = JsonWrong::Nothing;
  const uint8_t* at = nullptr;
  const uint8_t* end = nullptr;
  int64_t column = -1;
  std::string_view name;
};

// The bytes of a value; null: it has none.
struct JsonValue {
  const char* data;
  int64_t size;
};

struct BadJson {
  int64_t index;
  bool unsettled;
  std::string reason;
};

struct JsonField {
  std::string name;
  Type type;
  bool nullable;
};

inline constexpr int kJsonDepth = 64;
// Python reads no longer ones.
inline constexpr int64_t kJsonDigits = 4300;

namespace json_detail {
inline constexpr size_t kShown = 60;

// The beginning of a text, cut between characters.
inline std::string shown(std::string_view text) {
  if (text.size() <= kShown) return std::string(text);
  size_t end = kShown - 3;
  while (end > 0 && (uint8_t(text[end]) & 0xC0) == 0x80) --end;
  return std::string(text.substr(0, end)) + "...";
}

inline const char* type_word(Type type) {
  static constexpr const char* words[] = {"int64", "float64",   "bool",  "string",
                                          "bytes", "timestamp", "object"};
  return words[size_t(type)];
}

inline std::string constant(const JsonFault& fault) {
  const auto* p = reinterpret_cast<const char*>(fault.at);
  return *p == 'N' ? "NaN" : *p == '-' ? "-Infinity" : "Infinity";
}
}  // namespace json_detail

// `text`: the first byte of the value; `field`: that of the fault's column; `others`: the names
// that the record has, for a column that it has not. All of it is valid UTF-8, but for the text of
// a value that is not.
inline std::string words_of(const JsonFault& fault, const uint8_t* text, const JsonField* field,
                            const std::string& others) {
  using namespace json_detail;
  const auto at_byte = [&](const char* what) {
    return std::string("no JSON: ") + what + " at byte " + std::to_string(fault.at - text + 1);
  };
  const auto got = [&] {
    const auto* first = reinterpret_cast<const char*>(fault.at);
    return "got " + shown({first, size_t(fault.end - fault.at)});
  };
  const auto column = [&] { return "column \"" + field->name + "\": "; };
  const auto expected = [&] {
    return column() + "expected " + type_word(field->type) + ", " + got();
  };
  switch (fault.wrong) {
    case JsonWrong::NoBytes:
      return "the record has no value (a tombstone)";
    case JsonWrong::NotUtf8:
      return at_byte("not UTF-8");
    case JsonWrong::NoObject:
      return "expected a JSON object, " + got();
    case JsonWrong::NoValue:
      return at_byte("expected a value");
    case JsonWrong::NoName:
      return at_byte("expected a name in double quotes");
    case JsonWrong::NoColon:
      return at_byte("expected \":\"");
    case JsonWrong::NoComma:
      return at_byte("expected \",\" or the end of an object or a list");
    case JsonWrong::Open:
      return at_byte("a text without an end");
    case JsonWrong::Control:
      return at_byte("a control character in a text");
    case JsonWrong::Escape:
      return at_byte("an escape that JSON does not have");
    case JsonWrong::Number:
      return at_byte("not a number of JSON");
    case JsonWrong::Constant:
      return "no JSON: " + constant(fault) + " is not a number of JSON";
    case JsonWrong::LongNumber:
      return at_byte("a number of more than 4,300 digits");
    case JsonWrong::Deep:
      return "no JSON: nested deeper than " + std::to_string(kJsonDepth);
    case JsonWrong::After:
      return at_byte("more after the object");
    case JsonWrong::Twice:
      return "no JSON: the name \"" + shown(fault.name) + "\" is there twice";
    case JsonWrong::Missing:
      return column() + "missing; the record has " + (others.empty() ? "nothing" : others);
    case JsonWrong::Misfit:
      return expected();
    case JsonWrong::Range:
      return expected() +
             (field->type == Type::Int64 ? ", beyond 64 bits" : ", beyond the range of a float");
    case JsonWrong::HalfPair:
      return column() + "a text has half of a surrogate pair, which no UTF-8 has";
    case JsonWrong::Nothing:
    case JsonWrong::Unsettled:
      break;
  }
  return {};
}

}  // namespace plait
