/* memlith-gcc and memlith-g++ include this file first, in C, too: stores of which GCC does not tell by itself. */
#ifndef MEMLITH_TRACK_GCC_HPP
#define MEMLITH_TRACK_GCC_HPP

#if !defined(__ASSEMBLER__)

#ifdef __cplusplus
#include "track_libstdcxx.hpp"
extern "C" {
#endif
/* Tells of a store to [address, address + bytes) that follows. */
void __memlith_before(const volatile void* address, __SIZE_TYPE__ bytes) __attribute__((visibility("hidden"), nothrow));
#ifdef __cplusplus
}
#endif

/* A compare-and-swap that fails stores to `expected`. */
#define __atomic_compare_exchange_n(object, expected, ...)               \
  __extension__({                                                        \
    __typeof__(expected) const memlith_expected_ = (expected);           \
    __memlith_before(memlith_expected_, sizeof *memlith_expected_);      \
    __atomic_compare_exchange_n(object, memlith_expected_, __VA_ARGS__); \
  })
#define __atomic_compare_exchange(object, expected, ...)               \
  __extension__({                                                      \
    __typeof__(expected) const memlith_expected_ = (expected);         \
    __memlith_before(memlith_expected_, sizeof *memlith_expected_);    \
    __atomic_compare_exchange(object, memlith_expected_, __VA_ARGS__); \
  })
#define __atomic_test_and_set(object, order)                 \
  __extension__({                                            \
    __typeof__(&*(object)) const memlith_object_ = (object); \
    __memlith_before(memlith_object_, 1);                    \
    __atomic_test_and_set(memlith_object_, order);           \
  })
#define __atomic_clear(object, order)                        \
  __extension__({                                            \
    __typeof__(&*(object)) const memlith_object_ = (object); \
    __memlith_before(memlith_object_, 1);                    \
    __atomic_clear(memlith_object_, order);                  \
  })

#if defined(__x86_64__)
/* Intrinsics. A store of which a mask leaves out lanes counts as one of all lanes. */
#define __builtin_ia32_movnti(to, value) (__memlith_before(to, 4), __builtin_ia32_movnti(to, value))
#define __builtin_ia32_movnti64(to, value) (__memlith_before(to, 8), __builtin_ia32_movnti64(to, value))
#define __builtin_ia32_movntq(to, value) (__memlith_before(to, 8), __builtin_ia32_movntq(to, value))
#define __builtin_ia32_movntss(to, value) (__memlith_before(to, 4), __builtin_ia32_movntss(to, value))
#define __builtin_ia32_movntsd(to, value) (__memlith_before(to, 8), __builtin_ia32_movntsd(to, value))
#define __builtin_ia32_storelps(to, value) (__memlith_before(to, 8), __builtin_ia32_storelps(to, value))
#define __builtin_ia32_storehps(to, value) (__memlith_before(to, 8), __builtin_ia32_storehps(to, value))
#define __builtin_ia32_movntps(to, value) (__memlith_before(to, 16), __builtin_ia32_movntps(to, value))
#define __builtin_ia32_movntpd(to, value) (__memlith_before(to, 16), __builtin_ia32_movntpd(to, value))
#define __builtin_ia32_movntdq(to, value) (__memlith_before(to, 16), __builtin_ia32_movntdq(to, value))
#define __builtin_ia32_movntps256(to, value) (__memlith_before(to, 32), __builtin_ia32_movntps256(to, value))
#define __builtin_ia32_movntpd256(to, value) (__memlith_before(to, 32), __builtin_ia32_movntpd256(to, value))
#define __builtin_ia32_movntdq256(to, value) (__memlith_before(to, 32), __builtin_ia32_movntdq256(to, value))
#define __builtin_ia32_movntps512(to, value) (__memlith_before(to, 64), __builtin_ia32_movntps512(to, value))
#define __builtin_ia32_movntpd512(to, value) (__memlith_before(to, 64), __builtin_ia32_movntpd512(to, value))
#define __builtin_ia32_movntdq512(to, value) (__memlith_before(to, 64), __builtin_ia32_movntdq512(to, value))
#define __builtin_ia32_maskstored(to, mask, value) \
  (__memlith_before(to, 16), __builtin_ia32_maskstored(to, mask, value))
#define __builtin_ia32_maskstoreq(to, mask, value) \
  (__memlith_before(to, 16), __builtin_ia32_maskstoreq(to, mask, value))
#define __builtin_ia32_maskstoreps(to, mask, value) \
  (__memlith_before(to, 16), __builtin_ia32_maskstoreps(to, mask, value))
#define __builtin_ia32_maskstorepd(to, mask, value) \
  (__memlith_before(to, 16), __builtin_ia32_maskstorepd(to, mask, value))
#define __builtin_ia32_maskstored256(to, mask, value) \
  (__memlith_before(to, 32), __builtin_ia32_maskstored256(to, mask, value))
#define __builtin_ia32_maskstoreq256(to, mask, value) \
  (__memlith_before(to, 32), __builtin_ia32_maskstoreq256(to, mask, value))
#define __builtin_ia32_maskstoreps256(to, mask, value) \
  (__memlith_before(to, 32), __builtin_ia32_maskstoreps256(to, mask, value))
#define __builtin_ia32_maskstorepd256(to, mask, value) \
  (__memlith_before(to, 32), __builtin_ia32_maskstorepd256(to, mask, value))
#define __builtin_ia32_maskmovdqu(value, mask, to) \
  (__memlith_before(to, 16), __builtin_ia32_maskmovdqu(value, mask, to))
#define __builtin_ia32_maskmovq(value, mask, to) (__memlith_before(to, 8), __builtin_ia32_maskmovq(value, mask, to))
#endif

#endif
#endif
