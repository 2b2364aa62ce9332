// TORCH_CHECK and its family, and choices by element type.
#pragma once
#include "functions.h"

namespace tilegrad {
template <class... T>
[[noreturn]] inline void refused(const char* condition, const char* file, int line, const T&... message) {
    std::string text = c10::str(message...);
    if (text.empty()) text = std::string("Expected ") + condition + " to be true, but got false.";
    const char* name = file;
    for (const char* c = file; *c; ++c)
        if (*c == '/' || *c == '\\') name = c + 1;
    throw c10::Error(text + " (" + name + ":" + std::to_string(line) + ")");
}
}  // namespace tilegrad

#define TORCH_CHECK(condition, ...) \
    do { if (!(condition)) ::tilegrad::refused(#condition, __FILE__, __LINE__, ##__VA_ARGS__); } while (0)
#define TORCH_INTERNAL_ASSERT(condition, ...) TORCH_CHECK(condition, ##__VA_ARGS__)
#define AT_ASSERTM(condition, ...) TORCH_CHECK(condition, ##__VA_ARGS__)
#define AT_ASSERT(condition, ...) TORCH_CHECK(condition, ##__VA_ARGS__)
#define AT_CHECK(condition, ...) TORCH_CHECK(condition, ##__VA_ARGS__)
#define AT_ERROR(...) ::tilegrad::refused("", __FILE__, __LINE__, ##__VA_ARGS__)
#define TORCH_CHECK_EQ(x, y) TORCH_CHECK((x) == (y), #x " is ", (x), ", and " #y " is ", (y))
#define TORCH_CHECK_GT(x, y) TORCH_CHECK((x) > (y), #x " is ", (x), ", and " #y " is ", (y))
#define TORCH_CHECK_GE(x, y) TORCH_CHECK((x) >= (y), #x " is ", (x), ", and " #y " is ", (y))
#define TORCH_CHECK_TYPE(condition, ...) \
    do { if (!(condition)) throw c10::TypeError(c10::str(__VA_ARGS__)); } while (0)
#define TORCH_CHECK_VALUE(condition, ...) \
    do { if (!(condition)) throw c10::ValueError(c10::str(__VA_ARGS__)); } while (0)
#define TORCH_CHECK_INDEX(condition, ...) \
    do { if (!(condition)) throw c10::IndexError(c10::str(__VA_ARGS__)); } while (0)
#define TORCH_CHECK_NOT_IMPLEMENTED(condition, ...) \
    do { if (!(condition)) throw c10::NotImplementedError(c10::str(__VA_ARGS__)); } while (0)
#define TORCH_WARN(...) fprintf(stderr, "warning: %s\n", c10::str(__VA_ARGS__).c_str())

#define AT_DISPATCH_CASE(name, ...)                                              \
    case name: {                                                                 \
        using scalar_t [[maybe_unused]] = ::tilegrad::type_of<name>::type;       \
        return __VA_ARGS__();                                                    \
    }
#define AT_PRIVATE_CASE_TYPE(name, type, ...) AT_DISPATCH_CASE(name, __VA_ARGS__)
#define AT_DISPATCH_SWITCH(TYPE, NAME, ...)                                                                  \
    [&] {                                                                                                    \
        const auto& tilegrad_type = TYPE;                                                                    \
        switch (::at::scalar_type(tilegrad_type)) {                                                          \
            __VA_ARGS__                                                                                      \
            default:                                                                                         \
                throw ::c10::NotImplementedError(std::string("\"") + NAME + "\" not implemented for '" +     \
                                                 ::c10::toString(::at::scalar_type(tilegrad_type)) + "'");   \
        }                                                                                                    \
    }()

namespace tilegrad {
template <c10::ScalarType> struct type_of;
template <> struct type_of<c10::kByte> { using type = uint8_t; };
template <> struct type_of<c10::kChar> { using type = int8_t; };
template <> struct type_of<c10::kShort> { using type = int16_t; };
template <> struct type_of<c10::kInt> { using type = int32_t; };
template <> struct type_of<c10::kLong> { using type = int64_t; };
template <> struct type_of<c10::kFloat> { using type = float; };
template <> struct type_of<c10::kDouble> { using type = double; };
template <> struct type_of<c10::kBool> { using type = bool; };
template <> struct type_of<c10::kBFloat16> { using type = c10::BFloat16; };
#if defined(__FLT16_MANT_DIG__)
template <> struct type_of<c10::kHalf> { using type = c10::Half; };
#endif
}  // namespace tilegrad

#define AT_DISPATCH_CASE_FLOATING_TYPES(...) \
    AT_DISPATCH_CASE(::c10::kDouble, __VA_ARGS__) AT_DISPATCH_CASE(::c10::kFloat, __VA_ARGS__)
#define AT_DISPATCH_CASE_INTEGRAL_TYPES(...)                                                  \
    AT_DISPATCH_CASE(::c10::kByte, __VA_ARGS__) AT_DISPATCH_CASE(::c10::kChar, __VA_ARGS__)   \
    AT_DISPATCH_CASE(::c10::kInt, __VA_ARGS__) AT_DISPATCH_CASE(::c10::kLong, __VA_ARGS__)    \
    AT_DISPATCH_CASE(::c10::kShort, __VA_ARGS__)
#define AT_DISPATCH_FLOATING_TYPES(TYPE, NAME, ...) \
    AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND_HALF(TYPE, NAME, ...) \
    AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__) AT_DISPATCH_CASE(::c10::kHalf, __VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND2(A, B, TYPE, NAME, ...)                           \
    AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__)          \
        AT_DISPATCH_CASE(A, __VA_ARGS__) AT_DISPATCH_CASE(B, __VA_ARGS__))
#define AT_DISPATCH_INTEGRAL_TYPES(TYPE, NAME, ...) \
    AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_INTEGRAL_TYPES(__VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES(TYPE, NAME, ...) \
    AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__) AT_DISPATCH_CASE_INTEGRAL_TYPES(__VA_ARGS__))
