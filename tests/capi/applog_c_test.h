/* What applog_test.cpp runs of C. Null, or what went wrong. */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif
const char* applog_c_first(const char* path);
const char* applog_c_second(const char* path);
#ifdef __cplusplus
}
#endif
