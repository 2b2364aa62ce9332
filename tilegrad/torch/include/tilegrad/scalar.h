// Element types, devices and numbers under PyTorch's names.
#pragma once
#include "host.h"

#include <initializer_list>
#include <optional>
#include <tuple>
#include <utility>

namespace c10 {

enum class ScalarType : int8_t {
    Byte = 0, Char = 1, Short = 2, Int = 3, Long = 4, Half = 5, Float = 6, Double = 7, Bool = 11, BFloat16 = 15,
    Undefined = 20
};
inline const char* toString(ScalarType type) {
    switch (type) {
        case ScalarType::Byte: return "Byte";
        case ScalarType::Char: return "Char";
        case ScalarType::Short: return "Short";
        case ScalarType::Int: return "Int";
        case ScalarType::Long: return "Long";
        case ScalarType::Half: return "Half";
        case ScalarType::Float: return "Float";
        case ScalarType::Double: return "Double";
        case ScalarType::Bool: return "Bool";
        case ScalarType::BFloat16: return "BFloat16";
        default: return "Undefined";
    }
}
inline std::string to_text(ScalarType type) { return toString(type); }

constexpr ScalarType kByte = ScalarType::Byte, kUInt8 = kByte, kChar = ScalarType::Char, kInt8 = kChar,
    kShort = ScalarType::Short, kInt16 = kShort, kInt = ScalarType::Int, kInt32 = kInt, kLong = ScalarType::Long,
    kInt64 = kLong, kHalf = ScalarType::Half, kFloat16 = kHalf, kFloat = ScalarType::Float, kFloat32 = kFloat,
    kDouble = ScalarType::Double, kFloat64 = kDouble, kBool = ScalarType::Bool, kBFloat16 = ScalarType::BFloat16;

#if defined(__FLT16_MANT_DIG__)
struct Half {
    _Float16 x;
    Half() = default;
    Half(float value) : x((_Float16)value) {}
    operator float() const { return (float)x; }
};
#endif
struct BFloat16 {
    uint16_t bits;
    BFloat16() = default;
    BFloat16(float value) {
        union { float real; uint32_t word; } both{value};
        bits = value != value ? 0x7fff : (both.word + 0x7fff + (both.word >> 16 & 1)) >> 16;
    }
    operator float() const {
        union { uint32_t word; float real; } both{(uint32_t)bits << 16};
        return both.real;
    }
};

template <class T> struct CppTypeToScalarType;
#define TILEGRAD_TYPE(T, name) \
    template <> struct CppTypeToScalarType<T> { static constexpr ScalarType value = ScalarType::name; };
TILEGRAD_TYPE(uint8_t, Byte) TILEGRAD_TYPE(int8_t, Char) TILEGRAD_TYPE(int16_t, Short) TILEGRAD_TYPE(int32_t, Int)
TILEGRAD_TYPE(int64_t, Long) TILEGRAD_TYPE(long long, Long) TILEGRAD_TYPE(float, Float) TILEGRAD_TYPE(double, Double)
TILEGRAD_TYPE(bool, Bool) TILEGRAD_TYPE(BFloat16, BFloat16)
#if defined(__FLT16_MANT_DIG__)
TILEGRAD_TYPE(Half, Half)
#endif
#undef TILEGRAD_TYPE

enum class DeviceType : int8_t { CPU = 0, CUDA = 1 };
constexpr DeviceType kCPU = DeviceType::CPU, kCUDA = DeviceType::CUDA;

struct Device {
    DeviceType kind;
    int number;
    Device(DeviceType kind = kCPU, int number = -1) : kind(kind), number(number) {}
    Device(const std::string& name)
        : kind(name.rfind("cuda", 0) == 0 ? kCUDA : kCPU), number(name.size() > 5 ? std::stoi(name.substr(5)) : -1) {}
    Device(const char* name) : Device(std::string(name)) {}
    DeviceType type() const { return kind; }
    int index() const { return number; }
    bool is_cuda() const { return kind == kCUDA; }
    bool is_cpu() const { return kind == kCPU; }
    std::string str() const {
        std::string name = is_cuda() ? "cuda" : "cpu";
        return number < 0 ? name : name + ":" + std::to_string(number);
    }
    bool operator==(const Device& other) const { return kind == other.kind && number == other.number; }
    bool operator!=(const Device& other) const { return !(*this == other); }
};
inline std::string to_text(const Device& device) { return device.str(); }

class Scalar {
public:
    tilegrad::Value value;
    Scalar(double x) { value.kind = tilegrad::REAL, value.real = x; }
    Scalar(float x) : Scalar((double)x) {}
    Scalar(bool x) { value.kind = tilegrad::BOOLEAN, value.integer = x; }
    template <class T, class = std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool>>> Scalar(T x) {
        value.kind = tilegrad::INTEGER, value.integer = (int64_t)x;
    }
    template <class T> T to() const { return value.kind == tilegrad::REAL ? (T)value.real : (T)value.integer; }
    double toDouble() const { return to<double>(); }
    int64_t toLong() const { return to<int64_t>(); }
};

template <class T> class ArrayRef {
    const T* first = nullptr;
    size_t count = 0;

public:
    ArrayRef() = default;
    ArrayRef(const T* data, size_t size) : first(data), count(size) {}
    ArrayRef(const T& one) : first(&one), count(1) {}
    ArrayRef(const std::vector<T>& from) : first(from.data()), count(from.size()) {}
    ArrayRef(std::initializer_list<T> from) : first(from.begin()), count(from.size()) {}
    template <size_t N> ArrayRef(const T (&from)[N]) : first(from), count(N) {}
    const T* begin() const { return first; }
    const T* end() const { return first + count; }
    const T* data() const { return first; }
    size_t size() const { return count; }
    bool empty() const { return !count; }
    const T& front() const { return first[0]; }
    const T& back() const { return first[count - 1]; }
    const T& operator[](size_t i) const { return first[i]; }
    const T& at(size_t i) const {
        if (i >= count) throw IndexError("index " + std::to_string(i) + " of " + std::to_string(count));
        return first[i];
    }
    std::vector<T> vec() const { return std::vector<T>(begin(), end()); }
    bool equals(ArrayRef other) const {
        if (count != other.count) return false;
        for (size_t i = 0; i < count; ++i)
            if (first[i] != other.first[i]) return false;
        return true;
    }
};
template <class T> bool operator==(ArrayRef<T> x, ArrayRef<T> y) { return x.equals(y); }
template <class T> bool operator!=(ArrayRef<T> x, ArrayRef<T> y) { return !x.equals(y); }
using IntArrayRef = ArrayRef<int64_t>;
using std::nullopt;
using std::optional;

}  // namespace c10
