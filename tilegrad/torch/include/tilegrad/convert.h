// C++ values as those of Python, and back.
#pragma once
#include "tensor.h"

#include <deque>

namespace tilegrad {
using at::Tensor;

// Holds what a value points to while it is on its way.
struct Luggage {
    std::deque<std::vector<Value>> lists;
    std::deque<std::string> texts;
    std::deque<Tensor> tensors;
};

inline const char* kind_name(const Value& value) {
    static const char* const names[] = {
        "None", "a Tensor", "an int", "a float", "a bool", "a str", "a list", "a tuple", "a dtype", "a device"};
    return names[value.kind];
}
[[noreturn]] inline void refuse(const Value& value, const std::string& wanted) {
    throw c10::TypeError(std::string(kind_name(value)) + " was given, and " + wanted + " is wanted");
}

template <class T, class = void> struct Convert;

template <class T> struct Convert<T, std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool>>> {
    static std::string name() { return "int"; }
    static Value to(T x, Luggage&) { Value v; v.kind = INTEGER, v.integer = (int64_t)x; return v; }
    static T from(const Value& v) {
        if (v.kind != INTEGER && v.kind != BOOLEAN) refuse(v, "an int");
        if ((int64_t)(T)v.integer != v.integer) throw c10::ValueError(std::to_string(v.integer) + " does not fit the type that the function takes");
        return (T)v.integer;
    }
};
template <class T> struct Convert<T, std::enable_if_t<std::is_floating_point_v<T>>> {
    static std::string name() { return "float"; }
    static Value to(T x, Luggage&) { Value v; v.kind = REAL, v.real = x; return v; }
    static T from(const Value& v) {
        if (v.kind == INTEGER || v.kind == BOOLEAN) return (T)v.integer;
        if (v.kind != REAL) refuse(v, "a float");
        return (T)v.real;
    }
};
template <> struct Convert<bool> {
    static std::string name() { return "bool"; }
    static Value to(bool x, Luggage&) { Value v; v.kind = BOOLEAN, v.integer = x; return v; }
    static bool from(const Value& v) {
        if (v.kind != BOOLEAN) refuse(v, "a bool");
        return v.integer;
    }
};
template <> struct Convert<std::string> {
    static std::string name() { return "str"; }
    static Value to(const std::string& x, Luggage& luggage) {
        luggage.texts.push_back(x);
        Value v;
        v.kind = TEXT, v.text = luggage.texts.back().c_str();
        return v;
    }
    static std::string from(const Value& v) {
        if (v.kind != TEXT) refuse(v, "a str");
        return v.text;
    }
};
template <> struct Convert<const char*> : Convert<std::string> {};
template <size_t N> struct Convert<char[N]> : Convert<std::string> {};
template <> struct Convert<Tensor> {
    static std::string name() { return "Tensor"; }
    static Value to(const Tensor& x, Luggage& luggage) {
        Value v;
        if (!x.defined()) return v;
        luggage.tensors.push_back(x);
        v.kind = TENSOR, v.object = x.object();
        return v;
    }
    static Tensor from(const Value& v) {
        if (v.kind != TENSOR) refuse(v, "a Tensor");
        return Tensor::of(v.object);
    }
};
template <> struct Convert<c10::Scalar> {
    static std::string name() { return "number"; }
    static Value to(const c10::Scalar& x, Luggage&) { return x.value; }
    static c10::Scalar from(const Value& v) {
        if (v.kind == REAL) return v.real;
        if (v.kind == BOOLEAN) return (bool)v.integer;
        if (v.kind != INTEGER) refuse(v, "a number");
        return v.integer;
    }
};
template <> struct Convert<c10::ScalarType> {
    static std::string name() { return "dtype"; }
    static Value to(c10::ScalarType x, Luggage&) { Value v; v.kind = DTYPE, v.integer = (int64_t)x; return v; }
    static c10::ScalarType from(const Value& v) {
        if (v.kind != DTYPE) refuse(v, "a dtype");
        return (c10::ScalarType)v.integer;
    }
};
template <> struct Convert<c10::Device> {
    static std::string name() { return "device"; }
    static Value to(const c10::Device& x, Luggage&) {
        Value v;
        v.kind = DEVICE, v.integer = x.is_cuda() ? (x.index() < 0 ? 0 : x.index()) : -1;
        return v;
    }
    static c10::Device from(const Value& v) {
        if (v.kind != DEVICE) refuse(v, "a device");
        return v.integer < 0 ? c10::Device() : c10::Device(c10::kCUDA, (int)v.integer);
    }
};
template <class List, class T> struct ConvertList {
    static std::string name() { return "list[" + Convert<T>::name() + "]"; }
    static Value to(const List& x, Luggage& luggage) {
        luggage.lists.emplace_back();
        auto& values = luggage.lists.back();
        for (const T& each : x) values.push_back(Convert<T>::to(each, luggage));
        Value v;
        v.kind = LIST, v.count = (int64_t)values.size(), v.values = values.data();
        return v;
    }
    static std::vector<T> from(const Value& v) {
        if (v.kind != LIST && v.kind != TUPLE) refuse(v, "a list");
        std::vector<T> made;
        for (int64_t i = 0; i < v.count; ++i) made.push_back(Convert<T>::from(v.values[i]));
        return made;
    }
};
template <class T> struct Convert<std::vector<T>> : ConvertList<std::vector<T>, T> {};
template <class T> struct Convert<std::initializer_list<T>> : ConvertList<std::initializer_list<T>, T> {};
template <class T> struct Convert<c10::ArrayRef<T>> : ConvertList<c10::ArrayRef<T>, T> {};
template <class T> struct Convert<std::optional<T>> {
    static std::string name() { return Convert<T>::name() + " | None"; }
    static Value to(const std::optional<T>& x, Luggage& luggage) { return x ? Convert<T>::to(*x, luggage) : Value(); }
    static std::optional<T> from(const Value& v) {
        return v.kind == NONE ? std::nullopt : std::optional<T>(Convert<T>::from(v));
    }
};
template <> struct Convert<std::nullopt_t> {
    static Value to(std::nullopt_t, Luggage&) { return Value(); }
};
template <class... T> struct ConvertTuple {
    static std::string name() {
        std::string made;
        ((made += (made.empty() ? "" : ", ") + Convert<T>::name()), ...);
        return "tuple[" + made + "]";
    }
    template <class Group> static Value to(const Group& x, Luggage& luggage) {
        luggage.lists.emplace_back();
        auto& values = luggage.lists.back();
        std::apply([&](const T&... each) { (values.push_back(Convert<T>::to(each, luggage)), ...); }, x);
        Value v;
        v.kind = TUPLE, v.count = (int64_t)values.size(), v.values = values.data();
        return v;
    }
    static std::tuple<T...> from(const Value& v) {
        if ((v.kind != LIST && v.kind != TUPLE) || v.count != sizeof...(T))
            refuse(v, "a tuple of " + std::to_string(sizeof...(T)));
        int64_t n = 0;
        return std::tuple<T...>{Convert<T>::from(v.values[n++])...};
    }
};
template <class... T> struct Convert<std::tuple<T...>> : ConvertTuple<T...> {};
template <class A, class B> struct Convert<std::pair<A, B>> : ConvertTuple<A, B> {};

// Asks Python for a function by its name.
template <class R, class... A> R asked(const char* name, const A&... arguments) {
    Luggage luggage;
    Value values[sizeof...(A) + 1] = {Convert<A>::to(arguments, luggage)...}, result;
    checked(host->call(name, sizeof...(A), values, &result));
    if constexpr (!std::is_void_v<R>) return Convert<R>::from(result);
}

}  // namespace tilegrad
