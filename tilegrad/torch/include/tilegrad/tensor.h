// torch::Tensor: a reference to a tensor of tilegrad's.
#pragma once
#include "accessor.h"
#include "scalar.h"

#include <atomic>

namespace at {
using namespace c10;

struct TensorOptions;

class Tensor {
    struct Body {
        void* object;
        std::atomic<int64_t> references{1};
        bool known = false;
        tilegrad::Meta meta;
    };
    Body* body = nullptr;

    const tilegrad::Meta& meta() const {
        if (!body) throw Error("this tensor is undefined: nothing was assigned to it");
        if (!body->known) tilegrad::checked(tilegrad::host->describe(body->object, &body->meta)), body->known = true;
        return body->meta;
    }
    int64_t axis(int64_t i) const {
        int64_t axes = dim();
        if (i < -axes || i >= axes)
            throw IndexError(
                "axis " + std::to_string(i) + " of a tensor with " + std::to_string(axes) + " axes, " + shape());
        return i < 0 ? i + axes : i;
    }
    void* address() const {
        void* found = nullptr;
        if (!body) throw Error("this tensor is undefined: it has no memory");
        tilegrad::checked(tilegrad::host->data(body->object, &found));
        return found;
    }
    void typed(ScalarType wanted) const {
        if (wanted != scalar_type())
            throw Error(std::string("expected scalar type ") + toString(wanted) + " but found " +
                        toString(scalar_type()) + ": the pointer of a tensor of shape " + shape() +
                        " was asked for as another type than its elements have; convert it first: x.to(...)");
    }

public:
    Tensor() = default;
    Tensor(const Tensor& other) : body(other.body) {
        if (body) ++body->references;
    }
    Tensor(Tensor&& other) noexcept : body(other.body) { other.body = nullptr; }
    Tensor& operator=(Tensor other) noexcept {
        std::swap(body, other.body);
        return *this;
    }
    ~Tensor() {
        if (body && !--body->references) tilegrad::host->drop(body->object), delete body;
    }
    // Takes over a reference.
    static Tensor owning(void* object) {
        Tensor made;
        made.body = new Body{object};
        return made;
    }
    static Tensor of(void* object) {
        tilegrad::host->hold(object);
        return owning(object);
    }
    void* object() const { return body ? body->object : nullptr; }

    // --- what it is ---------------------------------------------------------------------------
    bool defined() const { return body; }
    int64_t dim() const { return meta().axes; }
    int64_t ndimension() const { return dim(); }
    int64_t numel() const { return meta().numel; }
    int64_t size(int64_t i) const { return meta().sizes[axis(i)]; }
    int64_t stride(int64_t i) const { return meta().strides[axis(i)]; }
    IntArrayRef sizes() const { return IntArrayRef(meta().sizes, dim()); }
    IntArrayRef strides() const { return IntArrayRef(meta().strides, dim()); }
    int64_t storage_offset() const { return meta().offset; }
    std::string shape() const { return str(sizes()); }
    ScalarType scalar_type() const { return (ScalarType)meta().dtype; }
    ScalarType dtype() const { return scalar_type(); }
    Device device() const { return meta().device < 0 ? Device() : Device(kCUDA, (int)meta().device); }
    int64_t get_device() const { return meta().device; }
    bool is_cuda() const { return meta().device >= 0; }
    bool is_cpu() const { return !is_cuda(); }
    bool is_contiguous() const { return meta().contiguous; }
    bool requires_grad() const { return meta().requires_grad; }
    bool is_floating_point() const {
        ScalarType t = scalar_type();
        return t == kFloat || t == kDouble || t == kHalf || t == kBFloat16;
    }
    int64_t element_size() const {
        switch (scalar_type()) {
            case kByte: case kChar: case kBool: return 1;
            case kShort: case kHalf: case kBFloat16: return 2;
            case kInt: case kFloat: return 4;
            default: return 8;
        }
    }
    int64_t itemsize() const { return element_size(); }
    int64_t nbytes() const { return element_size() * numel(); }
    bool is_same(const Tensor& other) const { return body && other.body && body->object == other.body->object; }
    const Tensor& type() const { return *this; }  // x.type().is_cuda(), x.type().scalarType()
    ScalarType scalarType() const { return scalar_type(); }
    inline TensorOptions options() const;

