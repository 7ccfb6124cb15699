/*
 * Force-included into mlx-c only: std::format for standard libraries without it (GCC 12). mlx-c formats with plain {}
 * placeholders, so those are all that is understood.
 */
#pragma once
#ifdef __cplusplus
#include <version>
#ifdef __cpp_lib_format
#include <format>
#else
#include <sstream>
#include <string>
#include <string_view>

namespace std {
inline void mlxc_format_next(ostringstream& out, string_view& rest) {
  out << rest;
  rest = {};
}
template <typename First, typename... Rest>
void mlxc_format_next(ostringstream& out, string_view& rest, const First& first, const Rest&... others) {
  const auto at = rest.find("{}");
  if (at == string_view::npos) {
    out << rest;
    rest = {};
    return;
  }
  out << rest.substr(0, at) << first;
  rest.remove_prefix(at + 2);
  mlxc_format_next(out, rest, others...);
}
template <typename... Args>
string format(string_view pattern, const Args&... args) {
  ostringstream out;
  mlxc_format_next(out, pattern, args...);
  return out.str();
}
}  // namespace std
#endif
#endif
