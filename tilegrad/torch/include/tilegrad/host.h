// What a C++ extension and Python say to each other: values, and a table of functions. Version 1.
//
// A tensor is a reference to Python's object. Its arithmetic is asked for by name and done by tilegrad, so that it is
// recorded, fused and run wherever the tensor is; memory is looked at only when somebody asks for a pointer.
#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace tilegrad {

enum Kind : int64_t { NONE, TENSOR, INTEGER, REAL, BOOLEAN, TEXT, LIST, TUPLE, DTYPE, DEVICE };

struct Value {
    int64_t kind = NONE, count = 0;
    union {
        int64_t integer = 0;
        double real;
        const char* text;
        void* object;
        const Value* values;
    };
};

const int MOST_AXES = 12;
struct Meta {
    int64_t axes, numel, dtype, device, requires_grad, contiguous, offset;
    int64_t sizes[MOST_AXES], strides[MOST_AXES];
};

struct Launch {
    const char *kernel, *parameters, *source, *file;
    int64_t line, grid[3], block[3], shared, stream, count;
    void** arguments;
    const int64_t* written;  // which arguments are pointers through which the kernel may write
};

struct Host {
    int64_t version;
    int64_t (*call)(const char* name, int64_t count, const Value* arguments, Value* result);
    int64_t (*describe)(void* tensor, Meta* meta);
    int64_t (*data)(void* tensor, void** address);
    int64_t (*launch)(const Launch* launch, int64_t* emulate);
    int64_t (*synchronize)();
    void (*hold)(void* object);
    void (*drop)(void* object);
};

inline const Host* host = nullptr;  // set when the extension is loaded

struct InPython {};  // a Python exception is waiting to be raised

inline void checked(int64_t failed) {
    if (failed) throw InPython();
}

}  // namespace tilegrad

namespace c10 {

class Error : public std::runtime_error {
public:
    explicit Error(const std::string& message) : std::runtime_error(message) {}
};
class IndexError : public Error { using Error::Error; };
class ValueError : public Error { using Error::Error; };
class TypeError : public Error { using Error::Error; };
class NotImplementedError : public Error { using Error::Error; };

namespace detail {
inline void append(std::string& text, const char* x) { text += x; }
inline void append(std::string& text, char x) { text += x; }
inline void append(std::string& text, bool x) { text += x ? "True" : "False"; }
inline void append(std::string& text, const std::string& x) { text += x; }
template <class T> std::enable_if_t<std::is_arithmetic_v<T>> append(std::string& text, T x) {
    text += std::to_string(x);
    if constexpr (std::is_floating_point_v<T>) {  // 0.5, and not 0.500000
        while (text.back() == '0') text.pop_back();
        if (text.back() == '.') text.pop_back();
    }
}
template <class T> auto append(std::string& text, const T& x) -> decltype(x.begin(), void()) {
    text += "[";
    bool first = true;
    for (const auto& each : x) {
        if (!first) text += ", ";
        first = false;
        append(text, each);
    }
    text += "]";
}
template <class T> auto append(std::string& text, const T& x) -> decltype(to_text(x), void()) { text += to_text(x); }
}  // namespace detail

template <class... T> std::string str(const T&... parts) {
    std::string text;
    (detail::append(text, parts), ...);
    return text;
}
}  // namespace c10
