/* tilegrad.h: how tilegrad calls functions in other languages. Version 1.

A library exports functions of one type:

    TG_EXPORT int32_t name(const tg_call *call);

It returns 0, or says what is wrong: return TG_FAIL(call, "..."). Memory of inputs and outputs is the
caller's, is there before the call, and outlives it. Strides count elements. Inputs are only read.
This page is plain C; tilegrad.hpp has the same with types. New fields come at the end of a structure, and raise
TG_VERSION; what was compiled for an older version goes on working. */

#ifndef TILEGRAD_H
#define TILEGRAD_H

#include <stdint.h>

#define TG_VERSION 1

#ifdef __cplusplus
#define TG_C extern "C"
#else
#define TG_C
#endif
#ifdef _WIN32
#define TG_EXPORT TG_C __declspec(dllexport)
#else
#define TG_EXPORT TG_C __attribute__((visibility("default")))
#endif

enum tg_dtype {
    TG_BOOL, TG_UINT8, TG_UINT16, TG_UINT32, TG_UINT64, TG_INT8, TG_INT16, TG_INT32, TG_INT64,
    TG_FLOAT16, TG_BFLOAT16, TG_FLOAT32, TG_FLOAT64
};

enum { TG_CPU = -1 }; /* devices: the CPU; 0 and up are GPUs */

typedef struct tg_tensor {
    void *data;
    int32_t dtype; /* enum tg_dtype */
    int32_t ndim;
    const int64_t *shape;
    const int64_t *strides;
    int32_t device;
    int32_t reserved;
} tg_tensor;

typedef union tg_scalar { /* integers and bools are in i, floats in f */
    int64_t i;
    double f;
} tg_scalar;

typedef struct tg_call {
    int32_t version; /* TG_VERSION of the caller */
    int32_t input_count, output_count, scalar_count;
    const tg_tensor *inputs;
    const tg_tensor *outputs; /* those whose shapes follow from the signature */
    const tg_scalar *scalars;
    void *stream; /* of a GPU: work is started there */
    char *error;  /* room for a message of error_size bytes, the final 0 included */
    int64_t error_size;
    const char **error_file; /* where in the sources the message comes from; 0: not known */
    int32_t *error_line;
    void *host; /* the caller's own */
    /* Makes a dense tensor that lives until the call returns, on the call's device; 0 if it cannot be had. */
    const tg_tensor *(*make)(void *host, int32_t dtype, int32_t ndim, const int64_t *shape);
    /* Adds a tensor (made by `make`, or an input) to the results, after those in `outputs`. Returns 0 if it can. */
    int32_t (*give)(void *host, const tg_tensor *tensor);
} tg_call;

#define TG_FAIL(call, message) tg_fail(call, __FILE__, __LINE__, message)
static inline int32_t tg_fail(const tg_call *call, const char *file, int32_t line, const char *message) {
    int64_t n = 0;
    for (; message[n] && n + 1 < call->error_size; ++n) call->error[n] = message[n];
    if (call->error_size) call->error[n] = 0;
    *call->error_file = file;
    *call->error_line = line;
    return 1;
}

#endif
