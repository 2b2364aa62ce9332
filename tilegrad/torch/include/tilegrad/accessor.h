// Elements by their indices: `a[i][j]`. For the host and for kernels.
#pragma once
#ifndef TILEGRAD_BOTH
#define TILEGRAD_BOTH
#endif

namespace at {

template <class T> struct DefaultPtrTraits { typedef T* PtrType; };
template <class T> struct RestrictPtrTraits { typedef T* __restrict__ PtrType; };

template <class T, int N, class Index> class Cut {
    T* const first;
    const Index *const extents, *const steps;

public:
    TILEGRAD_BOTH Cut(T* data, const Index* sizes, const Index* strides) : first(data), extents(sizes), steps(strides) {}
    TILEGRAD_BOTH Index size(Index i) const { return extents[i]; }
    TILEGRAD_BOTH Index stride(Index i) const { return steps[i]; }
    TILEGRAD_BOTH T* data() const { return first; }
    TILEGRAD_BOTH decltype(auto) operator[](Index i) const {
        if constexpr (N == 1)
            return (first[i * steps[0]]);
        else
            return Cut<T, N - 1, Index>(first + i * steps[0], extents + 1, steps + 1);
    }
};

template <class T, int N, template <class> class Traits = DefaultPtrTraits, class Index = long> class GenericAccessor {
    T* first;
    Index extents[N], steps[N];

public:
    template <class Wide> GenericAccessor(T* data, const Wide* sizes, const Wide* strides) : first(data) {
        for (int i = 0; i < N; ++i) extents[i] = (Index)sizes[i], steps[i] = (Index)strides[i];
    }
    TILEGRAD_BOTH Index size(int i) const { return extents[i]; }
    TILEGRAD_BOTH Index stride(int i) const { return steps[i]; }
    TILEGRAD_BOTH T* data() const { return first; }
    TILEGRAD_BOTH decltype(auto) operator[](Index i) const { return Cut<T, N, Index>(first, extents, steps)[i]; }
};

template <class T, int N> using TensorAccessor = GenericAccessor<T, N>;
template <class T, int N, template <class> class Traits = DefaultPtrTraits>
using PackedTensorAccessor32 = GenericAccessor<T, N, Traits, int>;
template <class T, int N, template <class> class Traits = DefaultPtrTraits>
using PackedTensorAccessor64 = GenericAccessor<T, N, Traits, long>;
template <class T, int N, template <class> class Traits = DefaultPtrTraits>
using PackedTensorAccessor = GenericAccessor<T, N, Traits, long>;

}  // namespace at

namespace torch {
using namespace at;
}
