// {fmt} within this library, so that no program has to load libfmt.so, which needs the C++ library, at its start. The
// header defines everything that is no template; the templates of characters and numbers are made here. Another version
// of {fmt} is loaded as a library.
#include <fmt/core.h>

#if FMT_VERSION / 10000 == 9 && !defined(FMT_HEADER_ONLY)
#include <fmt/format-inl.h>

namespace fmt::detail {

template auto thousands_sep_impl(locale_ref) -> thousands_sep_result<char>;
template auto decimal_point_impl(locale_ref) -> char;
template auto dragonbox::to_decimal(float) noexcept -> dragonbox::decimal_fp<float>;
template auto dragonbox::to_decimal(double) noexcept -> dragonbox::decimal_fp<double>;

}  // namespace fmt::detail
#endif
