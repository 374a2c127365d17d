/*
 * real.h - the number type of the learner's arithmetic.
 *
 * The same sources are compiled twice: with float for use, with double for the finite-difference
 * tests, where a wrong term shows at 1e-6 and rounding does not.
 */
#pragma once
#ifdef LEARNER_F64
typedef double real;
#else
typedef float real;
#endif
