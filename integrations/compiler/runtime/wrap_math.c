/* Functions of libm with a second result. A program without -lm has only some of them. */
#define _GNU_SOURCE
#include <math.h>

#include "stored.h"

#define SECOND(type, name, parameters, arguments) \
  WRAP(type, name) parameters {                   \
    type const result = name arguments;           \
    stored(to, sizeof *to);                       \
    return result;                                \
  }
#define EACH(type, suffix)                                            \
  SECOND(type, frexp##suffix, (type x, int* to), (x, to))             \
  SECOND(type, modf##suffix, (type x, type * to), (x, to))            \
  SECOND(type, remquo##suffix, (type x, type y, int* to), (x, y, to)) \
  SECOND(type, lgamma##suffix##_r, (type x, int* to), (x, to))        \
  WRAP(void, sincos##suffix)(type x, type * sine, type * cosine) {    \
    sincos##suffix(x, sine, cosine);                                  \
    stored(sine, sizeof *sine), stored(cosine, sizeof *cosine);       \
  }
#pragma weak remquo
#pragma weak remquof
#pragma weak remquol
#pragma weak lgamma_r
#pragma weak lgammaf_r
#pragma weak lgammal_r
#pragma weak sincos
#pragma weak sincosf
#pragma weak sincosl
EACH(double, )
EACH(float, f)
EACH(long double, l)
