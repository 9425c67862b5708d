// Values of JSON, right and wrong, read natively and by a plain parser: same rows, same refusals.
//
// Random objects with their fields in any order, spaces, escapes, what is no column; then with some
// bytes changed, cut off, doubled. Each value lies in memory of exactly its size, so the address
// checks see a read beyond it. Several threads, each with a reader of its own. Arguments: tries,
// seed.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "check.hpp"
#include "json_model.hpp"
#include "plait/text/json_writer.hpp"

using namespace plait;
using namespace plait::testing;

namespace {

using Random = std::mt19937_64;

const std::vector<JsonField> kFields = {
    {"i", Type::Int64, false},
    {"price", Type::Float64, true},
    {"b", Type::Bool, true},
    {"text", Type::String, true},
    {"d\xC3\xA9j\xC3\xA0", Type::Int64, true},
    {"when", Type::Timestamp, true},
    {"raw", Type::Bytes, true},
    {"a\"b\\c", Type::Bool, true},
    {"a name of more than sixteen bytes", Type::String, true},
};

uint64_t below(Random& random, uint64_t n) { return random() % n; }

template <size_t kCount>
std::string one_of(Random& random, const char* const (&choices)[kCount]) {
  return choices[below(random, kCount)];
}

std::string space(Random& random) {
  static const char* const some[] = {"", "", "", "", " ", "\n", "\t \r"};
  return one_of(random, some);
}

std::string text(Random& random, const std::string& plain) {
  std::string made = "\"";
  for (const char c : plain) {
    if (c == '"' || c == '\\') {
      made += '\\';
    } else if (uint8_t(c) < 0x80 && below(random, 20) == 0) {
      char escape[8];
      std::snprintf(escape, sizeof escape, below(random, 2) ? "\\u%04x" : "\\u%04X", uint8_t(c));
      made += escape;
      continue;
    }
    made += c;
  }
  return made + '"';
}

std::string words(Random& random) {
  static const char* const some[] = {"a",       "plain text", "\\n\\t\\/",       "\\ud83d\\ude00",
                                     "\\u0000", "\xC3\xA4",   "\xE2\x82\xAC",    "\xF0\x9F\x98\x80",
                                     "\\\\",    "\\\"",       "sixteen bytes..."};
  static const char* const halves[] = {"\\ud800", "\\udc00x", "\\ud800\\ud800\\udc00"};
  std::string made = "\"";
  for (uint64_t i = below(random, 6); i > 0; --i) made += one_of(random, some);
  if (below(random, 30) == 0) made += one_of(random, halves);
  return made + '"';
}

std::string number(Random& random) {
  static const char* const some[] = {"0",
                                     "-0",
                                     "-0.0",
                                     "1e400",
                                     "-1e-400",
                                     "1e23",
                                     "9223372036854775807",
                                     "-9223372036854775808",
                                     "9223372036854775808",
                                     "1E+2",
                                     "0e999999999999",
                                     "0.1",
                                     "123456789012345678901234567890",
                                     "2.2250738585072011e-308",
                                     "9007199254740993",
                                     "18446744073709551616.0"};
  if (below(random, 3) == 0) return one_of(random, some);
  std::string made = below(random, 4) ? "" : "-";
  made += std::to_string(random() >> below(random, 64));
  if (below(random, 2)) made += '.' + std::to_string(random() >> below(random, 64));
  if (below(random, 4) == 0) made += "e" + std::to_string(int(below(random, 700)) - 350);
  return made;
}

std::string value(Random& random, int depth) {
  static const char* const times[] = {"\"2024-02-29T12:30:45.123456789Z\"",
                                      "\"2023-02-29\"",
                                      "\"2024-01-01 00:00+05:30\"",
                                      "\"20240101\"",
                                      "\"AAECAw==\"",
                                      "\"AB==\"",
                                      "\"QQ\"",
                                      "\"NaN\"",
                                      "\"-Infinity\""};
  switch (below(random, depth > 3 ? 6 : 8)) {
    case 0:
      return below(random, 2) ? "true" : "false";
    case 1:
      return "null";
    case 2:
    case 3:
      return number(random);
    case 4:
      return words(random);
    case 5:
      return one_of(random, times);
    case 6: {
      std::string made = "[";
      for (uint64_t i = below(random, 4); i > 0; --i)
        made += value(random, depth + 1) + space(random) + (i > 1 ? "," : "");
      return made + "]";
    }
    default: {
      std::string made = "{";
      for (uint64_t i = below(random, 4); i > 0; --i)
        made += text(random, std::string(1, char('a' + below(random, 8)))) + ":" +
                value(random, depth + 1) + (i > 1 ? "," : "");
      return made + "}";
    }
  }
}

std::string fitting(Random& random, Type type) {
  if (below(random, 60) == 0) return value(random, 1);
  switch (type) {
    case Type::Int64:
      return std::to_string(int64_t(random()) >> below(random, 64));
    case Type::Float64:
      return number(random);
    case Type::Bool:
      return below(random, 2) ? "true" : "false";
    case Type::String:
      return words(random);
    case Type::Timestamp:
      return below(random, 8) ? "\"2024-02-29T12:30:45.5+01:00\"" : value(random, 5);
    default:
      return below(random, 8) ? "\"AAECAw==\"" : value(random, 5);
  }
}

std::string object(Random& random) {
  std::vector<size_t> order(kFields.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  if (below(random, 3) == 0) std::shuffle(order.begin(), order.end(), random);
  std::string made = space(random) + "{" + space(random);
  bool first = true;
  const auto add = [&](const std::string& name, const std::string& what) {
    if (!first) made += ',' + space(random);
    first = false;
    made += text(random, name) + space(random) + ':' + space(random) + what + space(random);
  };
  for (const size_t i : order) {
    if (below(random, 5) == 0 && kFields[i].nullable) continue;
    add(kFields[i].name, fitting(random, kFields[i].type));
    if (below(random, 8) == 0) add("x" + std::to_string(below(random, 30)), value(random, 0));
    if (below(random, 100) == 0) add(kFields[i].name, "null");
  }
  return made + "}" + space(random);
}

void change(std::string& bytes, Random& random) {
  static constexpr char telling[] = "\"\\{}[]:,0-.eE+utfn \x00\x1F\x7F\x80\xC2\xED\xF4";
  for (uint64_t i = 1 + below(random, 3); i > 0 && !bytes.empty(); --i) {
    const size_t at = below(random, bytes.size());
    switch (below(random, 5)) {
      case 0:
        bytes.resize(at);
        break;
      case 1:
        bytes.insert(at, bytes.substr(at, below(random, 12)));
        break;
      case 2:
        bytes.erase(at, 1 + below(random, 3));
        break;
      default:
        bytes[at] = telling[below(random, sizeof telling)];
    }
  }
}

std::string cell(const Column& c, int64_t row) {
  if (!c.valid(row)) return "null";
  switch (c.type) {
    case Type::Int64:
      return std::to_string(c.i64()[row]);
    case Type::Float64:
      return bits_of(c.f64()[row]);
    case Type::Bool:
      return c.boolean(row) ? "true" : "false";
    case Type::String:
      return "'" + std::string(c.bytes(row), size_t(c.size(row)));
    default:
      return "?";
  }
}

struct Tally {
  uint64_t taken = 0, refused = 0, unsettled = 0;
};

// A check that tells the value; threads do it at once.
void judge(bool right, const std::string& text) {
  static std::mutex one_at_a_time;
  if (right) return;
  const std::lock_guard lock(one_at_a_time);
  story() = "value " + text + "\n";
  CHECK(right);
}

// Reads the values and judges every row and every refusal.
void compare(JsonColumns& reader, const std::vector<std::string>& texts, Tally& tally) {
  std::vector<std::unique_ptr<char[]>> memory;
  std::vector<JsonValue> values;
  for (const std::string& one : texts) {
    memory.emplace_back(new char[one.size()]);
    std::memcpy(memory.back().get(), one.data(), one.size());
    values.push_back({memory.back().get(), int64_t(one.size())});
  }
  const Batch rows = reader.read(values.data(), int64_t(values.size()));
  size_t bad = 0;
  int64_t row = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto wanted = row_of(texts[i], kFields);
    if (bad < reader.bad().size() && reader.bad()[bad].index == int64_t(i)) {
      const BadJson& found = reader.bad()[bad++];
      judge(found.unsettled == found.reason.empty(), texts[i]);
      judge(found.unsettled || !wanted, texts[i]);
      ++(found.unsettled ? tally.unsettled : tally.refused);
      continue;
    }
    judge(wanted.has_value(), texts[i]);
    for (size_t c = 0; c < kFields.size(); ++c) {
      judge(cell(rows.columns[c], row) == (*wanted)[c], texts[i]);
    }
    ++row;
    ++tally.taken;
  }
  CHECK(row == rows.length && bad == reader.bad().size());
}

// What is written reads back the same, with nothing refused.
void write_and_read(JsonColumns& reader, const std::vector<std::string>& texts) {
  std::vector<JsonValue> values;
  for (const std::string& one : texts) values.push_back({one.data(), int64_t(one.size())});
  const Batch rows = reader.read(values.data(), int64_t(values.size()));
  std::vector<std::string> names;
  for (const JsonField& field : kFields) names.push_back(field.name);
  JsonWriter writer(names);
  CHECK(writer.write(rows));
  std::vector<JsonValue> written;
  for (int64_t i = 0; i < rows.length; ++i) {
    written.push_back({writer.row(i).data(), int64_t(writer.row(i).size())});
  }
  const Batch again = reader.read(written.data(), rows.length);
  judge(again.length == rows.length, reader.bad().empty() ? "" : reader.bad()[0].reason);
  for (int64_t i = 0; i < rows.length; ++i) {
    for (size_t c = 0; c < kFields.size(); ++c) {
      const Column &one = rows.columns[c], &other = again.columns[c];
      judge(cell(one, i) == cell(other, i), std::string(writer.row(i)));
      if (!one.valid(i) || !is_varlen(one.type)) continue;
      judge(std::string_view(one.bytes(i), size_t(one.size(i))) ==
                std::string_view(other.bytes(i), size_t(other.size(i))),
            std::string(writer.row(i)));
    }
  }
}

// As lines of one text, with a column for any value: the same are taken as one by one, and what the
// column holds is the beginning and the end of a pickle.
void read_lines(JsonColumns& reader, const std::vector<std::string>& texts, Random& random) {
  std::string joined;
  std::vector<std::string> lines;
  for (const std::string& one : texts) {
    std::string line = one;
    std::erase(line, '\n');
    joined += line + '\n';
    if (line.find_first_not_of(" \t\r\v\f") != std::string::npos) lines.push_back(line);
  }
  std::vector<JsonValue> values;
  for (const std::string& one : lines) values.push_back({one.data(), int64_t(one.size())});
  const int64_t first = int64_t(below(random, lines.size() + 1));
  const auto count = int64_t(lines.size()) - first;
  const int64_t wanted = reader.read(values.data() + first, count).length;
  const std::unique_ptr<char[]> memory(new char[joined.size()]);
  std::memcpy(memory.get(), joined.data(), joined.size());
  const Batch rows = reader.read_lines(memory.get(), int64_t(joined.size()), first);
  judge(rows.length == wanted && reader.line_ends() == int64_t(texts.size()), joined);
  judge(rows.length + int64_t(reader.bad().size()) == count, joined);
  judge(reader.lines().size() == lines.size(), joined);
  const Column& any = rows.columns.back();
  for (int64_t i = 0; i < rows.length; ++i) {
    if (!any.valid(i)) continue;
    const std::string_view pickle(any.bytes(i), size_t(any.size(i)));
    judge(pickle.starts_with("\x80\x04") && pickle.ends_with('.'), joined);
  }
}

// Every lead with every second byte, and what tells of the others, beside the engine's other check.
void characters() {
  static constexpr uint8_t others[] = {0x00, 'a', 0x7F, 0x80, 0x9F, 0xBF, 0xC0, 0xFF};
  for (int lead = 0x80; lead < 0x100; ++lead) {
    for (int second = 0; second < 0x100; ++second) {
      for (const uint8_t third : others) {
        for (const uint8_t last : others) {
          const uint8_t text[16] = {'a', uint8_t(lead), uint8_t(second), third, last};
          for (int size = 2; size <= 5; ++size) {
            uint8_t cut[16] = {};
            std::memcpy(cut, text, size_t(size));
            const bool right = is_utf8(reinterpret_cast<const char*>(cut), size);
            CHECK((first_not_utf8(cut, size) == size) == right);
          }
        }
      }
    }
  }
}

void planted() {
  JsonColumns reader(kFields);
  Tally tally;
  const std::string deep(62, '['), deeper(63, '['), close(62, ']');
  std::vector<std::string> texts = {"",
                                    " ",
                                    "{}",
                                    "{\"i\":1}",
                                    "\xEF\xBB\xBF{\"i\":1}",
                                    "{\"i\":1} x",
                                    "{\"i\":01}",
                                    "{\"i\":-}",
                                    "{\"i\":1,\"x\":[" + deep + close + "]}",
                                    "{\"i\":1,\"x\":[" + deeper + close + "]]}",
                                    "{\"i\":1,\"x\":" + std::string(99'999, '['),
                                    "{\"i\":1,\"i\":1}",
                                    "{\"i\":1,\"\\u0069\":1}",
                                    "{\"i\":1,\"x\":{\"a\":1,\"\\u0061\":2}}",
                                    "{\"i\":1,\"x\":1,\"x\":2}",
                                    "{\"i\":NaN}",
                                    "{\"i\":1,\"x\":-Infinity}",
                                    "[1]",
                                    "7",
                                    "null",
                                    "{\"i\":1,}",
                                    "{,\"i\":1}",
                                    "{\"i\" 1}",
                                    std::string("{\"i\":1}\0", 8),
                                    std::string("{\"i\":1,\"text\":\"a\0b\"}", 20),
                                    "{\"i\":1,\"text\":\"",
                                    "{\"i\":1,\"text\":\"\\",
                                    "{\"i\":1,\"text\":\"\\u12",
                                    "{\"i\":1,\"text\":\"\\x\"}",
                                    "{\"i\":1,\"price\":1e400}",
                                    "{\"i\":1,\"price\":-0}",
                                    "{\"i\":1,\"price\":-0.0}",
                                    "{\"i\":1,\"x\":" + std::string(4300, '1') + "}",
                                    "{\"i\":1,\"x\":" + std::string(4301, '1') + "}",
                                    "{\"i\":1,\"price\":" + std::string(400, '1') + "}",
                                    "{\"i\":1,\"price\":0." + std::string(5000, '0') + "1e5001}",
                                    "{\"i\":1,\"a name of more than sixteen bytes\":\"x\"}",
                                    "{\"a name of more th",
                                    "{\"a name of mor\",1}",
                                    "{\"i\":1,\"text\":\"" + std::string(100'000, 'x') + "\"}"};
  std::string many = "{\"i\":1";
  for (int i = 0; i < 3000; ++i) many += ",\"x" + std::to_string(i) + "\":[]";
  texts.push_back(many + "}");
  texts.push_back(many + ",\"x77\":0}");
  compare(reader, texts, tally);
  CHECK(tally.taken == 9);

  const JsonValue none{nullptr, 0};
  CHECK(reader.read(&none, 1).length == 0 &&
        reader.bad()[0].reason.find("tombstone") != std::string::npos);
  CHECK(reader.read(&none, 0).length == 0 && reader.bad().empty());

  Column column;
  column.type = Type::Bytes;
  column.length = 2;
  const int32_t offsets[] = {1, 8, 8};
  column.offsets = offsets;
  column.data = reinterpret_cast<const uint8_t*>("x{\"i\":9}");
  const Batch one = reader.read(column);
  CHECK(one.length == 1 && one.columns[0].i64()[0] == 9 && reader.bad()[0].index == 1);

  // More text than a column of a unit may hold is nobody's fault, and the reader lives on.
  const std::string large = "{\"i\":1,\"text\":\"0123456789\"}";
  const JsonValue twice[] = {{large.data(), int64_t(large.size())},
                             {large.data(), int64_t(large.size())}};
  set_text_limit(15);
  bool thrown = false;
  try {
    reader.read(twice, 2);
  } catch (const TooMuchText&) {
    thrown = true;
  }
  CHECK(thrown);
  set_text_limit(INT32_MAX);
  CHECK(reader.read(twice, 2).length == 2);

  JsonWriter writer({"t", "\"\x01"});
  Batch times;
  times.length = 1;
  const int64_t first[] = {kFirstTime}, before[] = {kFirstTime - 1};
  Column time;
  time.type = Type::Timestamp;
  time.length = 1;
  time.data = reinterpret_cast<const uint8_t*>(first);
  times.columns = {time, time};
  CHECK(writer.write(times));
  CHECK(writer.row(0) ==
        "{\"t\":\"0001-01-01T00:00:00Z\",\"\\\"\\u0001\":\"0001-01-01T00:00:00Z\"}");
  times.columns[1].data = reinterpret_cast<const uint8_t*>(before);
  CHECK(!writer.write(times));
}

}  // namespace

int main(int argc, char** argv) {
  const unsigned long tries = argument(argc, argv, 20'000);
  const unsigned long seed = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 1;
  characters();
  planted();
  std::atomic<uint64_t> taken{0}, refused{0}, unsettled{0};
  std::vector<std::thread> threads;
  for (unsigned long t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      Random random(seed * 3 + t);
      JsonColumns reader(kFields);
      std::vector<JsonField> fields = kFields;
      fields.push_back({"x" + std::to_string(t), Type::Object, true});
      JsonColumns any_reader(fields, t == 0);
      Tally tally;
      for (unsigned long done = 0; done < tries / 3;) {
        std::vector<std::string> texts(1 + below(random, 40));
        for (std::string& one : texts) {
          one = object(random);
          if (below(random, 2)) change(one, random);
        }
        done += texts.size();
        compare(reader, texts, tally);
        write_and_read(reader, texts);
        read_lines(any_reader, texts, random);
      }
      taken.fetch_add(tally.taken, std::memory_order_relaxed);
      refused.fetch_add(tally.refused, std::memory_order_relaxed);
      unsettled.fetch_add(tally.unsettled, std::memory_order_relaxed);
    });
  }
  for (std::thread& one : threads) one.join();
  CHECK(taken > tries / 20 && refused > tries / 20);
  std::printf("seed %lu: %lu taken, %lu refused, %lu unsettled\n", seed, (unsigned long)taken,
              (unsigned long)refused, (unsigned long)unsettled);
  return 0;
}
