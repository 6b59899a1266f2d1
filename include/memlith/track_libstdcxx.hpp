// memlith-c++ includes this file first: std::string and the streams are compiled with the program then, so that their
// stores are recorded. In libstdc++.so they would not be.
#if defined(__cplusplus) && defined(__has_include)
#if __has_include(<bits/c++config.h>)
#include <bits/c++config.h>
#undef _GLIBCXX_EXTERN_TEMPLATE
#define _GLIBCXX_EXTERN_TEMPLATE 0
#endif
#endif
