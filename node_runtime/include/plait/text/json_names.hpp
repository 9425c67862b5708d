// Names of columns by number, for values of JSON: one that is expected, or any.
//
// A name is compared where it stands, by 16 bytes at once, so 16 must be readable there; it is
// looked up only if another one was expected. Made once and then only read: any thread, nothing
// blocks.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "plait/core/dispatch.hpp"
#include "plait/text/json_fault.hpp"
#include "plait/text/json_scanner.hpp"

namespace plait {

class JsonNames {
 public:
  static constexpr size_t kShort = 16;

  explicit JsonNames(const std::vector<JsonField>& fields) {
    slots_.assign(std::bit_ceil(4 * fields.size() + 4), 0);
    for (const JsonField& field : fields) {
      names_.push_back(quote(field.name));
      size_t at = hash(field.name);
      while (slots_[at & (slots_.size() - 1)]) ++at;
      slots_[at & (slots_.size() - 1)] = uint32_t(names_.size());
    }
  }

  // How many bytes the name in quotes takes, if it is at p just so; else 0. A value ends at `end`.
  PLAIT_INLINE int64_t at(const uint8_t* p, const uint8_t* end, size_t column) const {
    const Quoted& name = names_[column];
    uint64_t words[2];
    std::memcpy(words, p, 16);
    if (((words[0] ^ name.words[0]) & name.masks[0]) | ((words[1] ^ name.words[1]) & name.masks[1]))
      return 0;
    if (name.size <= 16) return name.size;
    if (end - p < name.size) return 0;
    return std::memcmp(p + 16, name.text.data() + 16, size_t(name.size - 16)) ? 0 : name.size;
  }
  // The column of a name; -1: none.
  int64_t find(std::string_view name) const {
    for (size_t at = hash(name);; ++at) {
      const uint32_t slot = slots_[at & (slots_.size() - 1)];
      if (slot == 0) return -1;
      if (names_[slot - 1].text.size() == name.size() + 2 &&
          std::memcmp(names_[slot - 1].text.data() + 1, name.data(), name.size()) == 0)
        return slot - 1;
    }
  }
  // The same of a name of less than 16 bytes without escapes, in quotes at p.
  int64_t find_short(const uint8_t* p, const uint8_t* end, int size) const {
    uint64_t words[2];
    std::memcpy(words, p + 1, 16);
    words[0] &= size < 8 ? (uint64_t(1) << (8 * size)) - 1 : ~uint64_t(0);
    words[1] &= size > 8 ? (uint64_t(1) << (8 * (size - 8))) - 1 : 0;
    for (size_t h = mixed(uint64_t(size), words);; ++h) {
      const uint32_t slot = slots_[h & (slots_.size() - 1)];
      if (slot == 0) return -1;
      if (at(p, end, slot - 1) == size + 2) return slot - 1;
    }
  }

 private:
  struct Quoted {
    std::string text;
    int64_t size;
    uint64_t words[2], masks[2];
  };
  static Quoted quote(const std::string& name) {
    Quoted made{'"' + name + '"', int64_t(name.size()) + 2, {0, 0}, {0, 0}};
    const size_t first = made.text.size() < 16 ? made.text.size() : 16;
    std::memcpy(made.words, made.text.data(), first);
    std::memset(made.masks, 0xFF, first);
    // A name that JSON has to escape never stands there as it is; no UTF-8 has these bytes.
    for (const char c : name)
      if (c == '"' || c == '\\' || uint8_t(c) < 0x20) made.words[0] = made.masks[0] = ~0ull;
    return made;
  }
  static size_t mixed(uint64_t size, const uint64_t (&words)[2]) {
    uint64_t h = (size ^ words[0]) * 0x9E3779B97F4A7C15u;
    h = (h ^ h >> 32 ^ words[1]) * 0x9E3779B97F4A7C15u;
    return size_t(h ^ h >> 32);
  }
  static size_t hash(std::string_view name) {
    uint64_t before = 0;
    const char* p = name.data();
    size_t left = name.size();
    for (uint64_t word; left >= kShort; p += 8, left -= 8) {
      std::memcpy(&word, p, 8);
      before = (before ^ word) * 0x9E3779B97F4A7C15u;
      before ^= before >> 32;
    }
    uint64_t rest[2] = {0, 0};
    std::memcpy(rest, p, left);
    rest[0] ^= before;
    return mixed(name.size(), rest);
  }

  std::vector<Quoted> names_;
  std::vector<uint32_t> slots_;  // column + 1 by hash; a quarter is full
};

// The names of a scanner's value, which is an object of valid JSON. Its texts are gone then.
inline std::string names_in(JsonScanner& scan) {
  std::string all;
  scan.forget_texts();
  const uint8_t* p = scan.space(scan.space(scan.begin()) + 1);
  while (*p != '}' && all.size() < 200) {
    all += all.empty() ? "" : ", ";
    const std::string_view name = scan.name(p);
    all += json_detail::shown(name);
    p = scan.space(scan.skip(scan.colon(p), 1));
    if (*p == ',') p = scan.space(p + 1);
  }
  return all;
}

}  // namespace plait
