// Building a Program from the plain data that lowering/expressions.py makes.
//
// `ProgramBuilder` checks everything it is given (kernel names, register numbers, argument counts)
// and throws std::invalid_argument, so that a running program needs no checks. One thread builds;
// the finished Program is immutable and may be shared by any number of threads.
#pragma once

#include <bit>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "plait/columns/strings.hpp"
#include "plait/kernels/program.hpp"
#include "plait/kernels/table.hpp"

namespace plait {

class ProgramBuilder {
 public:
  ProgramBuilder(Type type, int slots, int columns) : columns_(columns) {
    program_->type = type;
    program_->slots = slots;
  }

  // Constants first, in order. A timestamp is an int64; string and bytes are texts.
  void add_int(Type type, int64_t value) { fresh(type).i64 = value; }
  void add_float(double value) { fresh(Type::Float64).f64 = value; }
  void add_bool(bool value) { fresh(Type::Bool).boolean = value; }
  void add_text(Type type, std::string value) {
    Constant& c = fresh(type);
    c.bytes = std::move(value);
    c.text = Text{c.bytes.data(), int64_t(c.bytes.size())};
  }

  // Appends a call; an argument is a slot, or ~i for constant i.
  void add(const std::string& kernel, int dst, const std::vector<int>& args, int64_t value) {
    Instr in;
    in.kernel = find_kernel(kernel);
    if (!in.kernel) throw std::invalid_argument("no kernel " + kernel);
    const bool scope = kernel.starts_with("scope_");
    if (!scope && (dst < 0 || dst >= program_->slots))
      throw std::invalid_argument("no slot for " + kernel);
    if (kernel.starts_with("load_") && (value < 0 || value >= columns_))
      throw std::invalid_argument("no column for " + kernel);
    in.dst = dst;
    for (const int arg : args) {
      in.args.push_back(place(arg));
      if (!scope && in.args.back() == dst)
        throw std::invalid_argument(kernel + " writes over its input");
    }
    in.value = value;
    if (kernel == "truncate_i64") {
      if (value <= 0) throw std::invalid_argument("truncate to no duration");
      in.magic = Magic::of(value);
    } else if ((kernel.ends_with("floordiv_i64") || kernel == "mod_i64") && args.at(1) < 0) {
      in.magic = Magic::of(program_->constants[size_t(~args[1])].i64);
    }
    program_->code.push_back(std::move(in));
  }
  // Of the call added last.
  void set_function(uint64_t address) {
    program_->code.back().function = reinterpret_cast<CompiledLoop>(address);
  }
  void set_members(std::vector<int64_t> ints, const std::vector<double>& floats,
                   std::vector<std::string> texts) {
    for (const double x : floats) ints.push_back(std::bit_cast<int64_t>(x));
    program_->code.back().members =
        std::make_shared<const MemberSet>(std::move(ints), std::move(texts));
  }

  void set_times(std::shared_ptr<const TimeFormat> times) {
    program_->code.back().times = std::move(times);
  }

  std::shared_ptr<Program> finish(int result) {
    program_->result = place(result);
    return std::move(program_);
  }

 private:
  Constant& fresh(Type type) {
    program_->constants.emplace_back();
    program_->constants.back().type = type;
    return program_->constants.back();
  }
  int place(int arg) const {
    const int at = arg >= 0 ? arg : program_->slots + ~arg;
    if ((arg >= 0 && arg >= program_->slots) || at >= program_->registers())
      throw std::invalid_argument("no register " + std::to_string(arg));
    return at;
  }

  int columns_;
  std::shared_ptr<Program> program_ = std::make_shared<Program>();
};

inline bool case_tables_filled() { return CaseTable::upper().filled(); }
inline void fill_case_tables(const std::vector<std::pair<uint32_t, std::string>>& lower,
                             const std::vector<std::pair<uint32_t, std::string>>& upper) {
  CaseTable::lower().fill(lower);
  CaseTable::upper().fill(upper);
}

}  // namespace plait
