// The C++ side of a linear layer in CUDA: it looks at the arguments, and hands them on.
#include <torch/extension.h>

#include <vector>

std::vector<torch::Tensor> cuda_forward(torch::Tensor input, torch::Tensor weight, torch::Tensor bias);
std::vector<torch::Tensor> cuda_backward(torch::Tensor grad_output, torch::Tensor input, torch::Tensor weight);

#define CHECK_CUDA(x) TORCH_CHECK(x.is_cuda(), #x " must be a CUDA tensor")
#define CHECK_CONTIGUOUS(x) TORCH_CHECK(x.is_contiguous(), #x " must be contiguous")
#define CHECK_INPUT(x) CHECK_CUDA(x); CHECK_CONTIGUOUS(x)

std::vector<torch::Tensor> forward(torch::Tensor input, torch::Tensor weight, torch::Tensor bias) {
    CHECK_INPUT(input);
    CHECK_INPUT(weight);
    CHECK_INPUT(bias);
    return cuda_forward(input, weight, bias);
}

std::vector<torch::Tensor> backward(torch::Tensor grad_output, torch::Tensor input, torch::Tensor weight) {
    CHECK_INPUT(grad_output);
    CHECK_INPUT(input);
    CHECK_INPUT(weight);
    return cuda_backward(grad_output, input, weight);
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.def("forward", &forward, "y = x w^T + b (CUDA)");
    m.def("backward", &backward, "the gradients of x, w and b (CUDA)");
}
