// A linear layer, forwards and backwards: y = x w^T + b.
#include <torch/extension.h>

#include <vector>

#define CHECK_SHAPES(x, w) \
    TORCH_CHECK(x.dim() == 2 && w.dim() == 2 && x.size(1) == w.size(1), #x " is ", x.sizes(), ", and " #w " is ", w.sizes())

std::vector<torch::Tensor> mylinear_forward(torch::Tensor input, torch::Tensor weight, torch::Tensor bias) {
    CHECK_SHAPES(input, weight);
    auto output = torch::mm(input, weight.transpose(0, 1)) + bias;
    return {output};
}

std::vector<torch::Tensor> mylinear_backward(torch::Tensor grad_output, torch::Tensor input, torch::Tensor weight) {
    auto grad_input = torch::mm(grad_output, weight);
    auto grad_weight = torch::mm(grad_output.transpose(0, 1), input);
    auto grad_bias = grad_output.sum(0);
    return {grad_input, grad_weight, grad_bias};
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.def("forward", &mylinear_forward, "y = x w^T + b");
    m.def("backward", &mylinear_backward, "the gradients of x, w and b");
}
