// The functions of namespace torch. What is not here: torch::call("name", ...) asks for any function of tilegrad's.
#pragma once
#include "convert.h"

#include <ostream>

namespace at {

template <class... A> Tensor Tensor::call(const char* name, const A&... arguments) const {
    return tilegrad::asked<Tensor>(name, *this, arguments...);
}
template <class... A> Tensor call(const char* name, const A&... arguments) {
    return tilegrad::asked<Tensor>(name, arguments...);
}
template <class T> T Tensor::item() const { return tilegrad::asked<Scalar>("item", *this).to<T>(); }
Tensor Tensor::to(ScalarType type) const { return call("to", type); }
Tensor Tensor::to(const Device& device) const { return call("to", device); }
Tensor Tensor::to(const TensorOptions& options) const { return call("to options", options.type, options.place); }
Tensor& Tensor::set_requires_grad(bool wanted) {
    call("requires_grad_", wanted);
    body->known = false;
    return *this;
}
Tensor Tensor::operator[](int64_t i) const { return call("select", (int64_t)0, i); }
Tensor Tensor::max() const { return call("max"); }
Tensor Tensor::min() const { return call("min"); }
using Pair = std::tuple<Tensor, Tensor>;
Pair Tensor::max(int64_t dim, bool keepdim) const { return tilegrad::asked<Pair>("max", *this, dim, keepdim); }
Pair Tensor::min(int64_t dim, bool keepdim) const { return tilegrad::asked<Pair>("min", *this, dim, keepdim); }
using Tensors = std::vector<Tensor>;
Tensors Tensor::chunk(int64_t chunks, int64_t dim) const { return tilegrad::asked<Tensors>("chunk", *this, chunks, dim); }
Tensors Tensor::split(int64_t size, int64_t dim) const { return tilegrad::asked<Tensors>("split", *this, size, dim); }
Tensors Tensor::unbind(int64_t dim) const { return tilegrad::asked<Tensors>("unbind", *this, dim); }

// --- made anew -----------------------------------------------------------------------------------
#define TILEGRAD_MADE(name)                                                                                \
    inline Tensor name(IntArrayRef sizes, const TensorOptions& options = {}) {                             \
        return call("make " #name, sizes, options.type, options.place, options.tracked);                   \
    }                                                                                                      \
    inline Tensor name##_like(const Tensor& x) { return call(#name "_like", x); }                          \
    inline Tensor name##_like(const Tensor& x, const TensorOptions& options) {                             \
        return call("make " #name, x.sizes(), options.type ? options.type : std::optional(x.scalar_type()), \
                    options.place ? options.place : std::optional(x.device()), options.tracked);           \
    }
TILEGRAD_MADE(empty) TILEGRAD_MADE(zeros) TILEGRAD_MADE(ones) TILEGRAD_MADE(rand) TILEGRAD_MADE(randn)
#undef TILEGRAD_MADE
inline Tensor full(IntArrayRef sizes, const Scalar& value, const TensorOptions& options = {}) {
    return call("make full", sizes, options.type, options.place, options.tracked, value);
}
inline Tensor full_like(const Tensor& x, const Scalar& value) { return call("full_like", x, value); }
inline Tensor arange(const Scalar& end, const TensorOptions& options = {}) {
    return call("make arange", Scalar(0), end, Scalar(1), options.type, options.place);
}
inline Tensor arange(const Scalar& start, const Scalar& end, const TensorOptions& options = {}) {
    return call("make arange", start, end, Scalar(1), options.type, options.place);
}
inline Tensor eye(int64_t n, const TensorOptions& options = {}) { return call("make eye", n, options.type, options.place); }
template <class T> Tensor tensor(const std::vector<T>& values, const TensorOptions& options = {}) {
    return call("make tensor", values, options.type, options.place,
                CppTypeToScalarType<T>::value == kDouble ? kFloat : CppTypeToScalarType<T>::value);
}
template <class T> Tensor tensor(std::initializer_list<T> values, const TensorOptions& options = {}) {
    return tensor(std::vector<T>(values), options);
}
inline Tensor tensor(const Scalar& value, const TensorOptions& options = {}) {
    return call("make tensor", value, options.type, options.place, std::optional<ScalarType>());
}

// --- several -------------------------------------------------------------------------------------
inline Tensor cat(TensorList tensors, int64_t dim = 0) { return call("cat", tensors, dim); }
inline Tensor stack(TensorList tensors, int64_t dim = 0) { return call("stack", tensors, dim); }
inline Tensors chunk(const Tensor& x, int64_t chunks, int64_t dim = 0) { return x.chunk(chunks, dim); }
inline Tensors split(const Tensor& x, int64_t size, int64_t dim = 0) { return x.split(size, dim); }
inline Tensor einsum(const std::string& equation, const Tensors& tensors) { return call("einsum", equation, tensors); }
inline Tensor where(const Tensor& condition, const Tensor& x, const Tensor& y) { return call("where", condition, x, y); }
inline bool equal(const Tensor& x, const Tensor& y) { return tilegrad::asked<bool>("equal", x, y); }
inline bool allclose(const Tensor& x, const Tensor& y, double rtol = 1e-5, double atol = 1e-8) {
    return tilegrad::asked<bool>("allclose", x, y, rtol, atol);
}
inline Pair max(const Tensor& x, int64_t dim, bool keepdim = false) { return x.max(dim, keepdim); }
inline Pair min(const Tensor& x, int64_t dim, bool keepdim = false) { return x.min(dim, keepdim); }
inline Tensor max(const Tensor& x) { return x.max(); }
inline Tensor min(const Tensor& x) { return x.min(); }

#define TILEGRAD_METHOD(name) \
    template <class... A> Tensor name(const Tensor& x, const A&... arguments) { return x.name(arguments...); }
#define TILEGRAD_OF_NUMBERS(name)                                                                              \
    template <class... A> Tensor name(const Tensor& x, const A&... arguments) { return x.name(arguments...); } \
    inline Tensor name(const Tensor& x, IntArrayRef numbers) { return x.name(numbers); }
#define TILEGRAD_IN_PLACE(name)
#include "names.h"
#undef TILEGRAD_METHOD
#undef TILEGRAD_OF_NUMBERS
#undef TILEGRAD_IN_PLACE
// Those of nn.functional.
#define TILEGRAD_LAYER(name) \
    template <class... A> Tensor name(const Tensor& x, const A&... arguments) { return call(#name, x, arguments...); }
TILEGRAD_LAYER(elu) TILEGRAD_LAYER(gelu) TILEGRAD_LAYER(silu) TILEGRAD_LAYER(selu) TILEGRAD_LAYER(leaky_relu)
TILEGRAD_LAYER(softplus) TILEGRAD_LAYER(hardtanh) TILEGRAD_LAYER(linear) TILEGRAD_LAYER(dropout)
TILEGRAD_LAYER(mse_loss) TILEGRAD_LAYER(cross_entropy) TILEGRAD_LAYER(nll_loss)
#undef TILEGRAD_LAYER

// --- operators -----------------------------------------------------------------------------------
#define TILEGRAD_OPERATOR(sign, name)                                                                        \
    inline Tensor operator sign(const Tensor& x, const Tensor& y) { return x.call(name, y); }                \
    inline Tensor operator sign(const Tensor& x, const Scalar& y) { return x.call(name, y); }                \
    inline Tensor operator sign(const Scalar& x, const Tensor& y) { return tilegrad::asked<Tensor>("operator " name, x, y); }
TILEGRAD_OPERATOR(+, "add") TILEGRAD_OPERATOR(-, "sub") TILEGRAD_OPERATOR(*, "mul") TILEGRAD_OPERATOR(/, "div")
TILEGRAD_OPERATOR(==, "eq") TILEGRAD_OPERATOR(!=, "ne") TILEGRAD_OPERATOR(<, "lt") TILEGRAD_OPERATOR(<=, "le")
TILEGRAD_OPERATOR(>, "gt") TILEGRAD_OPERATOR(>=, "ge")
#undef TILEGRAD_OPERATOR
inline Tensor operator-(const Tensor& x) { return x.call("neg"); }
#define TILEGRAD_ASSIGN(sign, name)                                                                 \
    inline const Tensor& operator sign(const Tensor& x, const Tensor& y) { x.call(name, y); return x; } \
    inline const Tensor& operator sign(const Tensor& x, const Scalar& y) { x.call(name, y); return x; }
TILEGRAD_ASSIGN(+=, "add_") TILEGRAD_ASSIGN(-=, "sub_") TILEGRAD_ASSIGN(*=, "mul_") TILEGRAD_ASSIGN(/=, "div_")
#undef TILEGRAD_ASSIGN
inline std::ostream& operator<<(std::ostream& stream, const Tensor& x) {
    return stream << tilegrad::asked<std::string>("str", x);
}
inline std::ostream& operator<<(std::ostream& stream, IntArrayRef numbers) { return stream << str(numbers); }

template <class F> void parallel_for(int64_t begin, int64_t end, int64_t, const F& f) {
    if (begin < end) f(begin, end);  // in one piece
}
}  // namespace at
