// tilegrad.hpp: tilegrad.h with types. Needs C++17, and no library.
//
//   tg::View<const float> x       a tensor of float: x[i] (all elements in order), x(i, j), x.size(), x.size(1), x.data();
//                                 also a plain pointer where one is wanted
//   tg::Tensor x                  a tensor of any dtype: x.as<float>() gives the view, and checks
//   tg::empty<float>({n, m}), tg::zeros<float>({n}), tg::empty_like(x)    tensors to be returned, alone or in a tg::List
//   TG_CHECK(x.size() > 0, "x has %d axes", x.ndim())    what is wrong becomes a Python exception
//   TG_DISPATCH_FLOATING(x.dtype(), T, { ... })          the block for the dtype that x has
//   tg::half, tg::bfloat16        numbers of 16 bits, which compute as float

#ifndef TILEGRAD_HPP
#define TILEGRAD_HPP

#include <exception>
#include <initializer_list>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "tilegrad.h"

namespace tg {

struct Error {
    char text[512];
    const char *file;
    int line;
};

[[noreturn]] inline void fail(const char *file, int line, const char *condition, const char *format, ...) {
    Error error;
    va_list given;
    va_start(given, format);
    if (*format) vsnprintf(error.text, sizeof error.text, format, given);
    else snprintf(error.text, sizeof error.text, "%s is not so", condition);
    va_end(given);
    error.file = file;
    error.line = line;
    throw error;
}

#define TG_CHECK(condition, ...) \
    do { if (!(condition)) ::tg::fail(__FILE__, __LINE__, #condition, "" __VA_ARGS__); } while (0)
#define TG_WANT(condition, ...) /* of this file, whose lines are of no interest */ \
    do { if (!(condition)) ::tg::fail(nullptr, 0, "", __VA_ARGS__); } while (0)

template <class To, class From> inline To bits_of(From x) {
    static_assert(sizeof(To) == sizeof(From), "");
    To y;
    memcpy(&y, &x, sizeof y);
    return y;
}

struct bfloat16 {
    uint16_t bits;
    bfloat16() = default;
    bfloat16(float x) {
        uint32_t u = bits_of<uint32_t>(x);
        bits = x != x ? uint16_t(0x7fc0) : uint16_t((u + 0x7fff + (u >> 16 & 1)) >> 16);
    }
    operator float() const { return bits_of<float>(uint32_t(bits) << 16); }
};

struct half {
    uint16_t bits;
    half() = default;
    half(float x) {
        uint32_t u = bits_of<uint32_t>(x), sign = u >> 16 & 0x8000, a = u & 0x7fffffff;
        if (a > 0x7f800000) bits = uint16_t(sign | 0x7e00);
        else if (a >= 0x477ff000) bits = uint16_t(sign | 0x7c00);
        else if (a < 0x38800000) { // denormal: the place of the unit is fixed, so adding rounds
            bits = uint16_t(sign | (bits_of<uint32_t>(bits_of<float>(a) + 0.5f) - 0x3f000000));
        } else bits = uint16_t(sign | ((a - 0x38000000 + 0xfff + (a >> 13 & 1)) >> 13));
    }
    operator float() const {
        uint32_t sign = uint32_t(bits & 0x8000) << 16, a = bits & 0x7fff;
        if (a >= 0x7c00) return bits_of<float>(sign | 0x7f800000 | (a & 0x3ff) << 13);
        if (a >= 0x0400) return bits_of<float>(sign | ((a << 13) + 0x38000000));
        float small = float(a) * 5.9604644775390625e-8f; // 2^-24
        return sign ? -small : small;
    }
};

template <class T> struct dtype_of;
template <class T> struct dtype_of<const T> : dtype_of<T> {};
#define TG_DTYPE(type, number, text) \
    template <> struct dtype_of<type> { static constexpr int32_t value = number; static constexpr const char *name = text; };
TG_DTYPE(bool, TG_BOOL, "bool")
TG_DTYPE(uint8_t, TG_UINT8, "uint8")
TG_DTYPE(uint16_t, TG_UINT16, "uint16")
TG_DTYPE(uint32_t, TG_UINT32, "uint32")
TG_DTYPE(uint64_t, TG_UINT64, "uint64")
TG_DTYPE(int8_t, TG_INT8, "int8")
TG_DTYPE(int16_t, TG_INT16, "int16")
TG_DTYPE(int32_t, TG_INT32, "int32")
TG_DTYPE(int64_t, TG_INT64, "int64")
TG_DTYPE(half, TG_FLOAT16, "float16")
TG_DTYPE(bfloat16, TG_BFLOAT16, "bfloat16")
TG_DTYPE(float, TG_FLOAT32, "float32")
TG_DTYPE(double, TG_FLOAT64, "float64")
#undef TG_DTYPE

inline const char *dtype_name(int32_t dtype) {
    static const char *const names[] = {"bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32",
                                        "int64", "float16", "bfloat16", "float32", "float64"};
    return dtype >= 0 && dtype < 13 ? names[dtype] : "unknown";
}

inline int64_t dtype_size(int32_t dtype) {
    static const int64_t sizes[] = {1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 4, 8};
    return sizes[dtype];
}

template <class T> struct View;

/// A tensor of any dtype; it is a handle: copies are on the same memory.
struct Tensor {
    const tg_tensor *handle;

    Tensor(const tg_tensor *handle = nullptr) : handle(handle) {}
    int32_t dtype() const { return handle->dtype; }
    int64_t ndim() const { return handle->ndim; }
    int32_t device() const { return handle->device; }
    int64_t size(int64_t axis) const {
        TG_WANT(-ndim() <= axis && axis < ndim(), "axis %lld of a tensor with %lld", (long long)axis, (long long)ndim());
        return handle->shape[axis < 0 ? axis + ndim() : axis];
    }
    int64_t stride(int64_t axis) const { return handle->strides[axis < 0 ? axis + ndim() : axis]; }
    int64_t size() const {
        int64_t count = 1;
        for (int64_t n = 0; n < ndim(); ++n) count *= handle->shape[n];
        return count;
    }
    int64_t bytes() const { return size() * dtype_size(dtype()); }
    bool is_dense() const {
        int64_t expected = 1;
        for (int64_t n = ndim() - 1; n >= 0; --n) {
            if (handle->shape[n] != 1 && handle->strides[n] != expected) return size() == 0;
            expected *= handle->shape[n];
        }
        return true;
    }
    template <class T> View<T> as() const {
        TG_WANT(dtype() == dtype_of<T>::value, "a tensor of %s is taken for one of %s", dtype_name(dtype()), dtype_of<T>::name);
        return View<T>(handle);
    }
};

/// A tensor of a dtype that is known.
template <class T> struct View : Tensor {
    explicit View(const tg_tensor *handle) : Tensor(handle) {}
    T *data() const { return static_cast<T *>(handle->data); }
    operator T *() const { return data(); }
    T *begin() const { return data(); }
    T *end() const { return data() + size(); }
    /// The element number i of a dense tensor, row by row.
    template <class I> T &operator[](I i) const { return data()[i]; }
    template <class... I> T &operator()(I... indices) const {
        const int64_t all[] = {int64_t(indices)..., 0};
        int64_t offset = 0;
        for (size_t n = 0; n < sizeof...(indices); ++n) offset += all[n] * handle->strides[n];
        return data()[offset];
    }
};

/// The call that this thread is in.
inline thread_local const tg_call *current = nullptr;

inline Tensor make(int32_t dtype, int32_t ndim, const int64_t *shape) {
    const tg_tensor *made = current->make(current->host, dtype, ndim, shape);
    TG_WANT(made, "no memory for a tensor of %s", dtype_name(dtype));
    return Tensor(made);
}

template <class T> View<T> empty(std::initializer_list<int64_t> shape) {
    return View<T>(make(dtype_of<T>::value, int32_t(shape.size()), shape.begin()).handle);
}

template <class T> View<T> zeros(std::initializer_list<int64_t> shape) {
    View<T> made = empty<T>(shape);
    memset(static_cast<void *>(made.data()), 0, size_t(made.bytes()));
    return made;
}

inline Tensor empty_like(const Tensor &x) { return make(x.dtype(), int32_t(x.ndim()), x.handle->shape); }
template <class T> View<T> empty_like(const View<const T> &x) {
    return View<T>(empty_like(static_cast<const Tensor &>(x)).handle);
}

/// Several results.
struct List {
    static constexpr int most = 64;
    Tensor items[most];
    int count = 0;
    List() = default;
    List(std::initializer_list<Tensor> all) { for (const Tensor &x : all) push_back(x); }
    void push_back(const Tensor &x) {
        TG_WANT(count < most, "a tg::List holds %d tensors: return a std::vector<tg::Tensor>", most);
        items[count++] = x;
    }
    const Tensor *begin() const { return items; }
    const Tensor *end() const { return items + count; }
};

inline void give(const Tensor &x) {
    TG_WANT(x.handle && current->give(current->host, x.handle) == 0, "a result is no tensor of this call");
}
template <class T> void give(const View<T> &x) { give(static_cast<const Tensor &>(x)); }
template <class Many> auto give(const Many &all) -> decltype(all.begin(), void()) { for (const Tensor &x : all) give(x); }

/// Puts what a function returned where its results belong.
inline void assign(const Tensor &out, const Tensor &x) {
    TG_WANT(x.handle && x.dtype() == out.dtype(), "a result is %s, and should be %s",
             x.handle ? dtype_name(x.dtype()) : "nothing", dtype_name(out.dtype()));
    bool same = x.ndim() == out.ndim();
    for (int64_t n = 0; same && n < x.ndim(); ++n) same = x.size(n) == out.size(n);
    TG_WANT(same && x.is_dense(), "a result of %lld axes and %lld elements does not have the shape of the signature",
             (long long)x.ndim(), (long long)x.size());
    memcpy(out.handle->data, x.handle->data, size_t(out.bytes()));
}
template <class T, class Number> auto assign(const View<T> &out, Number x) -> decltype(T(x), void()) {
    TG_WANT(out.size() == 1, "a number is returned for a result of %lld elements", (long long)out.size());
    out[0] = T(x);
}
template <class Many> void assign_all(std::initializer_list<Tensor> out, const Many &all) {
    const Tensor *next = out.begin();
    for (const Tensor &x : all) {
        TG_WANT(next != out.end(), "more than %d results are returned", int(out.size()));
        assign(*next++, x);
    }
    TG_WANT(next == out.end(), "fewer than %d results are returned", int(out.size()));
}

/// Runs the body of a call; whatever it throws becomes the call's error.
template <class Body> int32_t guarded(const tg_call *call, Body body) {
    struct Restored {
        const tg_call *before = current;
        ~Restored() { current = before; }
    } restored;
    current = call;
    try {
        body();
        return 0;
    } catch (const Error &error) {
        return tg_fail(call, error.file, error.line, error.text);
    } catch (const std::exception &error) {
        return tg_fail(call, nullptr, 0, error.what());
    } catch (...) {
        return tg_fail(call, nullptr, 0, "an exception that is no std::exception");
    }
}

} // namespace tg

#define TG_CASE(type, T, ...) case ::tg::dtype_of<type>::value: { using T = type; __VA_ARGS__ break; }
#define TG_OTHER(dtype) default: ::tg::fail(__FILE__, __LINE__, "", "dtype %s is not served here", ::tg::dtype_name(dtype));
#define TG_DISPATCH_FLOATING(dtype, T, ...) \
    switch (dtype) { TG_CASE(float, T, __VA_ARGS__) TG_CASE(double, T, __VA_ARGS__) TG_OTHER(dtype) }
#define TG_DISPATCH_INTEGER(dtype, T, ...) \
    switch (dtype) { TG_CASE(int32_t, T, __VA_ARGS__) TG_CASE(int64_t, T, __VA_ARGS__) TG_CASE(uint8_t, T, __VA_ARGS__) \
        TG_CASE(int8_t, T, __VA_ARGS__) TG_CASE(int16_t, T, __VA_ARGS__) TG_OTHER(dtype) }

#endif
