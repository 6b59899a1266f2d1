/* The functions in C that applog_test.cpp runs. Null, or a sentence on the failure. */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif
const char* applog_c_first(const char* path);
const char* applog_c_second(const char* path);
#ifdef __cplusplus
}
#endif