    // --- its memory ---------------------------------------------------------------------------
    void* data_ptr() const { return address(); }
    template <class T> T* data_ptr() const {
        typed(CppTypeToScalarType<std::remove_const_t<T>>::value);
        return (T*)address();
    }
    template <class T> T* data() const { return data_ptr<T>(); }
    template <class T> T* mutable_data_ptr() const { return data_ptr<T>(); }
    template <class T> const T* const_data_ptr() const { return data_ptr<T>(); }
    template <class T, int N> TensorAccessor<T, N> accessor() const {
        if (is_cuda()) throw Error("accessor: the tensor of shape " + shape() + " is on a GPU; packed_accessor32 is for kernels");
        return made<TensorAccessor<T, N>, N>(data_ptr<T>());
    }
    template <class T, int N, template <class> class Traits = DefaultPtrTraits>
    PackedTensorAccessor32<T, N, Traits> packed_accessor32() const {
        return made<PackedTensorAccessor32<T, N, Traits>, N>(data_ptr<T>());
    }
    template <class T, int N, template <class> class Traits = DefaultPtrTraits>
    PackedTensorAccessor64<T, N, Traits> packed_accessor64() const {
        return made<PackedTensorAccessor64<T, N, Traits>, N>(data_ptr<T>());
    }
    template <class T, int N, template <class> class Traits = DefaultPtrTraits, class Index = int64_t>
    GenericAccessor<T, N, Traits, Index> packed_accessor() const {
        return made<GenericAccessor<T, N, Traits, Index>, N>(data_ptr<T>());
    }
    template <class T> inline T item() const;

    inline Tensor to(const TensorOptions& options) const;
    inline Tensor to(ScalarType type) const;
    inline Tensor to(const Device& device) const;
    inline Tensor& set_requires_grad(bool wanted);
    inline Tensor operator[](int64_t i) const;
    inline std::tuple<Tensor, Tensor> max(int64_t dim, bool keepdim = false) const;
    inline std::tuple<Tensor, Tensor> min(int64_t dim, bool keepdim = false) const;
    inline Tensor max() const;
    inline Tensor min() const;
    inline std::vector<Tensor> chunk(int64_t chunks, int64_t dim = 0) const;
    inline std::vector<Tensor> split(int64_t size, int64_t dim = 0) const;
    inline std::vector<Tensor> unbind(int64_t dim = 0) const;

    Tensor cpu() const { return call("cpu"); }
    Tensor cuda() const { return call("cuda"); }

    // Whatever tilegrad's tensors can do: x.call("logsumexp", 1).
    template <class... A> Tensor call(const char* name, const A&... arguments) const;
#define TILEGRAD_METHOD(name) \
    template <class... A> Tensor name(const A&... arguments) const { return call(#name, arguments...); }
#define TILEGRAD_OF_NUMBERS(name) \
    template <class... A> Tensor name(const A&... arguments) const { return call(#name, arguments...); } \
    Tensor name(IntArrayRef numbers) const { return call(#name, numbers); }
#define TILEGRAD_IN_PLACE(name) \
    template <class... A> const Tensor& name(const A&... arguments) const { call(#name, arguments...); return *this; }
#include "names.h"
#undef TILEGRAD_METHOD
#undef TILEGRAD_OF_NUMBERS
#undef TILEGRAD_IN_PLACE

private:
    template <class A, int N, class P> A made(P pointer) const {
        if (dim() != N)
            throw Error("an accessor of " + std::to_string(N) + " axes was asked for, and the tensor has " +
                        std::to_string(dim()) + ": " + shape());
        return A(pointer, meta().sizes, meta().strides);
    }
};

using TensorList = ArrayRef<Tensor>;
using DeprecatedTypeProperties = Tensor;
inline ScalarType scalar_type(ScalarType type) { return type; }
inline ScalarType scalar_type(const Tensor& tensor) { return tensor.scalar_type(); }

struct TensorOptions {
    std::optional<ScalarType> type;
    std::optional<Device> place;
    bool tracked = false;
    TensorOptions() = default;
    TensorOptions(ScalarType type) : type(type) {}
    TensorOptions(Device device) : place(device) {}
    TensorOptions(DeviceType device) : place(device) {}
    TensorOptions dtype(ScalarType wanted) const { TensorOptions x = *this; x.type = wanted; return x; }
    TensorOptions device(Device wanted) const { TensorOptions x = *this; x.place = wanted; return x; }
    TensorOptions device(DeviceType kind, int number = -1) const { return device(Device(kind, number)); }
    TensorOptions requires_grad(bool wanted = true) const { TensorOptions x = *this; x.tracked = wanted; return x; }
    TensorOptions layout(int) const { return *this; }
    ScalarType dtype() const { return type.value_or(kFloat); }
    Device device() const { return place.value_or(Device()); }
};
constexpr int kStrided = 0;
inline TensorOptions dtype(ScalarType type) { return TensorOptions(type); }
inline TensorOptions device(Device device) { return TensorOptions(device); }
inline TensorOptions requires_grad(bool wanted = true) { return TensorOptions().requires_grad(wanted); }
TensorOptions Tensor::options() const { return TensorOptions(scalar_type()).device(device()); }

}  // namespace at
