// PYBIND11_MODULE without pybind11: a table of functions with their types erased, which Python calls.
#pragma once
#include "functions.h"

#include <memory>
#include <type_traits>

namespace tilegrad {

enum Outcome : int64_t { DONE, IN_PYTHON, REFUSED, WRONG_TYPE, WRONG_VALUE, WRONG_INDEX, FAILED, NOT_THERE };
inline thread_local Luggage* luggage = nullptr;  // what the last result points to
inline std::string last_message;

struct Argument {
    const char* name;
    Value fallback;
    bool optional = false;
    explicit Argument(const char* name) : name(name) {}
    template <class T> Argument operator=(const T& value) const {
        static Luggage kept;
        Argument made(name);
        made.fallback = Convert<T>::to(value, kept), made.optional = true;
        return made;
    }
};

struct Function {
    std::string name, doc, signature;
    std::vector<Argument> names;
    virtual ~Function() = default;
    virtual Value operator()(const Value* arguments, Luggage& luggage) const = 0;
};

template <class T> using plain = std::remove_cv_t<std::remove_reference_t<T>>;

template <class T> plain<T> argument(const Value* values, size_t n) {
    try {
        return Convert<plain<T>>::from(values[n]);
    } catch (const c10::TypeError& error) {
        throw c10::TypeError("argument " + std::to_string(n) + ": " + error.what());
    } catch (const c10::ValueError& error) {
        throw c10::ValueError("argument " + std::to_string(n) + ": " + error.what());
    }
}

template <class F, class R, class... A> struct Bound : Function {
    F f;
    explicit Bound(F f) : f(f) {}
    void describe() {
        std::string types[] = {Convert<plain<A>>::name()..., ""};
        signature = "(";
        for (size_t i = 0; i < sizeof...(A); ++i) {
            if (i) signature += ", ";
            signature += (i < names.size() ? names[i].name : "arg" + std::to_string(i)) + (": " + types[i]);
            if (i < names.size() && names[i].optional) signature += " = ...";
        }
        if constexpr (std::is_void_v<R>)
            signature += ") -> None";
        else
            signature += ") -> " + Convert<plain<R>>::name();
    }
    Value operator()(const Value* values, Luggage& luggage) const override {
        return run(values, luggage, std::index_sequence_for<A...>());
    }
    template <size_t... N> Value run(const Value* values, Luggage& luggage, std::index_sequence<N...>) const {
        (void)values;
        if constexpr (std::is_void_v<R>) {
            f(argument<A>(values, N)...);
            return Value();
        } else
            return Convert<plain<R>>::to(f(argument<A>(values, N)...), luggage);
    }
};

template <class F> struct Called : Called<decltype(&F::operator())> {};
template <class R, class... A> struct Called<R (*)(A...)> {
    template <class F> using as = Bound<F, R, A...>;
    static constexpr size_t count = sizeof...(A);
};
template <class C, class R, class... A> struct Called<R (C::*)(A...) const> : Called<R (*)(A...)> {};

struct Module {
    std::vector<std::unique_ptr<Function>> functions;
    std::string text;

    std::string& doc() { return text; }
    template <class F, class... Extra> Module& def(const char* name, F f, const Extra&... extra) {
        using Wrapped = Called<std::decay_t<F>>;
        auto made = std::make_unique<typename Wrapped::template as<std::decay_t<F>>>(f);
        made->name = name;
        (note(*made, extra), ...);
        made->describe();
        made->names.resize(made->names.size() > Wrapped::count ? Wrapped::count : made->names.size(), Argument(""));
        functions.push_back(std::move(made));
        counts.push_back(Wrapped::count);
        return *this;
    }
    std::vector<size_t> counts;

private:
    static void note(Function& f, const char* doc) { f.doc = doc; }
    static void note(Function& f, const std::string& doc) { f.doc = doc; }
    static void note(Function& f, const Argument& name) { f.names.push_back(name); }
    template <class T> static void note(Function&, const T&) {}  // return value policies, call guards
};

inline Module module;
void define(Module& m);

struct Entry {
    const char *name, *doc, *signature;
    int64_t required, count;
};

}  // namespace tilegrad

