// The kernels by the names that lowering/expressions.py uses: operation, underscore, operand type.
//
// Type words: i64 (int64 and timestamp), f64, bool, str (string and bytes). A name that is not here
// is a mistake of the lowering and is reported when the program is built, not when it runs.
#pragma once

#include <string_view>
#include <unordered_map>

#include "plait/kernels/cast.hpp"
#include "plait/kernels/checked.hpp"
#include "plait/kernels/load.hpp"
#include "plait/kernels/logic.hpp"
#include "plait/kernels/member.hpp"
#include "plait/kernels/number.hpp"
#include "plait/kernels/program.hpp"
#include "plait/kernels/text.hpp"
#include "plait/kernels/time_text.hpp"

namespace plait {

using KernelTable = std::unordered_map<std::string_view, Kernel>;

template <class Op>
void add_comparison(KernelTable& t, std::string_view i64, std::string_view f64,
                    std::string_view boolean, std::string_view str) {
  t[i64] = binary<Op, int64_t, uint8_t>;
  t[f64] = binary<Op, double, uint8_t>;
  t[boolean] = binary<Op, uint8_t, uint8_t>;
  t[str] = compare_texts<Op>;
}

inline KernelTable make_kernel_table() {
  KernelTable t{
      {"load_i64", load_word},
      {"load_f64", load_word},
      {"load_bool", load_bool},
      {"load_str", load_text},
      {"spread_i64", spread<int64_t>},
      {"spread_f64", spread<double>},
      {"spread_bool", spread<uint8_t>},
      {"spread_str", spread<Text>},
      {"null_i64", nulls<int64_t>},
      {"null_f64", nulls<double>},
      {"null_bool", nulls<uint8_t>},
      {"null_str", nulls<Text>},
      {"scope_begin", scope_begin},
      {"scope_end", scope_end},
      {"add_i64", checked<CheckedAdd>},
      {"wrapping_add_i64", binary<Add, int64_t>},
      {"add_f64", binary<Add, double>},
      {"sub_i64", checked<CheckedSub>},
      {"wrapping_sub_i64", binary<Sub, int64_t>},
      {"sub_f64", binary<Sub, double>},
      {"mul_i64", checked_mul},
      {"wrapping_mul_i64", binary<Mul, int64_t>},
      {"mul_f64", binary<Mul, double>},
      {"muladd_i64", checked_mul_add},
      {"wrapping_muladd_i64", mul_add},
      {"muladd_f64", mul_add_float},
      {"truediv_f64", binary<TrueDiv, double>},
      {"floordiv_i64", int_divide<false, false>},
      {"wrapping_floordiv_i64", int_divide<false>},
      {"mod_i64", int_divide<true>},
      {"floordiv_f64", float_divide<FloatFloorDiv>},
      {"mod_f64", float_divide<FloatMod>},
      {"neg_i64", checked_sign<Neg, false>},
      {"wrapping_neg_i64", unary<Neg, int64_t>},
      {"neg_f64", unary<Neg, double>},
      {"abs_i64", checked_sign<Abs, true>},
      {"wrapping_abs_i64", unary<Abs, int64_t>},
      {"abs_f64", unary<Abs, double>},
      {"bit_and_i64", binary<BitAnd, int64_t>},
      {"bit_or_i64", binary<BitOr, int64_t>},
      {"bit_xor_i64", binary<BitXor, int64_t>},
      {"shl_i64", shift<LoopShl>},
      {"shr_i64", shift<LoopShr>},
      {"is_nan_f64", unary<IsNan, double, uint8_t>},
      {"and_bool", kleene<true>},
      {"or_bool", kleene<false>},
      {"not_bool", unary<Not, uint8_t>},
      {"is_null", is_null},
      {"fill_null_i64", fill_null<int64_t>},
      {"fill_null_f64", fill_null<double>},
      {"fill_null_bool", fill_null<uint8_t>},
      {"fill_null_str", fill_null<Text>},
      {"select_i64", select<int64_t>},
      {"select_f64", select<double>},
      {"select_bool", select<uint8_t>},
      {"select_str", select<Text>},
      {"is_in_i64", is_in_words<int64_t>},
      {"is_in_f64", is_in_words<double>},
      {"is_in_bool", is_in_bool},
      {"is_in_str", is_in_text},
      {"lower_str", change_case<false>},
      {"upper_str", change_case<true>},
      {"strip_str", strip_text},
      {"length_str", length_str},
      {"length_bytes", length_bytes},
      {"contains_str", contains_text},
      {"startswith_str", starts_with},
      {"endswith_str", ends_with},
      {"concat_str", concat},
      {"cast_i64_f64", unary<ToFloat, int64_t, double>},
      {"cast_i64_bool", unary<ToBool, int64_t, uint8_t>},
      {"cast_i64_str", cast_to_str<int64_t, print_int>},
      {"cast_f64_i64", cast_f64_i64},
      {"cast_f64_bool", unary<ToBool, double, uint8_t>},
      {"cast_f64_str", cast_to_str<double, print_float>},
      {"cast_bool_i64", unary<ToInt, uint8_t, int64_t>},
      {"cast_bool_f64", unary<ToFloat, uint8_t, double>},
      {"cast_bool_str", cast_to_str<uint8_t, print_bool>},
      {"cast_str_i64", cast_str_i64},
      {"cast_str_f64", cast_str_f64},
      {"cast_str_bool", cast_str_bool},
      {"cast_bytes_str", cast_bytes_str},
      {"cast_time_str", cast_time_str},
      {"year_i64", unary<Year, int64_t>},
      {"month_i64", unary<Month, int64_t>},
      {"day_i64", unary<Day, int64_t>},
      {"hour_i64", unary<Hour, int64_t>},
      {"minute_i64", unary<Minute, int64_t>},
      {"second_i64", unary<Second, int64_t>},
      {"truncate_i64", truncate},
      {"to_timestamp_str", to_timestamp_text},
      {"to_timestamp_i64", to_timestamp_int},
      {"to_timestamp_f64", to_timestamp_float},
      {"call_i64", call<int64_t>},
      {"call_f64", call<double>},
      {"call_bool", call<uint8_t>},
  };
  add_comparison<Eq>(t, "eq_i64", "eq_f64", "eq_bool", "eq_str");
  add_comparison<Ne>(t, "ne_i64", "ne_f64", "ne_bool", "ne_str");
  add_comparison<Lt>(t, "lt_i64", "lt_f64", "lt_bool", "lt_str");
  add_comparison<Le>(t, "le_i64", "le_f64", "le_bool", "le_str");
  add_comparison<Gt>(t, "gt_i64", "gt_f64", "gt_bool", "gt_str");
  add_comparison<Ge>(t, "ge_i64", "ge_f64", "ge_bool", "ge_str");
  return t;
}

inline Kernel find_kernel(std::string_view name) {
  static const KernelTable table = make_kernel_table();
  const auto found = table.find(name);
  return found == table.end() ? nullptr : found->second;
}

}  // namespace plait
