/* The steps of capi_c_test.c. Each works in an empty folder of its own and returns 0, or the line of the check that did
 * not hold, with what was found in `found`. */
#ifndef MEMLITH_TESTS_CAPI_C_TEST_H
#define MEMLITH_TESTS_CAPI_C_TEST_H

#ifdef __cplusplus
extern "C" {
#endif

extern char capi_c_found[1400];

int capi_c_numbers(const char* folder);
int capi_c_life(const char* folder);
int capi_c_null_arguments(const char* folder);
int capi_c_struct_sizes(const char* folder);
int capi_c_flags(const char* folder);
int capi_c_last_error(const char* folder);
int capi_c_regions(const char* folder);
int capi_c_region_errors(const char* folder);
int capi_c_persist_errors(const char* folder);
int capi_c_store_modes(const char* folder);
int capi_c_files(const char* folder);
int capi_c_verify(const char* folder);
int capi_c_info(const char* folder);
int capi_c_trackers(const char* folder);
int capi_c_asynchronous(const char* folder);
int capi_c_progress(const char* folder);

#ifdef __cplusplus
}
#endif

#endif