namespace pybind11 {
using arg = tilegrad::Argument;
using module_ = tilegrad::Module;
using module = tilegrad::Module;
struct gil_scoped_release {};
struct gil_scoped_acquire {};
template <class...> struct call_guard {};
enum class return_value_policy { automatic, copy, move, reference };
inline namespace literals {
inline arg operator""_a(const char* name, size_t) { return arg(name); }
}
}  // namespace pybind11
namespace py = pybind11;

#if defined(_WIN32)
#define TILEGRAD_EXPORT extern "C" __declspec(dllexport)
#else
#define TILEGRAD_EXPORT extern "C" __attribute__((visibility("default")))
#endif

// Once in an extension, in the file that has the module.
#define PYBIND11_MODULE(name, m)                                                                              \
    TILEGRAD_EXPORT int64_t tilegrad_start(const ::tilegrad::Host* host) {                                    \
        ::tilegrad::host = host;                                                                              \
        if (::tilegrad::module.functions.empty()) ::tilegrad::define(::tilegrad::module);                     \
        return (int64_t)::tilegrad::module.functions.size();                                                  \
    }                                                                                                         \
    TILEGRAD_EXPORT void tilegrad_entry(int64_t n, ::tilegrad::Entry* entry) { ::tilegrad::entry(n, entry); } \
    TILEGRAD_EXPORT const char* tilegrad_text() { return ::tilegrad::module.text.c_str(); }                   \
    TILEGRAD_EXPORT const char* tilegrad_message() { return ::tilegrad::last_message.c_str(); }               \
    TILEGRAD_EXPORT int64_t tilegrad_call(                                                                    \
        int64_t n, const ::tilegrad::Value* given, int64_t count, ::tilegrad::Value* result) {                \
        return ::tilegrad::call_from_outside(n, given, count, result);                                        \
    }                                                                                                         \
    TILEGRAD_EXPORT void tilegrad_done() {                                                                    \
        delete ::tilegrad::luggage;                                                                           \
        ::tilegrad::luggage = nullptr;                                                                        \
    }                                                                                                         \
    void ::tilegrad::define(::tilegrad::Module& m)

namespace tilegrad {

inline void entry(int64_t n, Entry* entry) {
    const Function& f = *module.functions[n];
    int64_t count = (int64_t)module.counts[n], required = count;
    while (required > 0 && required <= (int64_t)f.names.size() && f.names[required - 1].optional) --required;
    *entry = {f.name.c_str(), f.doc.c_str(), f.signature.c_str(), required, count};
}

inline int64_t outcome(int64_t what, const std::string& message) {
    last_message = message;
    return what;
}

inline int64_t call_from_outside(int64_t n, const Value* given, int64_t count, Value* result) {
    const Function& f = *module.functions[n];
    std::vector<Value> values(given, given + count);
    for (size_t i = values.size(); i < module.counts[n]; ++i) values.push_back(f.names[i].fallback);
    auto mine = std::make_unique<Luggage>();
    try {
        *result = f(values.data(), *mine);
        luggage = mine.release();
        return DONE;
    } catch (const InPython&) {
        return IN_PYTHON;
    } catch (const c10::TypeError& error) {
        return outcome(WRONG_TYPE, error.what());
    } catch (const c10::ValueError& error) {
        return outcome(WRONG_VALUE, error.what());
    } catch (const c10::IndexError& error) {
        return outcome(WRONG_INDEX, error.what());
    } catch (const c10::NotImplementedError& error) {
        return outcome(NOT_THERE, error.what());
    } catch (const c10::Error& error) {
        return outcome(REFUSED, error.what());
    } catch (const std::invalid_argument& error) {
        return outcome(WRONG_VALUE, error.what());
    } catch (const std::out_of_range& error) {
        return outcome(WRONG_INDEX, error.what());
    } catch (const std::exception& error) {
        return outcome(FAILED, error.what());
    } catch (...) {
        return outcome(FAILED, "an exception that is no std::exception");
    }
}

}  // namespace tilegrad
